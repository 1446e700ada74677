package prompt

import (
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/runtime/batch"
)

// BatchDefaults returns the sampling parameters of requests that do not set them: those of the file's generation
// config. unused are the keys that a program with these limits cannot apply.
func (t *Text) BatchDefaults(limits batch.Limits) (out batch.Sampling, unused []string, err error) {
	g := t.Sampling
	out.TopP = 1
	set := func(key string, value *float64, off float64, to *float32, can bool) {
		switch {
		case value == nil || *value == off:
		case can:
			*to = float32(*value)
		default:
			unused = append(unused, key)
		}
	}
	set("repetition_penalty", g.RepetitionPenalty, 1, &out.Repeat, !limits.NoLogits)
	set("presence_penalty", g.PresencePenalty, 0, &out.Presence, !limits.NoLogits)
	set("frequency_penalty", g.FrequencyPenalty, 0, &out.Frequency, !limits.NoLogits)
	if out.Repeat != 0 || out.Presence != 0 || out.Frequency != 0 {
		out.RepeatLast = -1 // a file's penalties count all tokens, as in transformers
	}
	if g.DoSample == nil || *g.DoSample {
		set("temperature", g.Temperature, 0, &out.Temperature, true)
		set("top_p", g.TopP, 1, &out.TopP, !limits.NoSeed)
		set("min_p", g.MinP, 0, &out.MinP, !limits.NoLogits)
		switch {
		case g.TopK == nil || *g.TopK <= 0:
		case limits.NoSeed:
			unused = append(unused, "top_k")
		default:
			out.TopK = int64(*g.TopK)
		}
	}
	if err := out.Check(limits); err != nil {
		return out, nil, kind.Invalidf("%s: generation config: %w", t.File, err)
	}
	return out, unused, nil
}
