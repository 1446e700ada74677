package tokenizer

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokenBytesMakeTheText: the bytes of a text's tokens, one after the other, are the text.
func TestTokenBytesMakeTheText(t *testing.T) {
	for _, name := range []string{"qwen35moe-chat", "gemma4-chat"} {
		k, err := Load(filepath.Join("..", "..", "testdata", "checkpoints", name, "tokenizer.json"))
		require.NoError(t, err)
		for _, text := range []string{"The capital of France", "a\n\n  b\t(c) 12", "Zürich, 東京 🙂", "<think>x</think>"} {
			var b strings.Builder
			for _, id := range k.Encode(text, EncodeOptions{}) {
				b.Write(k.TokenBytes(id))
			}
			require.Equal(t, text, b.String(), name)
		}
		for _, id := range k.SpecialIDs() {
			require.Empty(t, k.TokenBytes(id))
		}
		require.Empty(t, k.TokenBytes(-1))
		require.Empty(t, k.TokenBytes(1<<20))
	}
}
