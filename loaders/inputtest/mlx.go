package inputtest

import (
	"encoding/binary"
	"maps"
	"strings"

	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Quantizer quantizes a matrix or a stack of them row by row.
type Quantizer func(values []float32, rows, cols, bits, group int) (packed []uint32, scales,
	biases []float32, err error)

// WriteMLX writes the checkpoint as mlx-lm's convert does with quantization (mlx_lm/models/qwen3_5_moe.py and
// gemma4_text.py, sanitize and quant_predicate): matrices with the given bits in groups of 64, routers and gates of
// shared experts with 8; experts stacked under switch_mlp, gate and up apart; convolutions as [C,taps,1]; norms of Qwen
// as what they multiply by, here in float32, which mlx-lm would round. It writes no tied head. It is long because it is
// one sequence of steps, each of which needs what those before it made.
func (s *Source) WriteMLX(dir string, bits int, quantize Quantizer) error {
	const group = 64
	section := map[string]any{"bits": bits, "group_size": group, "mode": "affine"}
	tensors := map[string]*Tensor{}
	for name, t := range s.Tensors {
		base, isExpert := strings.CutSuffix(name, ".experts.gate_up_proj")
		switch {
		case isExpert:
			half := t.Shape[1] / 2
			tensors[base+".switch_mlp.gate_proj.weight"], tensors[base+".switch_mlp.up_proj.weight"] = t.rows(0, half),
				t.rows(half, half)
		case strings.HasSuffix(name, ".experts.down_proj"):
			tensors[strings.TrimSuffix(name, ".experts.down_proj")+".switch_mlp.down_proj.weight"] = t
		case strings.HasSuffix(name, "conv1d.weight"):
			tensors[name] = &Tensor{Shape: []int{t.Shape[0], t.Shape[2], 1}, Values: t.Values, BF16: t.BF16}
		case s.Arch == "qwen35moe" && strings.HasSuffix(name, "norm.weight") &&
			!strings.HasSuffix(name, "linear_attn.norm.weight"):
			tensors[name] = t.plus(1)
		default:
			tensors[name] = t
		}
	}
	var entries []safetensors.Entry
	for name, t := range tensors {
		full := "language_model.model." + name
		if name == "lm_head.weight" {
			full = "language_model." + name
		}
		cols := t.Shape[len(t.Shape)-1]
		if len(t.Shape) < 2 || strings.HasSuffix(name, "conv1d.weight") || cols%group != 0 {
			entries = append(entries, t.entry(full))
			continue
		}
		module, b := strings.TrimSuffix(full, ".weight"), bits
		if strings.HasSuffix(module, "mlp.gate") || strings.HasSuffix(module, "shared_expert_gate") {
			b = 8
			section[module] = map[string]any{"group_size": group, "bits": b}
		}
		packed, scales, biases, err := quantize(t.Values, len(t.Values)/cols, cols, b, group)
		if err != nil {
			return err
		}
		leading := append([]int{}, t.Shape[:len(t.Shape)-1]...)
		words := make([]byte, 0, 4*len(packed))
		for _, w := range packed {
			words = binary.LittleEndian.AppendUint32(words, w)
		}
		params := func(suffix string, values []float32) safetensors.Entry {
			p := make([]byte, 2*len(values))
			numeric.F32SliceToBF16(p, values)
			return safetensors.Entry{Name: module + suffix, DType: safetensors.BF16,
				Shape: append(append([]int{}, leading...), cols/group), Data: safetensors.Bytes(p)}
		}
		entries = append(entries, safetensors.Entry{Name: full, DType: safetensors.U32,
			Shape: append(append([]int{}, leading...), cols*b/32), Data: safetensors.Bytes(words)},
			params(".scales", scales), params(".biases", biases))
	}
	config := maps.Clone(s.Config)
	config["quantization"], config["quantization_config"] = section, section
	return s.writeDir(dir, config, entries, map[string]string{"format": "mlx"})
}
