package command

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/session"
)

// samplerFlags choose the sampler, and are for the runtime's own.
type samplerFlags struct {
	sampler                     string
	minP                        float64
	repeat, presence, frequency float64
	lastN                       int
	bias                        []string
	logprobs                    int
}

func (f *samplerFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	addSampler(fl, &f.sampler)
	fl.Float64Var(&f.minP, "min-p", 0,
		"sample from the tokens that are at least this many times as likely as the most likely one, in [0, 1]")
	fl.Float64Var(&f.repeat, "repeat-penalty", 1,
		"make tokens less likely that are among the last ones of prompt and answer; 1 is off")
	fl.Float64Var(&f.presence, "presence-penalty", 0,
		"subtract this from the logit of each token that is among the last ones of the answer")
	fl.Float64Var(&f.frequency, "frequency-penalty", 0,
		"subtract this from the logit of a token as many times as it is among the last ones of the answer")
	fl.IntVar(&f.lastN, "repeat-last-n", session.DefaultLastN, "how many last tokens the penalties count")
	fl.StringArrayVar(&f.bias, "logit-bias", nil,
		"`ID:VALUE` adds VALUE to the logit of a token, as 42:1.5; 42:-inf forbids it; may be given several times")
	fl.IntVar(&f.logprobs, "logprobs", -1,
		"give the log-probability of each token of the answer, and those of the `N` most likely ones in its place "+
			"(default: off)")
}

// addSampler adds --sampler.
func addSampler(fl *pflag.FlagSet, value *string) {
	fl.StringVar(value, "sampler", "file",
		"what draws tokens: `file|runtime`, the program's sampling head, or etc's own sampler on the program's logits")
}

// maxLogprobs bounds --logprobs.
const maxLogprobs = 100

func checkSampler(value string) error {
	if value != "file" && value != "runtime" {
		return usagef("--sampler %q, want file or runtime", value)
	}
	return nil
}

// read checks the flags and sets the parameters that they are for.
func (f *samplerFlags) read(cmd *cobra.Command, p *etc.Parameters) error {
	if err := checkSampler(f.sampler); err != nil {
		return err
	}
	if f.lastN < 1 || f.lastN > prompt.MostLastN {
		return usagef("--repeat-last-n %d, want 1 to %d", f.lastN, prompt.MostLastN)
	}
	if f.logprobs < -1 || f.logprobs > maxLogprobs {
		return usagef("--logprobs %d, want 0 to %d", f.logprobs, maxLogprobs)
	}
	if !(f.repeat > 0) {
		return usagef("--repeat-penalty %v, want a number above 0; 1 is off", f.repeat)
	}
	for _, v := range []struct {
		flag string
		from *float64
		to   **float64
	}{
		{"min-p", &f.minP, &p.MinP}, {"repeat-penalty", &f.repeat, &p.RepeatPenalty},
		{"presence-penalty", &f.presence, &p.PresencePenalty}, {"frequency-penalty", &f.frequency, &p.FrequencyPenalty},
	} {
		if x := float64(float32(*v.from)); math.IsInf(x, 0) || math.IsNaN(x) {
			return usagef("--%s %v, want a finite number", v.flag, *v.from)
		}
		if cmd.Flags().Changed(v.flag) {
			*v.to = v.from
		}
	}
	switch {
	case f.minP > 1: // before float32 rounds what is just above it
		return usagef("--min-p %v, want at least 0 and at most 1", f.minP)
	case f.minP < 0:
		return usagef("min-p %g, want at least 0 and at most 1", float32(f.minP))
	}
	if cmd.Flags().Changed("repeat-last-n") {
		p.RepeatLast = f.lastN
	}
	if f.logprobs >= 0 {
		p.Logprobs = &f.logprobs
	}
	for _, b := range f.bias {
		token, v, ok := parseBias(b)
		if !ok {
			return usagef("--logit-bias %q, want %s", b, wantedBias)
		}
		if _, twice := p.Bias[token]; twice {
			return usagef("--logit-bias of token %d is there twice", token)
		}
		if p.Bias == nil {
			p.Bias = map[int]float64{}
		}
		p.Bias[token] = v
	}
	return nil
}

// chosenSampler returns the sampler for the library: the file's, unless a flag asks for the runtime's or needs it.
func (f *samplerFlags) chosenSampler(cmd *cobra.Command, p etc.Parameters) string {
	if !cmd.Flags().Changed("sampler") && p.NeedsRuntime() != "" {
		return "runtime"
	}
	return f.sampler
}

const wantedBias = "a token id and a number, as 42:1.5 or 42:-inf"

// parseBias reads ID:VALUE.
func parseBias(text string) (token int, value float64, ok bool) {
	id, number, ok := strings.Cut(text, ":")
	n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
	v, err2 := strconv.ParseFloat(strings.TrimSpace(number), 32)
	return int(n), v, ok && err == nil && err2 == nil && n >= 0 && !math.IsNaN(v) && !math.IsInf(v, 1)
}

// shownLogprob is a log-probability as --json prints it; null for the logarithm of 0.
type shownLogprob float32

// MarshalJSON writes a number or null.
func (p shownLogprob) MarshalJSON() ([]byte, error) {
	if v := float64(p); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float32(p))
}

// tokenLogprob is a token and its log-probability.
type tokenLogprob struct {
	Token   int          `json:"token"`
	Logprob shownLogprob `json:"logprob"`
}

// answerLogprobs has the log-probability of a token of the answer, and of the most likely tokens at its place.
type answerLogprobs struct {
	tokenLogprob
	Top []tokenLogprob `json:"top"`
}

func logprobsOf(tokens []etc.Token) []answerLogprobs {
	var out []answerLogprobs
	for _, t := range tokens {
		o := answerLogprobs{tokenLogprob{t.ID, shownLogprob(t.Logprob)}, []tokenLogprob{}}
		for _, c := range t.Top {
			o.Top = append(o.Top, tokenLogprob{c.ID, shownLogprob(c.Logprob)})
		}
		out = append(out, o)
	}
	return out
}

// writeLogprobs writes the log-probabilities of an answer, a line for each token. names gives the texts of tokens; nil
// where there are none.
func writeLogprobs(w io.Writer, names *etc.Tokenizer, tokens []etc.Token) {
	show := func(id int, logprob float64) string {
		if names == nil {
			return fmt.Sprintf("%d %.4f", id, logprob)
		}
		return fmt.Sprintf("%d %q %.4f", id, names.DecodeSpecial([]int{id}), logprob)
	}
	for _, t := range tokens {
		line := show(t.ID, t.Logprob)
		for i, c := range t.Top {
			line += map[bool]string{true: "; most likely ", false: ", "}[i == 0] + show(c.ID, c.Logprob)
		}
		logf(w, "etc: token %s", line)
	}
}
