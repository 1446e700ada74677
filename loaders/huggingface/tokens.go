package huggingface

import (
	"fmt"
	"math"
	"slices"
)

// Tokens are the ids that a runtime needs in addition to the tokenizer.
type Tokens struct {
	BOS int   // bos_token_id, NoToken if there is none
	EOS []int // every id that ends a text, each once, those of generation_config.json first
	Pad int   // pad_token_id, NoToken if there is none
}

// NoToken stands for a token that a model does not have.
const NoToken = -1

// Sampling holds the defaults of generation_config.json, nil where it says nothing.
type Sampling struct {
	DoSample    *bool    // do_sample
	Temperature *float64 // temperature, ≥ 0
	TopK        *int     // top_k; ≤ 0 is off
	TopP        *float64 // top_p, in (0, 1]
	MinP        *float64 // min_p, in [0, 1]
	// Penalties of tokens that the text has: a factor above 0, and what is subtracted from logits.
	RepetitionPenalty, PresencePenalty, FrequencyPenalty *float64
}

// readTokens reads the ids from the given sections in order of precedence: the first that has a bos or pad id
// decides it, and the end-of-text ids of all are joined, since chat models keep the end of a turn in
// generation_config.json and the end of a text in config.json.
func readTokens(vocabulary int, sections ...section) Tokens {
	tokens := Tokens{BOS: NoToken, Pad: NoToken}
	for _, s := range sections {
		if tokens.BOS == NoToken && s.has("bos_token_id") {
			tokens.BOS = s.integer("bos_token_id", 0, vocabulary-1)
		}
		if tokens.Pad == NoToken && s.has("pad_token_id") {
			tokens.Pad = s.integer("pad_token_id", 0, vocabulary-1)
		}
		for _, id := range s.tokenList("eos_token_id", vocabulary) {
			if !slices.Contains(tokens.EOS, id) {
				tokens.EOS = append(tokens.EOS, id)
			}
		}
	}
	return tokens
}

// maxEOS bounds the number of end-of-text ids; a .pte has an output for each.
const maxEOS = 64

// tokenList reads one id, an array of ids, or nothing.
func (s section) tokenList(name string, vocabulary int) []int {
	if !s.has(name) {
		return nil
	}
	list, ok := s.values[name].([]any)
	if !ok {
		list = []any{s.values[name]}
	}
	if len(list) > maxEOS {
		s.doc.fault(s.key(name), fmt.Sprintf("at most %d ids", maxEOS), fmt.Sprint(len(list)))
		return nil
	}
	ids := make([]int, 0, len(list))
	for _, value := range list {
		id, ok := asInt(value)
		if !ok || id < 0 || id >= vocabulary {
			s.fault(name, fmt.Sprintf("a token id below vocab_size (%d), or an array of them", vocabulary))
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// ParseSampling reads the sampling defaults of a generation_config.json that does not lie in a checkpoint, such as
// the one in a .pte; file is for errors.
func ParseSampling(file string, text []byte) (Sampling, error) {
	doc, root := parse(file, text)
	if err := doc.err(); err != nil {
		return Sampling{}, err
	}
	s := readSampling(root)
	return s, doc.err()
}

// readSampling reads the sampling defaults of generation_config.json.
func readSampling(s section) Sampling {
	var sampling Sampling
	if s.has("do_sample") {
		value := s.boolean("do_sample", false)
		sampling.DoSample = &value
	}
	sampling.Temperature = s.interval("temperature", "a number ≥ 0", func(v float64) bool { return v >= 0 })
	sampling.TopP = s.interval("top_p", "a number above 0 up to 1", func(v float64) bool { return v > 0 && v <= 1 })
	if s.has("top_k") {
		value := s.integer("top_k", -1, maxPositions)
		sampling.TopK = &value
	}
	sampling.MinP = s.interval("min_p", "a number of 0 to 1", func(v float64) bool { return v >= 0 && v <= 1 })
	sampling.RepetitionPenalty = s.interval("repetition_penalty", "a number above 0",
		func(v float64) bool { return v > 0 })
	for name, to := range map[string]**float64{"presence_penalty": &sampling.PresencePenalty,
		"frequency_penalty": &sampling.FrequencyPenalty} {
		*to = s.interval(name, "a number", func(v float64) bool { return !math.IsInf(v, 0) })
	}
	return sampling
}

// interval reads an optional number that must satisfy within.
func (s section) interval(name, expected string, within func(float64) bool) *float64 {
	if !s.has(name) {
		return nil
	}
	value, ok := asFloat(s.values[name])
	if !ok || !within(value) {
		s.fault(name, expected)
		return nil
	}
	return &value
}
