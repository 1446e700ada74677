package qwen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// bundleNames are the names of ExecuTorch's model definition after that of the layer
// (examples/models/qwen3_5_moe/model.py, _HF_KEY_MAP) and of transformers.
var bundleNames = map[string]string{
	"ln_1.weight":                        "input_layernorm.weight",
	"ln_2.weight":                        "post_attention_layernorm.weight",
	"attn.o_proj.weight":                 "self_attn.o_proj.weight",
	"attn.q_norm.weight":                 "self_attn.q_norm.weight",
	"attn.k_norm.weight":                 "self_attn.k_norm.weight",
	"attn.conv1d.weight":                 "linear_attn.conv1d.weight",
	"attn.dt_bias":                       "linear_attn.dt_bias",
	"attn.A_log":                         "linear_attn.A_log",
	"attn.norm.weight":                   "linear_attn.norm.weight",
	"attn.out_proj.weight":               "linear_attn.out_proj.weight",
	"mlp.shared_expert.down_proj.weight": "mlp.shared_expert.down_proj.weight",
}

// bundleBuffers are the last parts of the names of tensors in a bundle that are not weights, since a program computes
// or stores them: states, positions, frequencies, and 1+w of norms in bf16.
var bundleBuffers = []string{"_rms_weight", "_qk_rms_weight", "inv_freq", "cache_positions",
	"conv_state", "recurrent_state"}

var bundleExpert = regexp.MustCompile(`^mlp\.experts\.(gate|up|down)_proj\.experts\.(\d+)\.weight$`)

// FromBundle gives the tensors of a bundle that ExecuTorch's quantize_and_save wrote for MLX the names of
// transformers: rows of projections that it has fused are taken apart.
func FromBundle(config huggingface.Config, list []builder.Tensor) []builder.Tensor {
	c, ok := config.(*huggingface.Qwen)
	if !ok {
		return list
	}
	heads := func(n, dim int) int64 { return int64(n) * int64(dim) }
	fused := map[string][]bundlePart{
		"attn.qkv_proj.weight": {{"self_attn.q_proj.weight", 2 * heads(c.Heads, c.HeadDim)},
			{"self_attn.k_proj.weight", heads(c.KVHeads, c.HeadDim)},
			{"self_attn.v_proj.weight", heads(c.KVHeads, c.HeadDim)}},
		"attn.in_proj.weight": {{"linear_attn.in_proj_qkv.weight", int64(c.ConvChannels())},
			{"linear_attn.in_proj_z.weight", heads(c.LinearValueHeads, c.LinearValueHeadDim)},
			{"linear_attn.in_proj_b.weight", int64(c.LinearValueHeads)},
			{"linear_attn.in_proj_a.weight", int64(c.LinearValueHeads)}},
		"mlp.shared_expert.gate_up_proj.weight": {{"mlp.shared_expert.gate_proj.weight",
			int64(c.SharedExpertIntermediate)},
			{"mlp.shared_expert.up_proj.weight", int64(c.SharedExpertIntermediate)}},
	}
	var out []builder.Tensor
	for _, t := range list {
		if slices.Contains(bundleBuffers, t.Name[strings.LastIndexByte(t.Name, '.')+1:]) {
			continue
		}
		number, inner, ok := strings.Cut(strings.TrimPrefix(t.Name, "layers."), ".")
		if !ok || !strings.HasPrefix(t.Name, "layers.") {
			out = append(out, t)
			continue
		}
		name := func(inner string) string { return fmt.Sprintf("layers.%s.%s", number, inner) }
		if parts := fused[inner]; parts != nil {
			out = append(out, split(t, parts, name)...)
			continue
		}
		if m := bundleExpert.FindStringSubmatch(inner); m != nil {
			t.As = name(fmt.Sprintf("mlp.experts.%s.%s_proj.weight", m[2], m[1]))
		} else if as := bundleNames[inner]; as != "" {
			t.As = name(as)
		}
		out = append(out, t)
	}
	return out
}

// bundlePart is a projection of a fused one, and its rows.
type bundlePart struct {
	name string
	rows int64
}

// split takes a fused projection apart. One of another shape stays whole, for the builder to refuse.
func split(t builder.Tensor, parts []bundlePart, name func(string) string) []builder.Tensor {
	all := int64(0)
	for _, p := range parts {
		all += p.rows
	}
	if len(t.Shape) != 2 || t.Shape[0] != all {
		return []builder.Tensor{t}
	}
	var out []builder.Tensor
	start := int64(0)
	for _, p := range parts {
		part := t.Rows(start, p.rows)
		part.As = name(p.name)
		out, start = append(out, part), start+p.rows
	}
	return out
}
