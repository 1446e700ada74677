package prompt

import (
	"slices"

	"github.com/etc-ml/etc/runtime/tokenizer"
)

// SpecialPrefix returns the special tokens that a tokenizer puts before a text: a BOS token, or none.
func SpecialPrefix(t *tokenizer.Tokenizer) []int {
	const sample = "a"
	with, without := t.Encode(sample, tokenizer.EncodeOptions{AddSpecial: true}),
		t.Encode(sample, tokenizer.EncodeOptions{})
	for i := range with {
		if len(with)-i >= len(without) && slices.Equal(with[i:i+len(without)], without) {
			return with[:i]
		}
	}
	return nil
}
