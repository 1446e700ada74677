package loaders

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/inputtest"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// writeGGUF makes a GGUF file of a trained checkpoint with all matrices of one type.
func writeGGUF(t *testing.T, name, kind string) string {
	t.Helper()
	source, err := inputtest.Read(chatCheckpoint(name))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name+"-"+kind+".gguf")
	require.NoError(t, source.WriteGGUF(path, func(string) string { return kind }))
	return path
}

func openGGUF(t *testing.T, path string, superblocks bool) *Checkpoint {
	t.Helper()
	c, err := OpenGGUF(path, superblocks)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// promptLogits runs a recorded prompt and gives the logits after each token.
func promptLogits(t *testing.T, c *Checkpoint, name string) [][]float32 {
	t.Helper()
	recorded, err := safetensors.Open("testdata/" + name + ".logits.safetensors")
	require.NoError(t, err)
	defer recorded.Close()
	ids := readInts(t, recorded, "prompt0.ids")
	return newSession(t, build(t, c, Options{MaxSeqLen: 512, NoSampler: true})).feed(ids, 0, 17)
}

// TestGGUFLogits undoes what llama.cpp's converter does: the logits of a GGUF file are those of the checkpoint that it
// was made of, bit for bit where its matrices are the same numbers.
func TestGGUFLogits(t *testing.T) {
	for _, test := range chats {
		want := promptLogits(t, openCheckpoint(t, chatCheckpoint(test.name)), test.name)
		for _, kind := range []string{"BF16", "F32"} {
			t.Run(test.name+" "+kind, func(t *testing.T) {
				require.Equal(t, want, promptLogits(t, openGGUF(t, writeGGUF(t, test.name, kind), false), test.name))
			})
		}
		for _, kind := range []string{"Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"} {
			t.Run(test.name+" "+kind, func(t *testing.T) {
				path := writeGGUF(t, test.name, kind)
				carried, plain := promptLogits(t, openGGUF(t, path, true), test.name), promptLogits(t, openGGUF(t, path, false), test.name)
				for i := range want {
					require.Equal(t, argmax(plain[i]), argmax(carried[i]))
					if kind == "Q8_0" {
						require.Equal(t, argmax(want[i]), argmax(carried[i]))
					}
				}
			})
		}
	}
}
