package inputtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// WritePrequantized writes the checkpoint as ExecuTorch's quantize_and_save does for MLX (examples/models/qwen3_5_moe,
// --backend mlx, and gemma4_31b): matrices by asymmetric min/max of 4 bits in groups of 32, the embedding by symmetric
// min/max of 8 bits with one group a row, everything else in bf16; a tied head is quantized by itself. Of Qwen it fuses
// projections, keeps experts apart, and adds states and 1+w of norms, which readers do not need.
//
// It gives the checkpoint with the values that matrices have then: scale·code + bias with the bias -scale·zero in bf16,
// as ExecuTorch's exporter stores it.
func (s *Source) WritePrequantized(dir string) (*Source, error) {
	b := &bundle{metadata: map[string]string{}}
	tensors := maps.Clone(s.Tensors)
	if tensors["lm_head.weight"] == nil {
		tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
	}
	rounded := *s
	rounded.Tensors = map[string]*Tensor{}
	for name, t := range tensors {
		if rounded.Tensors[name] = t; strings.Contains(name, ".experts.") {
			cols := t.Shape[2]
			matrix := (&bundle{metadata: map[string]string{}}).int4(name,
				&Tensor{Shape: []int{len(t.Values) / cols, cols}, Values: t.Values})
			rounded.Tensors[name] = &Tensor{Shape: t.Shape, Values: matrix.Values}
		} else if q := (&bundle{metadata: map[string]string{}}).add(name, t); q != nil {
			rounded.Tensors[name] = q
		}
	}
	if s.Arch == "qwen35moe" {
		b.qwen(s.config.(*huggingface.Qwen), tensors)
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		b.add(name, tensors[name])
	}
	list, err := json.Marshal(b.names)
	if err != nil {
		return nil, err
	}
	b.metadata["tensor_names"] = string(list)
	return &rounded, s.writeDir(dir, s.Config, b.entries, b.metadata)
}

type bundle struct {
	names    []string
	metadata map[string]string
	entries  []safetensors.Entry
}

// add quantizes a tensor as the recipe says and gives what it is then, nil for one that stays as it is.
func (b *bundle) add(name string, t *Tensor) *Tensor {
	b.names = append(b.names, name)
	switch {
	case name == "embed_tokens.weight":
		return b.int8(name, t)
	case len(t.Shape) == 2 && strings.HasSuffix(name, ".weight"):
		return b.int4(name, t)
	}
	b.metadata[name] = `{"_type": "Tensor"}`
	rounded := &Tensor{Shape: t.Shape, Values: t.Values, BF16: true}
	b.entries = append(b.entries, rounded.entry(name))
	return nil
}

func (b *bundle) part(name, part string, d safetensors.DType, shape []int, p []byte) {
	dot := strings.LastIndexByte(name, '.')
	b.entries = append(b.entries, safetensors.Entry{Name: name[:dot] + "._" + name[dot+1:] + "_" + part, DType: d,
		Shape: shape, Data: safetensors.Bytes(p)})
}

func half16(values []float32) []byte {
	p := make([]byte, 2*len(values))
	numeric.F32SliceToBF16(p, values)
	return p
}

func (b *bundle) int4(name string, t *Tensor) *Tensor {
	const group = 32
	rows, cols := t.Shape[0], t.Shape[1]
	groups := cols / group
	scales, zeros, codes := make([]float32, groups*rows), make([]float32, groups*rows), make([]byte, rows*cols/2)
	out := &Tensor{Shape: t.Shape, Values: make([]float32, len(t.Values))}
	for r := range rows {
		for g := range groups {
			v := t.Values[r*cols+g*group:][:group]
			lo, hi, _ := extremes(v)
			scale := numeric.RoundBF16((hi - lo) / 15)
			zero := float32(code(-lo, scale, 0, 0, 15))
			scales[g*rows+r], zeros[g*rows+r] = scale, zero
			for i, x := range v {
				q := code(x+scale*zero, scale, 0, 0, 15)
				at := r*cols + g*group + i
				codes[at/2] |= byte(q << (4 * (at % 2)))
				out.Values[at] = float32(float32(q)*scale) + numeric.RoundBF16(-float32(scale*zero))
			}
		}
	}
	b.metadata[name] = fmt.Sprintf(`{"_type": "Int4Tensor", "_data": {"activation_dtype": {"_type": "torch.dtype", "_data": "bfloat16"}, "block_size": [1, %d], "shape": [%d, %d]}, "_tensor_data_names": ["qdata", "scale", "zero_point"]}`, group, rows, cols)
	b.part(name, "qdata", safetensors.U8, []int{rows, cols / 2}, codes)
	b.part(name, "scale", safetensors.BF16, []int{groups, rows}, half16(scales))
	b.part(name, "zero_point", safetensors.BF16, []int{groups, rows}, half16(zeros))
	return out
}

func (b *bundle) int8(name string, t *Tensor) *Tensor {
	rows, cols := t.Shape[0], t.Shape[1]
	scales, codes := make([]float32, rows), make([]byte, rows*cols)
	out := &Tensor{Shape: t.Shape, Values: make([]float32, len(t.Values))}
	for r := range rows {
		v := t.Values[r*cols:][:cols]
		_, _, most := extremes(v)
		scales[r] = numeric.RoundBF16(float32(math.Max(float64(most)/127.5, 1e-7)))
		for i, x := range v {
			q := code(x, scales[r], 0, -128, 127)
			codes[r*cols+i] = byte(int8(q))
			out.Values[r*cols+i] = float32(q) * scales[r]
		}
	}
	b.metadata[name] = fmt.Sprintf(`{"_type": "IntxUnpackedToInt8Tensor", "_data": {"target_dtype": {"_type": "torch.dtype", "_data": "int8"}, "block_size": [1, %d], "dtype": {"_type": "torch.dtype", "_data": "bfloat16"}, "activation_quantization": null}, "_tensor_data_names": ["qdata", "scale", "zero_point"]}`, cols)
	b.part(name, "qdata", safetensors.I8, []int{rows, cols}, codes)
	b.part(name, "scale", safetensors.BF16, []int{rows, 1}, half16(scales))
	b.part(name, "zero_point", safetensors.I8, []int{rows, 1}, make([]byte, rows))
	return out
}

// qwen gives tensors the names of ExecuTorch's model, fuses projections, and adds what else its state dict has.
func (b *bundle) qwen(c *huggingface.Qwen, tensors map[string]*Tensor) {
	for i := range c.Layers {
		in := fmt.Sprintf("layers.%d.", i)
		rename := func(from, to string) {
			if t := tensors[in+from]; t != nil {
				delete(tensors, in+from)
				tensors[in+to] = t
			}
		}
		join := func(to string, from ...string) {
			if tensors[in+from[0]] == nil {
				return
			}
			all := &Tensor{Shape: []int{0, tensors[in+from[0]].Shape[1]}}
			for _, f := range from {
				all.Shape[0] += tensors[in+f].Shape[0]
				all.Values = append(all.Values, tensors[in+f].Values...)
				delete(tensors, in+f)
			}
			tensors[in+to] = all
		}
		rename("input_layernorm.weight", "ln_1.weight")
		rename("post_attention_layernorm.weight", "ln_2.weight")
		for _, n := range []string{"o_proj.weight", "q_norm.weight", "k_norm.weight"} {
			rename("self_attn."+n, "attn."+n)
		}
		for _, n := range []string{"conv1d.weight", "dt_bias", "A_log", "norm.weight", "out_proj.weight"} {
			rename("linear_attn."+n, "attn."+n)
		}
		join("attn.qkv_proj.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight")
		join("attn.in_proj.weight", "linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight",
			"linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight")
		join("mlp.shared_expert.gate_up_proj.weight", "mlp.shared_expert.gate_proj.weight",
			"mlp.shared_expert.up_proj.weight")
		gateUp, down := tensors[in+"mlp.experts.gate_up_proj"], tensors[in+"mlp.experts.down_proj"]
		delete(tensors, in+"mlp.experts.gate_up_proj")
		delete(tensors, in+"mlp.experts.down_proj")
		half := gateUp.Shape[1] / 2
		for name, t := range map[string]*Tensor{"gate": gateUp.rows(0, half), "up": gateUp.rows(half, half),
			"down": down} {
			size := t.Shape[1] * t.Shape[2]
			for e := range t.Shape[0] {
				tensors[fmt.Sprintf("%smlp.experts.%s_proj.experts.%d.weight", in, name,
					e)] = &Tensor{Shape: t.Shape[1:], Values: t.Values[e*size:][:size]}
			}
		}
		tensors[in+"ln_1._rms_weight"] = tensors[in+"ln_1.weight"].plus(1)
		tensors[in+"attn.conv_state"] = &Tensor{Shape: []int{1}, Values: []float32{0}}
		tensors[in+"attn.cache_positions"] = &Tensor{Shape: []int{1}, Values: []float32{0}}
	}
}
