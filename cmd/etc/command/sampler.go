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

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
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
func (f *samplerFlags) read(s *session.Sampling) error {
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
		from float64
		to   *float32
	}{
		{"min-p", f.minP, &s.MinP}, {"repeat-penalty", f.repeat, &s.RepeatPenalty},
		{"presence-penalty", f.presence, &s.PresencePenalty}, {"frequency-penalty", f.frequency, &s.FrequencyPenalty},
	} {
		if *v.to = float32(v.from); math.IsInf(float64(*v.to), 0) || math.IsNaN(v.from) {
			return usagef("--%s %v, want a finite number", v.flag, v.from)
		}
	}
	if f.minP > 1 { // before float32 rounds what is just above it
		return usagef("--min-p %v, want at least 0 and at most 1", f.minP)
	}
	s.LastN, s.Logprobs, s.TopLogprobs = f.lastN, f.logprobs >= 0, max(f.logprobs, 0)
	for _, b := range f.bias {
		token, v, ok := parseBias(b)
		if !ok {
			return usagef("--logit-bias %q, want %s", b, wantedBias)
		}
		if _, twice := s.Bias[token]; twice {
			return usagef("--logit-bias of token %d is there twice", token)
		}
		if s.Bias == nil {
			s.Bias = map[int]float32{}
		}
		s.Bias[token] = v
	}
	return nil
}

const wantedBias = "a token id and a number, as 42:1.5 or 42:-inf"

// parseBias reads ID:VALUE.
func parseBias(text string) (token int, value float32, ok bool) {
	id, number, ok := strings.Cut(text, ":")
	n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
	v, err2 := strconv.ParseFloat(strings.TrimSpace(number), 32)
	return int(n), float32(v), ok && err == nil && err2 == nil && n >= 0 && !math.IsNaN(v) && !math.IsInf(v, 1)
}

// own reports whether the runtime's own sampler draws: where it is asked for, and where a parameter needs it. It is an
// error where --sampler file cannot do that.
func (f *samplerFlags) own(cmd *cobra.Command, s session.Sampling) (bool, error) {
	need := s.NeedsRuntime()
	if need != "" && f.sampler == "file" && cmd.Flags().Changed("sampler") {
		return false, usagef("%s needs --sampler runtime; with --sampler file the program draws, "+
			"which takes temperature, top-k, top-p and seed at most", need)
	}
	return need != "" || f.sampler == "runtime", nil
}

// chatBiases is the number of tokens that may have a bias in a chat, if the user gives no more when it begins.
const chatBiases = 16

// load compiles a program for what a request needs: with the runtime's own sampler, if that is to draw. A chat may
// change min-p, penalties and biases later.
func (f *runFlags) load(
	cmd *cobra.Command, path string, m *ir.Module, e engine.Engine, o engine.Options, s session.Sampling, chats bool,
) (*session.Model, error) {
	own, err := f.samplerFlags.own(cmd, s)
	if err != nil {
		return nil, err
	}
	var model *session.Model
	if own {
		d := session.DrawsOf(s)
		if chats {
			d.MinP, d.Biases, d.Window = true, max(d.Biases, chatBiases), max(d.Window, s.LastN)
		}
		d.Logits = f.logits != ""
		model, err = session.LoadDraws(m, e, o, d) // reads no weights
	} else {
		model, err = session.Load(m, e, o)
	}
	if err != nil {
		return nil, loadError(path, err)
	}
	return model, nil
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

func logprobsOf(a session.Answer) []answerLogprobs {
	var out []answerLogprobs
	for _, p := range a.Logprobs {
		o := answerLogprobs{tokenLogprob{p.Token, shownLogprob(p.Logprob.Logprob)}, []tokenLogprob{}}
		for _, q := range p.Top {
			o.Top = append(o.Top, tokenLogprob{q.Token, shownLogprob(q.Logprob)})
		}
		out = append(out, o)
	}
	return out
}

// writeLogprobs writes the log-probabilities of an answer, a line for each token.
func writeLogprobs(w io.Writer, t *text, a session.Answer) {
	show := func(p session.Logprob) string {
		if t.Tokenizer == nil {
			return fmt.Sprintf("%d %.4f", p.Token, p.Logprob)
		}
		return fmt.Sprintf("%d %q %.4f", p.Token, t.Tokenizer.Decode([]int{p.Token}, false), p.Logprob)
	}
	for _, p := range a.Logprobs {
		line := show(p.Logprob)
		for i, q := range p.Top {
			line += map[bool]string{true: "; most likely ", false: ", "}[i == 0] + show(q)
		}
		logf(w, "etc: token %s", line)
	}
}
