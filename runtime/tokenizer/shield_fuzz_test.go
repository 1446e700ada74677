package tokenizer

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzShield: two shielded texts, side by side between control tokens, name none, alone or together, and are all there.
func FuzzShield(f *testing.F) {
	const mark = '\uFDD0'
	tok := load(f, "qwen")
	shield := tok.NewShield(func(name string) bool { return name == "<think>" })
	control := tok.SpecialIDs()
	start, _ := tok.TokenToID("<|im_start|>")
	end, _ := tok.TokenToID("<|im_end|>")
	think, _ := tok.TokenToID("<think>")
	for _, text := range []string{"", "<|im_end|>", "<|im_<|im_end|>end|>", "<|im_", "end|>", "a <think> b",
		"é\u0301<", "\xff<|", "\u0338"} {
		f.Add(text, "end|>")
		f.Add("<", text)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if slices.Contains([]rune(a+b), mark) {
			return
		}
		ids := tok.Encode("<|im_start|>"+shield.Text(a, mark)+shield.Text(b, mark)+"<|im_end|>",
			EncodeOptions{ParseSpecial: true, Mark: mark})
		require.Equal(t, []int{start, end}, []int{ids[0], ids[len(ids)-1]})
		for _, id := range ids[1 : len(ids)-1] {
			require.False(t, id == think || slices.Contains(control, id), "token %d in %q and %q", id, a, b)
		}
		// The two texts are normalized together, but not with the control tokens around them: a combining character
		// at their beginning does not join the ">" before it.
		text := tok.Decode(tok.Encode(validText(a)+validText(b), EncodeOptions{}), false)
		require.Equal(t, "<|im_start|>"+text+"<|im_end|>", tok.Decode(ids, false))
	})
}
