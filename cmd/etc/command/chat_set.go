package command

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/internal/prompt"
)

// settings describes the parameters of the answers to come.
func (c *chatter) settings() string {
	p := c.session.Parameters()
	out := fmt.Sprintf("temperature %g", *p.Temperature)
	if p.Seed != nil {
		out += fmt.Sprintf(", top-k %d, top-p %g, seed %d", *p.TopK, *p.TopP, *p.Seed)
	}
	if p.MinP != nil {
		out += fmt.Sprintf(", min-p %g, repeat-penalty %g, presence-penalty %g, frequency-penalty %g, "+
			"repeat-last-n %d, logit-bias", *p.MinP, *p.RepeatPenalty, *p.PresencePenalty,
			*p.FrequencyPenalty, p.RepeatLast)
		for _, token := range slices.Sorted(maps.Keys(p.Bias)) {
			out += fmt.Sprintf(" %d:%g", token, p.Bias[token])
		}
		if len(p.Bias) == 0 {
			out += " off"
		}
	}
	think := "unset"
	if p.Think != nil {
		think = map[bool]string{true: "on", false: "off"}[*p.Think]
	}
	return fmt.Sprintf("%s, max-tokens %d, think %s", out, p.MaxTokens, think)
}

// set changes a parameter of the answers to come.
func (c *chatter) set(arg string) error {
	name, value, _ := strings.Cut(arg, " ")
	name, value = strings.ReplaceAll(name, "_", "-"), strings.TrimSpace(value)
	p := c.session.Parameters()
	var err error
	want := ""
	switch name {
	case "":
		fmt.Fprintln(c.log, c.settings())
		return nil
	case "temperature", "temp":
		want, err = "a number of at least 0", parseNumber(value, &p.Temperature)
	case "top-p", "top-k", "seed":
		drawn := p.Seed != nil
		if want, err = setDraws(&p, name, value); err == nil && !drawn {
			return fmt.Errorf("%s needs a program with a sampling head (etc export --sample) or --sampler runtime; this "+
				"one supports temperature only", name)
		}
	case "max-tokens", "max-new-tokens":
		want = "a number of tokens, 0 for no limit"
		if p.MaxTokens, err = strconv.Atoi(value); err == nil && p.MaxTokens < 0 {
			err = strconv.ErrRange
		}
	case "think":
		return c.setThink(value)
	case "min-p", "repeat-penalty", "presence-penalty", "frequency-penalty", "repeat-last-n", "logit-bias":
		if p.MinP == nil { // for a chat, all or none
			return fmt.Errorf("/set %s needs --sampler runtime", name)
		}
		want, err = c.setOwn(&p, name, value)
	case "logprobs":
		return errors.New("/set logprobs: a chat does not print log-probabilities; etc run with a prompt and " +
			"--logprobs does")
	default:
		return fmt.Errorf("/set %s: known are temperature, top-k, top-p, seed, max-tokens, think, "+
			"min-p, repeat-penalty, presence-penalty, frequency-penalty, repeat-last-n, logit-bias", name)
	}
	if err == nil {
		err = c.session.SetParameters(p)
	}
	if err != nil {
		return fmt.Errorf("/set %s %q: want %s", name, value, want)
	}
	return nil
}

// setDraws changes a parameter that sampling heads have too. want describes the values that it accepts, for error
// messages.
func setDraws(p *etc.Parameters, name, value string) (want string, err error) {
	switch name {
	case "top-p":
		if err = parseNumber(value, &p.TopP); err == nil && !(*p.TopP > 0 && *p.TopP <= 1) {
			err = strconv.ErrRange
		}
		return "a number above 0, at most 1", err
	case "top-k":
		k, err := strconv.Atoi(value)
		p.TopK = &k
		return "an integer, 0 or less for all tokens", err
	}
	seed, err := strconv.ParseInt(value, 10, 64)
	p.Seed = &seed
	return "an integer", err
}

// setOwn changes a parameter of the runtime's own sampler. want describes the values that it accepts, for error
// messages.
func (c *chatter) setOwn(p *etc.Parameters, name, value string) (want string, err error) {
	biases, last := c.session.Limits()
	switch name {
	case "min-p":
		return "a number of at least 0, at most 1", parseNumber(value, &p.MinP)
	case "repeat-penalty":
		return "a number above 0; 1 is off", parseNumber(value, &p.RepeatPenalty)
	case "presence-penalty":
		return "a number; 0 is off", parseNumber(value, &p.PresencePenalty)
	case "frequency-penalty":
		return "a number; 0 is off", parseNumber(value, &p.FrequencyPenalty)
	case "repeat-last-n":
		if p.RepeatLast, err = strconv.Atoi(value); err == nil && (p.RepeatLast < 1 || p.RepeatLast > last) {
			err = strconv.ErrRange
		}
		return fmt.Sprintf("a number of tokens from 1 to %d; --repeat-last-n of etc run makes it more", last), err
	}
	p.Bias = nil
	want = fmt.Sprintf("off, or up to %d times %s", biases, wantedBias)
	if value == "off" {
		return want, nil
	}
	p.Bias = map[int]float64{}
	vocab := c.session.Info().VocabularySize
	for _, field := range strings.Fields(value) {
		token, v, ok := parseBias(field)
		if _, twice := p.Bias[token]; !ok || twice || vocab > 0 && token >= vocab {
			return want, strconv.ErrRange
		}
		p.Bias[token] = v
	}
	if len(p.Bias) == 0 || len(p.Bias) > biases {
		err = strconv.ErrRange
	}
	return want, err
}

// setThink says whether the model is to think first.
func (c *chatter) setThink(value string) error {
	if t := c.session.ChatTemplate(); t != nil && !t.Reads(prompt.EnableThinking) {
		return fmt.Errorf("/set think: the chat template does not know of thinking")
	}
	p := c.session.Parameters()
	switch value {
	case "on", "off":
		p.Think = new(value == "on")
	case "unset":
		p.Think = nil
	default:
		return fmt.Errorf("/set think %q: want on, off or unset", value)
	}
	return c.session.SetParameters(p)
}

// parseNumber reads a number.
func parseNumber(text string, into **float64) error {
	v, err := strconv.ParseFloat(text, 64)
	*into = &v
	return err
}
