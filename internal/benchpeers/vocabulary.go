package main

import (
	"fmt"
	"slices"
)

// vocabulary is a tokenizer of byte-level BPE with as many tokens as a model has: the bytes, one merge, because readers
// want some, and words that no text becomes but that every answer can be written with.
type vocabulary struct {
	tokens []string
	merges [][2]string
}

// newVocabulary makes one of n tokens.
func newVocabulary(n int) vocabulary {
	v := vocabulary{merges: [][2]string{{"t", "h"}}}
	next := rune(256)
	for b := range rune(256) { // as GPT-2 writes bytes: those that print as they are, others from U+0100 on
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' {
			v.tokens = append(v.tokens, string(b))
			continue
		}
		v.tokens = append(v.tokens, string(next))
		next++
	}
	v.tokens = append(v.tokens, "th")
	for i := len(v.tokens); i < n; i++ {
		v.tokens = append(v.tokens, fmt.Sprintf("w%06d", i))
	}
	return v
}

// addTo sets the metadata of a GGUF file, in place of having no vocabulary.
func (v vocabulary) addTo(g *gguf) {
	g.entries = slices.DeleteFunc(g.entries, func(e entry) bool { return e.key == "tokenizer.ggml.model" })
	var merges []string
	for _, m := range v.merges {
		merges = append(merges, m[0]+" "+m[1])
	}
	kinds := make([]int32, len(v.tokens))
	for i := range kinds {
		kinds[i] = 1 // a token of text
	}
	last := uint32(len(v.tokens) - 1)
	for _, e := range []entry{{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "qwen2"},
		{"tokenizer.ggml.tokens", v.tokens},
		{"tokenizer.ggml.token_type", kinds}, {"tokenizer.ggml.merges", merges}, {"tokenizer.ggml.eos_token_id", last},
		{"tokenizer.ggml.add_bos_token", false}} {
		g.set(e.key, e.value)
	}
}
