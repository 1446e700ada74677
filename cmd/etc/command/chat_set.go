package command

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/etc-ml/etc/runtime/session"
)

// settings describes the parameters of the answers to come.
func (c *chatter) settings() string {
	p := c.request.Sampling
	out := fmt.Sprintf("temperature %g", p.Temperature)
	model := c.session.Model()
	if model.Form == session.Sampler || model.Form == session.Drawn {
		out += fmt.Sprintf(", top-k %d, top-p %g, seed %d", p.TopK, p.TopP, p.Seed)
	}
	if model.Draws().MinP {
		out += fmt.Sprintf(", min-p %g, repeat-penalty %g, presence-penalty %g, frequency-penalty %g, "+
			"repeat-last-n %d, logit-bias", p.MinP, p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty, p.LastN)
		for _, token := range slices.Sorted(maps.Keys(p.Bias)) {
			out += fmt.Sprintf(" %d:%g", token, p.Bias[token])
		}
		if len(p.Bias) == 0 {
			out += " off"
		}
	}
	think := "unset"
	if c.text.Think != nil {
		think = map[bool]string{true: "on", false: "off"}[*c.text.Think]
	}
	return fmt.Sprintf("%s, max-tokens %d, think %s", out, c.request.MaxNewTokens, think)
}

// set changes a parameter of the answers to come.
func (c *chatter) set(arg string) error {
	name, value, _ := strings.Cut(arg, " ")
	name, value = strings.ReplaceAll(name, "_", "-"), strings.TrimSpace(value)
	next := c.request
	var err error
	want := ""
	switch name {
	case "":
		fmt.Fprintln(c.log, c.settings())
		return nil
	case "temperature", "temp":
		want, err = "a number of at least 0", parseFloat32(value, &next.Sampling.Temperature)
	case "top-p":
		want, err = "a number above 0, at most 1", parseFloat32(value, &next.Sampling.TopP)
	case "top-k":
		want = "an integer, 0 or less for all tokens"
		next.Sampling.TopK, err = strconv.ParseInt(value, 10, 64)
	case "seed":
		want = "an integer"
		next.Sampling.Seed, err = strconv.ParseInt(value, 10, 64)
	case "max-tokens", "max-new-tokens":
		want = "a number of tokens, 0 for no limit"
		if next.MaxNewTokens, err = strconv.Atoi(value); err == nil && next.MaxNewTokens < 0 {
			err = strconv.ErrRange
		}
	case "think":
		return c.setThink(value)
	case "min-p", "repeat-penalty", "presence-penalty", "frequency-penalty", "repeat-last-n", "logit-bias":
		if !c.session.Model().Draws().MinP { // for a chat, all or none
			return fmt.Errorf("/set %s needs --sampler runtime", name)
		}
		want, err = c.setOwn(&next.Sampling, name, value)
	case "logprobs":
		return errors.New("/set logprobs: a chat does not print log-probabilities; etc run with a prompt and " +
			"--logprobs does")
	default:
		return fmt.Errorf("/set %s: known are temperature, top-k, top-p, seed, max-tokens, think, "+
			"min-p, repeat-penalty, presence-penalty, frequency-penalty, repeat-last-n, logit-bias", name)
	}
	if err == nil {
		err = next.Sampling.Check()
	}
	if err != nil {
		return fmt.Errorf("/set %s %q: want %s", name, value, want)
	}
	if name == "top-k" || name == "top-p" || name == "seed" {
		if err := next.Sampling.CheckFor(c.session.Model().Form, []string{name}); err != nil {
			return err
		}
	}
	c.request = next
	return nil
}

// setOwn changes a parameter of the runtime's own sampler. want describes the values that it accepts, for error
// messages.
func (c *chatter) setOwn(s *session.Sampling, name, value string) (want string, err error) {
	model := c.session.Model()
	switch name {
	case "min-p":
		return "a number of at least 0, at most 1", parseFloat32(value, &s.MinP)
	case "repeat-penalty":
		if err = parseFloat32(value, &s.RepeatPenalty); err == nil && s.RepeatPenalty == 0 {
			err = strconv.ErrRange
		}
		return "a number above 0; 1 is off", err
	case "presence-penalty":
		return "a number; 0 is off", parseFloat32(value, &s.PresencePenalty)
	case "frequency-penalty":
		return "a number; 0 is off", parseFloat32(value, &s.FrequencyPenalty)
	case "repeat-last-n":
		if s.LastN, err = strconv.Atoi(value); err == nil && (s.LastN < 1 || s.LastN > model.Draws().Window) {
			err = strconv.ErrRange
		}
		return fmt.Sprintf("a number of tokens from 1 to %d; --repeat-last-n of etc run makes it more",
			model.Draws().Window), err
	}
	s.Bias = nil
	most := model.Draws().Biases
	want = fmt.Sprintf("off, or up to %d times %s", most, wantedBias)
	if value == "off" {
		return want, nil
	}
	s.Bias = map[int]float32{}
	for _, field := range strings.Fields(value) {
		token, v, ok := parseBias(field)
		if _, twice := s.Bias[token]; !ok || twice || model.Vocab > 0 && token >= model.Vocab {
			return want, strconv.ErrRange
		}
		s.Bias[token] = v
	}
	if len(s.Bias) == 0 || len(s.Bias) > most {
		err = strconv.ErrRange
	}
	return want, err
}
