package loaders

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/huggingface"
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
		for _, kind := range []string{"Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4"} {
			t.Run(test.name+" "+kind, func(t *testing.T) {
				path := writeGGUF(t, test.name, kind)
				carried, plain := promptLogits(t, openGGUF(t, path, true), test.name),
					promptLogits(t, openGGUF(t, path, false), test.name)
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

// TestBundleLogits compares a bundle that is written as ExecuTorch's quantize_and_save does with a checkpoint of the
// values that it says.
func TestBundleLogits(t *testing.T) {
	for _, test := range chats {
		t.Run(test.name, func(t *testing.T) {
			source, err := inputtest.Read(chatCheckpoint(test.name))
			require.NoError(t, err)
			dir, plain := t.TempDir(), t.TempDir()
			values, err := source.WritePrequantized(dir)
			require.NoError(t, err)
			require.NoError(t, values.WriteDir(plain))
			c := openCheckpoint(t, dir)
			require.True(t, c.Prequantized())
			require.False(t, openCheckpoint(t, plain).Prequantized())
			m := build(t, c, Options{NoSampler: true})
			quantized := 0
			m.Entry.Body.Walk(func(op *ir.Op) {
				if op.Def.Name == "quantized" {
					quantized++
				}
			})
			require.Equal(t, test.counts["linear"]+test.counts["embedding"]+3*test.counts["switch_mlp"], quantized)
			want, got := promptLogits(t, openCheckpoint(t, plain), test.name), promptLogits(t, c, test.name)
			for i, row := range want {
				require.InDeltaSlice(t, row, got[i], 1e-3)
			}
		})
	}
}

// TestBundleRefused: what a bundle may not have is named with its tensor.
func TestBundleRefused(t *testing.T) {
	source, err := inputtest.Read(chatCheckpoint("gemma4-chat"))
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = source.WritePrequantized(dir)
	require.NoError(t, err)
	const name = "layers.0.mlp.up_proj.weight"
	tests := []struct {
		name   string
		change func(metadata map[string]string, list []stored) []stored
		err    string
	}{
		{"for CUDA", func(m map[string]string, l []stored) []stored {
			m[name] = strings.Replace(m[name], "Int4Tensor", "Int4TilePackedTo4dTensor", 1)
			return l
		}, "tensor " + name + ": expected an Int4Tensor or an IntxUnpackedToInt8Tensor, as quantize_and_save writes for MLX, found a Int4TilePackedTo4dTensor"},
		{"no description", func(m map[string]string, l []stored) []stored { delete(m, name); return l },
			"tensor " + name + `: expected a description in the metadata, found ""`},
		{"no names", func(m map[string]string, l []stored) []stored { m["tensor_names"] = "{}"; return l },
			"metadata tensor_names: expected a JSON array of names"},
		{"no scale", func(m map[string]string, l []stored) []stored {
			return slices.DeleteFunc(l, func(s stored) bool { return s.name == "layers.0.mlp.up_proj._weight_scale" })
		}, "tensor " + name + ": expected the tensors qdata, scale and zero_point of a Int4Tensor, found not all of them"},
		{"groups", func(m map[string]string, l []stored) []stored {
			m[name] = strings.Replace(m[name], "[1, 32]", "[1, 64]", 1)
			return l
		}, "tensor " + name + ": expected scales and zero points for [256,128] in groups of 64, found the shapes [4 256] and [4 256]"},
		{"extra", func(m map[string]string, l []stored) []stored {
			return append(l, stored{"other", safetensors.BF16, []int{1}, []byte{0, 0}})
		}, "tensor other: expected a description in the metadata, found none"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files, err := safetensors.OpenCheckpoint(dir)
			require.NoError(t, err)
			defer files.Close()
			metadata := maps.Clone(files.Files()[0].Metadata())
			var list []stored
			for _, tensor := range files.Tensors() {
				list = append(list, stored{tensor.Name, tensor.DType, tensor.Shape, readAll(t, tensor)})
			}
			var entries []safetensors.Entry
			for _, s := range test.change(metadata, list) {
				entries = append(entries, safetensors.Entry{Name: s.name, DType: s.dtype, Shape: s.shape,
					Data: safetensors.Bytes(s.data)})
			}
			out := t.TempDir()
			require.NoError(t, safetensors.WriteFile(filepath.Join(out, safetensors.SingleFileName), entries, metadata))
			config, err := os.ReadFile(filepath.Join(dir, huggingface.ConfigFile))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(out, huggingface.ConfigFile), config, 0o666))
			_, err = Open(out)
			require.ErrorContains(t, err, test.err)
		})
	}
}
