package loaders

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// mxCheckpoints are made by testdata/mx.py of qwen3-tiny.
var mxCheckpoints = []string{"qwen3-tiny-mlx", "qwen3-tiny-compressed-tensors-mxfp4",
	"qwen3-tiny-compressed-tensors-nvfp4"}

// readSums reads what testdata/mx.py says of the values of a checkpoint's matrices.
func readSums(t *testing.T, dir string) (sums map[string]string) {
	t.Helper()
	p, err := os.ReadFile(filepath.Join(dir, "sha256.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(p, &sums))
	return sums
}

// quantizedValues computes the values of the quantized matrices of a module by the reference semantics, by the matrix's
// name.
func quantizedValues(t *testing.T, m *ir.Module) map[string]*eval.Tensor {
	t.Helper()
	values := map[string]*eval.Tensor{}
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name != "quantized" {
			return
		}
		f := &ir.Func{Name: "values", Body: &ir.Region{}}
		var inputs []eval.Value
		var operands []any
		for _, part := range []string{"packed", "scales", "biases"} {
			if v := op.Input(part); v != nil {
				operands = append(operands, f.NewParam(part, v.Type))
				tensor, err := eval.DecodeConstant(v.Constant)
				require.NoError(t, err)
				inputs = append(inputs, eval.Value{Tensor: tensor})
			}
		}
		form, ok := ir.FormOf(op)
		require.True(t, ok)
		d := ir.F32
		module := &ir.Module{Entry: f}
		require.NoError(t, ir.Build(func() {
			b := &ir.Builder{Module: module, Region: f.Body}
			v := b.Value("dequantize", &ir.DequantizeAttrs{GroupSize: form.Group, Bits: form.Bits,
				Mode: form.Mode.String(), Dtype: &d}, operands...)
			f.Body.Results, f.Outputs = []*ir.Value{v}, []ir.Type{v.Type}
		}))
		machine, err := eval.NewMachine(module, eval.FP32, nil)
		require.NoError(t, err)
		out, err := machine.Run(inputs)
		require.NoError(t, err)
		values["model."+strings.TrimSuffix(op.Input("packed").Constant.Name, ".packed")] = out[0].Tensor
	})
	return values
}

// TestMX: checkpoints in MX formats, mlx-lm's with a module in each mode among them, have the values that an
// independent program computed, and the logits of a checkpoint that holds these in float32.
func TestMX(t *testing.T) {
	for _, name := range mxCheckpoints {
		t.Run(name, func(t *testing.T) {
			dir := chatCheckpoint(name)
			sums := readSums(t, dir)
			c := openCheckpoint(t, dir)
			m := build(t, c, Options{MaxSeqLen: 64, NoSampler: true})
			values := quantizedValues(t, m)
			require.Len(t, values, len(sums))
			for name, want := range sums {
				require.Contains(t, values, name)
				require.Equal(t, want, fmt.Sprintf("%x", sha256.Sum256(values[name].Encode())), name)
			}
			plain := rewrite(t, chatCheckpoint("qwen3-tiny"), func(list []stored) []stored {
				for i, s := range list {
					if v := values[s.name]; v != nil {
						list[i].dtype, list[i].data = safetensors.F32, v.Encode()
					}
				}
				return list
			}, nil)
			ids := someTokens(19, 1)
			want := newSession(t, build(t, openCheckpoint(t, plain), Options{MaxSeqLen: 64, NoSampler: true})).feed(ids,
				0, 7)
			got := newSession(t, m).feed(ids, 0, 7)
			largest := 0.0
			for i := range want {
				for j, v := range want[i] {
					largest = max(largest, math.Abs(float64(v)-float64(got[i][j])))
				}
			}
			require.Less(t, largest, 1e-4)
			seen := map[string]bool{}
			for _, s := range c.Sources() {
				seen[s.Name] = true
			}
			require.Len(t, seen, len(openFiles(t, dir).Tensors()), "every tensor is a source of the module")
		})
	}
}

func openFiles(t *testing.T, dir string) *safetensors.Checkpoint {
	t.Helper()
	files, err := safetensors.OpenCheckpoint(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, files.Close()) })
	return files
}

// TestMXOfGPTOSS: blocks and scales in gpt-oss's layout are the same weights.
func TestMXOfGPTOSS(t *testing.T) {
	dir := rewrite(t, chatCheckpoint("qwen3-tiny-compressed-tensors-mxfp4"), func(list []stored) []stored {
		for i, s := range list {
			if name, ok := strings.CutSuffix(s.name, "_packed"); ok {
				list[i].name, list[i].shape = name+"_blocks", []int{s.shape[0], s.shape[1] / 16, 16}
			} else if name, ok := strings.CutSuffix(s.name, "_scale"); ok {
				list[i].name = name + "_scales"
			}
		}
		return list
	}, func(root map[string]any) {
		root["quantization_config"] = map[string]any{"quant_method": "mxfp4",
			"modules_to_not_convert": []string{"lm_head"}}
	})
	sums := readSums(t, chatCheckpoint("qwen3-tiny-compressed-tensors-mxfp4"))
	values := quantizedValues(t, build(t, openCheckpoint(t, dir), Options{MaxSeqLen: 64, NoSampler: true}))
	require.Len(t, values, len(sums))
	for name, want := range sums {
		require.Equal(t, want, fmt.Sprintf("%x", sha256.Sum256(values[name].Encode())), name)
	}
}

// TestMXRefuses: what does not fit, or cannot be said exactly, is refused by name.
func TestMXRefuses(t *testing.T) {
	const scale = "model.layers.1.self_attn.k_proj.weight_scale"
	change := func(name string, f func(s *stored)) func([]stored) []stored {
		return func(list []stored) []stored {
			for i := range list {
				if list[i].name == name {
					f(&list[i])
				}
			}
			return list
		}
	}
	global := func(bytes string) func([]stored) []stored {
		return change("model.layers.1.self_attn.k_proj.weight_global_scale", func(s *stored) { s.data = []byte(bytes) })
	}
	for name, c := range map[string]struct {
		checkpoint string
		tensors    func([]stored) []stored
		config     func(map[string]any)
		want       string
	}{
		"a global scale of 3": {mxCheckpoints[2], global("\x00\x00\x40\x40"), nil,
			"k_proj.weight_global_scale: the global scale 3 is no power of two, so that the scales of groups cannot take it; the nodes that multiply have no global scale"},
		"a global scale out of range": {mxCheckpoints[2], global("\x00\x00\x80\x4b"), nil,
			"the global scale 1.6777216e+07 would take scales of groups out of the range of e4m3"},
		"a global scale of NaN": {mxCheckpoints[2], global("\x00\x00\xc0\x7f"), nil,
			"the global scale NaN is no power of two"},
		"scales of another shape": {mxCheckpoints[1],
			change(scale, func(s *stored) { s.shape, s.data = []int{128, 2}, s.data[:256] }), nil,
			scale + ": expected a byte for each group of 32, [128,4], found U8 [128,2]"},
		"no scales": {mxCheckpoints[1], change(scale, func(s *stored) { s.name = "x" }), nil,
			scale + ": expected a byte for each group of 32, [128,4], found none"},
		"another group": {mxCheckpoints[1], nil, func(root map[string]any) {
			root["quantization_config"].(map[string]any)["config_groups"].(map[string]any)["group_0"].(map[string]any)["weights"].(map[string]any)["group_size"] = 64
		}, "quantization_config.config_groups.weights.group_size: expected 32, found 64"},
		"two formats": {mxCheckpoints[1], nil, func(root map[string]any) {
			root["quantization_config"].(map[string]any)["format"] = "int-quantized"
		}, `quantization_config.format: expected one format for all matrices, found ["int-quantized","mxfp4-pack-quantized"]`},
		"mlx with biases": {mxCheckpoints[0], func(list []stored) []stored {
			return append(list, stored{"model.layers.0.mlp.up_proj.biases", safetensors.BF16,
				[]int{256, 4}, make([]byte, 2048)})
		}, nil, "model.layers.0.mlp.up_proj.biases: expected no biases (quantization has mode mxfp4), found BF16 [256,4]"},
		"mlx with scales in bf16": {mxCheckpoints[0], change("model.layers.0.mlp.up_proj.scales", func(s *stored) {
			s.dtype, s.data = safetensors.BF16, make([]byte, 2*len(s.data))
		}), nil, "model.layers.0.mlp.up_proj.scales: expected U8 [..., rows, groups] (quantization has mode mxfp4), found BF16 [256,4]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(rewrite(t, chatCheckpoint(c.checkpoint), c.tensors, c.config))
			require.ErrorContains(t, err, c.want)
		})
	}
}
