package loaders

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/fp8"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// tinies are checkpoints of random weights of the families of which there is no trained one here, with what their
// modules must be. Their logits are in testdata as those of the trained ones are.
var tinies = []struct {
	name, family string
	skipped      map[string]int
	counts       map[string]int // of operations
	buffers      map[string]string
	caches       int // buffers of keys and values
	sensitive    []string
}{
	{
		name: "qwen35-tiny", family: "qwen35", skipped: map[string]int{builder.Vision: 21, builder.MultiToken: 15},
		counts: map[string]int{"linear": 3*5 + 4 + 4*3 + 1, "gated_delta_rule": 3, "sdpa": 1, "switch_mlp": 0,
			"top_k": 0, "silu": 3 + 3 + 4},
		buffers: map[string]string{"layers.0.linear_attn.recurrent_state": "f32[1,6,32,32]",
			"layers.3.self_attn.k_cache": "bf16[1,2,256,32]"}, caches: 2,
	},
	{
		name: "qwen3next-tiny", family: "qwen3next", skipped: map[string]int{builder.MultiToken: 7},
		counts: map[string]int{"linear": 3*5 + 4 + 4*5 + 1, "gated_delta_rule": 3, "sdpa": 1, "switch_mlp": 4,
			"top_k": 4, "softmax": 4},
		buffers: map[string]string{"layers.0.linear_attn.conv_state": "bf16[1,4,256]",
			"layers.3.self_attn.v_cache": "bf16[1,2,256,32]"}, caches: 2,
	},
	{
		name: "qwen3moe-tiny", family: "qwen3moe", skipped: map[string]int{},
		counts: map[string]int{"linear": 4*5 + 1, "sdpa": 4, "switch_mlp": 4, "top_k": 4, "sigmoid": 0,
			"rope": 8, "rms_norm": 4*4 + 1},
		buffers: map[string]string{"layers.0.self_attn.k_cache": "bf16[1,2,256,32]"}, caches: 8,
	},
	{
		name: "qwen3-tiny", family: "qwen3", skipped: map[string]int{},
		counts: map[string]int{"linear": 4*7 + 1, "sdpa": 4, "switch_mlp": 0, "silu": 4, "sigmoid": 0,
			"rope": 8, "rms_norm": 4*4 + 1},
		buffers: map[string]string{"layers.3.self_attn.k_cache": "bf16[1,2,256,64]"}, caches: 8,
	},
	{
		name: "gemma4moe-tiny", family: "gemma4", skipped: map[string]int{builder.Vision: 16},
		counts: map[string]int{"linear": 5*7 + 6 + 6 + 1, "sdpa": 6, "switch_geglu": 6, "switch_mlp": 0, "top_k": 6,
			"gelu": 6, "rms_norm": 6*11 + 1},
		buffers: map[string]string{"layers.0.self_attn.k_cache": "bf16[1,2,31,32]",
			"layers.5.self_attn.k_cache": "bf16[1,1,256,64]"},
		caches:    12,
		sensitive: []string{"*.router.proj.weight"},
	},
	{
		name: "gemma4e-tiny", family: "gemma4",
		skipped: map[string]int{builder.Vision: 16, builder.Audio: 3, builder.SharedKV: 9},
		counts: map[string]int{"linear": 3*7 + 3*5 + 6*2 + 1 + 1, "sdpa": 6, "gelu": 12, "embedding": 2,
			"rope": 3*2 + 3, "rms_norm": 3*8 + 3*6 + 1 + 1},
		buffers: map[string]string{"layers.1.self_attn.k_cache": "bf16[1,1,31,32]",
			"layers.2.self_attn.v_cache": "bf16[1,1,256,64]"},
		caches: 6, // of three layers: the others share theirs
		sensitive: []string{"per_layer_model_projection.weight", "*.per_layer_input_gate.weight",
			"*.per_layer_projection.weight"},
	},
	{
		name: "gemma4unified-tiny", family: "gemma4unified",
		skipped: map[string]int{builder.Vision: 10, builder.Audio: 1},
		counts:  map[string]int{"linear": 4*7 + 6 + 1, "sdpa": 5, "gelu": 5, "rms_norm": 5*7 + 1},
		buffers: map[string]string{"layers.4.self_attn.k_cache": "bf16[1,1,256,64]"}, caches: 10,
	},
	{
		name: "museglimmer-tiny", family: "museglimmer", skipped: map[string]int{builder.Vision: 25},
		counts: map[string]int{"linear": 5*8 + 1, "sdpa": 5, "silu": 5, "sigmoid": 5,
			"rope": 3 * 2, "rms_norm": 5*6 + 2},
		buffers: map[string]string{"layers.0.self_attn.k_cache": "bf16[1,1,256,32]",
			"layers.1.self_attn.k_cache": "bf16[1,1,31,32]"}, caches: 10,
	},
}

// TestTinyModules checks what is built of every family: what is left out, operations, state, and text that reads back.
func TestTinyModules(t *testing.T) {
	for _, test := range tinies {
		t.Run(test.name, func(t *testing.T) {
			c := openCheckpoint(t, chatCheckpoint(test.name))
			require.Equal(t, test.family, c.Family())
			require.Equal(t, test.skipped, c.Skipped())
			require.Equal(t, test.sensitive, c.Sensitive())
			for _, s := range c.Sources() {
				require.NotContains(t, s.Name, "visi")
			}
			m := build(t, c, Options{MaxSeqLen: 256})
			require.NoError(t, ir.Verify(m))
			counts := map[string]int{}
			m.Entry.Body.Walk(func(op *ir.Op) { counts[op.Def.Name]++ })
			for name, n := range test.counts {
				require.Equal(t, n, counts[name], name)
			}
			caches := 0
			for _, b := range m.Buffers {
				if strings.HasSuffix(b.Name, "_cache") {
					caches++
				}
			}
			require.Equal(t, test.caches, caches)
			for name, want := range test.buffers {
				i := slices.IndexFunc(m.Buffers, func(b *ir.Buffer) bool { return b.Name == name })
				require.GreaterOrEqual(t, i, 0, name)
				require.Equal(t, want, m.Buffers[i].Type.String())
			}
			written := text(t, m)
			parsed, err := ir.Parse(written)
			require.NoError(t, err)
			require.Equal(t, written, text(t, parsed))
		})
	}
}

// TestTinyFidelity is TestFidelity for every family: logits of transformers in float32, after a short prompt and one
// that is longer than chunks and windows, and after more tokens one by one.
func TestTinyFidelity(t *testing.T) {
	for _, test := range tinies {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			recorded, err := safetensors.Open("testdata/" + test.name + ".logits.safetensors")
			require.NoError(t, err)
			defer recorded.Close()
			c := openCheckpoint(t, chatCheckpoint(test.name))
			for _, chunk := range []int{7, 16} {
				requireRecorded(t, recorded,
					newSession(t, build(t, c, Options{MaxSeqLen: 256, MaxPrefillChunk: chunk, NoSampler: true})), chunk)
			}
		})
	}
}

// requireRecorded runs the recorded prompts in chunks and compares tokens and logits.
func requireRecorded(t *testing.T, recorded *safetensors.File, s *session, chunk int) {
	t.Helper()
	const most = 5e-5
	for _, prompt := range []string{"prompt1", "prompt3"} {
		ids, greedy := readInts(t, recorded, prompt+".ids"), readInts(t, recorded, prompt+".greedy_ids")
		logits := s.feed(ids, 0, chunk)
		logits = append(logits, s.feed(greedy[:len(greedy)-1], len(ids), 1)...)
		for i, id := range greedy {
			require.EqualValues(t, id, argmax(logits[len(ids)-1+i]), "greedy token %d", i)
		}
		tensor, _ := recorded.Tensor(prompt + ".logits")
		want, got, mean := readFloats(t, tensor), append(slices.Clone(logits[len(ids)-1]), logits[len(logits)-1]...),
			0.0
		require.Len(t, got, len(want))
		for i, w := range want {
			mean += math.Abs(float64(w-got[i])) / float64(len(want))
		}
		bf16, err := strconv.ParseFloat(recorded.Metadata()[prompt+".bf16_error"], 64)
		require.NoError(t, err)
		require.Less(t, mean, min(most, bf16))
	}
}

// TestFP8: a checkpoint in blocks of 8-bit floating point has the values that an independent program computed, and the
// logits of a checkpoint that holds them in float32.
func TestFP8(t *testing.T) {
	const name = "qwen3moe-tiny-fp8" // made by testdata/fp8.py
	dir := chatCheckpoint(name)
	p, err := os.ReadFile(filepath.Join(dir, "sha256.json"))
	require.NoError(t, err)
	var sums map[string]string
	require.NoError(t, json.Unmarshal(p, &sums))
	c := openCheckpoint(t, dir)
	m := build(t, c, Options{MaxSeqLen: 64, NoSampler: true})

	files, err := safetensors.OpenCheckpoint(dir)
	require.NoError(t, err)
	defer files.Close()
	var list []builder.Tensor
	for _, tensor := range files.Tensors() {
		list = append(list, tensorOf(tensor, ""))
	}
	config, err := fp8.ParseConfig("", c.Model.Quantization)
	require.NoError(t, err)
	folded, parts, err := fp8.Fold(config, list)
	require.NoError(t, err)
	require.Len(t, parts, len(sums))
	values := map[string][]byte{}
	for _, tensor := range folded {
		if want, ok := sums[tensor.Name]; ok {
			bytes, err := ir.ReadData(tensor.Data)
			require.NoError(t, err)
			require.Equal(t, want, fmt.Sprintf("%x", sha256.Sum256(bytes)), tensor.Name)
			values[tensor.Name] = bytes
		}
	}
	require.Len(t, values, len(sums))

	plain := rewrite(t, dir, func(list []stored) []stored {
		list = slices.DeleteFunc(list, func(s stored) bool { return strings.HasSuffix(s.name, "_scale_inv") })
		for i, s := range list {
			if bytes, ok := values[s.name]; ok {
				list[i].dtype, list[i].data = safetensors.F32, bytes
			}
		}
		return list
	}, func(root map[string]any) { delete(root, "quantization_config") })
	ids := someTokens(19, 1)
	want := newSession(t, build(t, openCheckpoint(t, plain), Options{MaxSeqLen: 64, NoSampler: true})).feed(ids, 0, 7)
	require.Equal(t, want, newSession(t, m).feed(ids, 0, 7))

	// A tensor of either kind that is read is a source of the module.
	seen := map[string]bool{}
	for _, s := range c.Sources() {
		seen[s.Name] = true
		require.NotEmpty(t, s.Provenance(), s.Name)
	}
	for name := range sums {
		require.True(t, seen[name] && seen[name+"_scale_inv"], name)
	}
}

// TestTinyGGUF: GGUF files as llama.cpp's converter writes them give the logits of the checkpoint they were made of,
// bit for bit where the matrices are the same numbers, and near ones where they are quantized.
func TestTinyGGUF(t *testing.T) {
	for _, test := range tinies {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ids := someTokens(40, 1)
			run := func(c *Checkpoint) [][]float32 {
				return newSession(t, build(t, c, Options{MaxSeqLen: 64, NoSampler: true})).feed(ids, 0, 7)
			}
			checkpoint := openCheckpoint(t, chatCheckpoint(test.name))
			want := run(checkpoint)
			for _, kind := range []string{"BF16", "F32", "Q8_0"} {
				c := openGGUF(t, writeGGUF(t, test.name, kind), false)
				family := strings.TrimSuffix(test.family, "unified") // whose files are those of a Gemma 4
				require.Equal(t, family, c.Family())
				require.Equal(t, checkpoint.Model.Config.Depth(), c.Model.Config.Depth())
				got := run(c)
				if kind != "Q8_0" {
					require.Equal(t, want, got, kind)
					continue
				}
				difference, size := 0.0, 0.0
				for i := range want {
					for j, w := range want[i] {
						difference += math.Abs(float64(w - got[i][j]))
						size += math.Abs(float64(w))
					}
				}
				require.Less(t, difference, 0.25*size) // some tokens go to other experts
				require.NotZero(t, difference)
			}
		})
	}
}
