package qwen

import (
	"fmt"
	"strings"

	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// GGUF are the names of architectures of GGUF files that FromGGUF reads. They are also names of families.
var GGUF = []string{"qwen35moe", "qwen35", "qwen3next", "qwen3moe", "qwen3"}

// ggufNames are llama.cpp's names (gguf-py/gguf/constants.py, MODEL_ARCH.QWEN35MOE and its neighbours).
var ggufNames = gguf.Names{
	"token_embd.weight":              "embed_tokens.weight",
	"output_norm.weight":             "norm.weight",
	"output.weight":                  builder.Head,
	"blk.attn_norm.weight":           "layers.input_layernorm.weight",
	"blk.post_attention_norm.weight": "layers.post_attention_layernorm.weight",
	"blk.ffn_norm.weight":            "layers.post_attention_layernorm.weight",

	"blk.attn_q.weight":      "layers.self_attn.q_proj.weight",
	"blk.attn_k.weight":      "layers.self_attn.k_proj.weight",
	"blk.attn_v.weight":      "layers.self_attn.v_proj.weight",
	"blk.attn_output.weight": "layers.self_attn.o_proj.weight",
	"blk.attn_q_norm.weight": "layers.self_attn.q_norm.weight",
	"blk.attn_k_norm.weight": "layers.self_attn.k_norm.weight",

	"blk.attn_qkv.weight":   "layers.linear_attn.in_proj_qkv.weight",
	"blk.attn_gate.weight":  "layers.linear_attn.in_proj_z.weight",
	"blk.ssm_alpha.weight":  "layers.linear_attn.in_proj_a.weight",
	"blk.ssm_beta.weight":   "layers.linear_attn.in_proj_b.weight",
	"blk.ssm_ba.weight":     "layers.linear_attn.in_proj_ba.weight",
	"blk.ssm_in.weight":     "layers.linear_attn.in_proj_qkvz.weight",
	"blk.ssm_conv1d.weight": "layers.linear_attn.conv1d.weight",
	"blk.ssm_dt.bias":       "layers.linear_attn.dt_bias",
	"blk.ssm_a":             "layers.linear_attn." + Rate,
	"blk.ssm_norm.weight":   "layers.linear_attn.norm.weight",
	"blk.ssm_out.weight":    "layers.linear_attn.out_proj.weight",

	"blk.ffn_gate.weight": "layers.mlp.gate_proj.weight",
	"blk.ffn_up.weight":   "layers.mlp.up_proj.weight",
	"blk.ffn_down.weight": "layers.mlp.down_proj.weight",

	"blk.ffn_gate_inp.weight":       "layers.mlp.gate.weight",
	"blk.ffn_gate_exps.weight":      "layers.mlp.experts.gate_proj.weight",
	"blk.ffn_up_exps.weight":        "layers.mlp.experts.up_proj.weight",
	"blk.ffn_down_exps.weight":      "layers.mlp.experts.down_proj.weight",
	"blk.ffn_gate_inp_shexp.weight": "layers.mlp.shared_expert_gate.weight",
	"blk.ffn_gate_shexp.weight":     "layers.mlp.shared_expert.gate_proj.weight",
	"blk.ffn_up_shexp.weight":       "layers.mlp.shared_expert.up_proj.weight",
	"blk.ffn_down_shexp.weight":     "layers.mlp.shared_expert.down_proj.weight",

	// Of layers that draft tokens, which come last.
	"blk.nextn.eh_proj.weight":          "layers." + nextN + "fc.weight",
	"blk.nextn.enorm.weight":            "layers." + nextN + "pre_fc_norm_embedding.weight",
	"blk.nextn.hnorm.weight":            "layers." + nextN + "pre_fc_norm_hidden.weight",
	"blk.nextn.shared_head_norm.weight": "layers." + nextN + "norm.weight",
}

// nextN marks, after the number of a layer that drafts tokens, what transformers has beside that layer.
const nextN = "nextn."

// draftName returns the name of a tensor of a layer that drafts tokens: "mtp." and the layer's number among these.
func draftName(as string, layer, layers int) string {
	inner := strings.TrimPrefix(as, fmt.Sprintf("layers.%d.", layer))
	if beside, ok := strings.CutPrefix(inner, nextN); ok && layer == layers {
		return draftPrefix + beside
	}
	return fmt.Sprintf("%slayers.%d.%s", draftPrefix, layer-layers, inner)
}

// maxHeads bounds the heads of a file, so that what is made for each stays small.
const maxHeads = 1 << 12

// FromGGUF reads the model from a GGUF file: its configuration with the keys of config.json, and its tensors. It undoes
// what llama.cpp's converter does to them (conversion/qwen.py), with two exceptions: norms stay stored as factors, and
// A_log stays -exp(A_log); see [Rate] and [builder.Tensors].Multipliers.
func FromGGUF(m *gguf.Model, superblocks bool) (config map[string]any, tensors []builder.Tensor, err error) {
	g := reader{m.Keys(), m.Keys().Text("general.architecture")}
	layers := g.Layers(g.arch) - g.IntOr(g.key("nextn_predict_layers"), 0)
	if layers < 1 {
		g.Fault(g.key("nextn_predict_layers"), "fewer layers than block_count has")
		layers = 1
	}
	family, _ := huggingface.FamilyNamed(g.arch)
	_, untied := m.Tensor("output.weight")
	config = map[string]any{
		"architectures": family.Classes[:1], "model_type": family.Types[0],
		"vocab_size": g.Vocabulary(), "hidden_size": g.Int(g.key("embedding_length"), 1),
		"num_hidden_layers": layers, "tie_word_embeddings": !untied,
		"rms_norm_eps":            g.Float(g.key("attention.layer_norm_rms_epsilon")),
		"max_position_embeddings": g.Int(g.key("context_length"), 1),
	}
	g.attention(config, layers)
	u := undo{superblocks: superblocks}
	if g.Has(g.key("ssm.state_size")) {
		u = g.deltaNet(config, layers)
		u.superblocks = superblocks
	}
	if g.Has(g.key("expert_count")) {
		g.experts(config)
	} else {
		config["intermediate_size"] = g.Int(g.key("feed_forward_length"), 1)
	}
	if err := g.Err(); err != nil {
		return nil, nil, err
	}
	for _, t := range m.Tensors() {
		as, layer := ggufNames.Find(t.Name)
		b := u.tensor(t, as)
		if layer >= layers {
			b.As = draftName(as, layer, layers)
		}
		tensors = append(tensors, b)
	}
	return config, tensors, nil
}

// reader reads the metadata of an architecture.
type reader struct {
	*gguf.Keys
	arch string
}

func (g reader) key(name string) string { return g.arch + "." + name }

func (g reader) attention(config map[string]any, layers int) {
	head := g.Int(g.key("attention.key_length"), 1)
	if g.IntOr(g.key("attention.value_length"), head) != head {
		g.Fault(g.key("attention.value_length"), "attention.key_length")
	}
	config["num_attention_heads"], config["head_dim"] = g.Int(g.key("attention.head_count"), 1), head
	config["num_key_value_heads"] = g.keyValueHeads(layers)
	rope := map[string]any{"rope_type": "default", "rope_theta": g.Float(g.key("rope.freq_base")),
		"partial_rotary_factor": float64(g.IntOr(g.key("rope.dimension_count"), head)) / float64(head)}
	if scaling := g.Text(g.key("rope.scaling.type")); scaling != "" && scaling != "none" {
		rope["rope_type"], rope["factor"] = scaling, g.Float(g.key("rope.scaling.factor"))
		if scaling == "yarn" {
			rope["original_max_position_embeddings"] = g.Int(g.key("rope.scaling.original_context_length"), 1)
		}
	}
	config["rope_parameters"] = rope
}

func (g reader) experts(config map[string]any) {
	config["num_experts"] = g.Int(g.key("expert_count"), 1)
	config["num_experts_per_tok"] = g.Int(g.key("expert_used_count"), 1)
	config["moe_intermediate_size"], config["norm_topk_prob"] = g.Int(g.key("expert_feed_forward_length"), 1), true
	if g.Has(g.key("expert_shared_feed_forward_length")) {
		config["shared_expert_intermediate_size"] = g.Int(g.key("expert_shared_feed_forward_length"), 1)
	}
}

// deltaNet reads what delta nets need, and tells what the converter has done to their tensors: heads of values are in
// the authors' order in files of the first family that had them.
func (g reader) deltaNet(config map[string]any, layers int) undo {
	keyHeads, valueHeads := g.Int(g.key("ssm.group_count"), 1), g.Int(g.key("ssm.time_step_rank"), 1)
	keyDim, inner := g.Int(g.key("ssm.state_size"), 1), g.Int(g.key("ssm.inner_size"), 1)
	if valueHeads > maxHeads || valueHeads%keyHeads != 0 || inner%valueHeads != 0 {
		g.Fault(g.key("ssm.time_step_rank"), "a multiple of ssm.group_count that divides ssm.inner_size")
		return undo{}
	}
	config["layer_types"] = g.layerTypes(layers)
	config["linear_num_key_heads"], config["linear_num_value_heads"] = keyHeads, valueHeads
	config["linear_key_head_dim"], config["linear_value_head_dim"] = keyDim, inner/valueHeads
	config["linear_conv_kernel_dim"] = g.Int(g.key("ssm.conv_kernel"), 1)
	if g.arch == "qwen3next" {
		return undo{}
	}
	return undo{heads: groupedHeads(keyHeads, valueHeads), qkRows: 2 * keyHeads * keyDim}
}

// layerTypes reads which layers are delta nets: a flag for each, or the interval of the others.
func (g reader) layerTypes(layers int) []string {
	key := g.key("attention.recurrent_layers")
	flags := g.Bools(key)
	if flags != nil && len(flags) < layers {
		g.Fault(key, fmt.Sprintf("a flag for each of %d layers", layers))
		return nil
	}
	interval := max(1, g.IntOr(g.key("full_attention_interval"), 4))
	types := make([]string, layers)
	for i := range types {
		types[i] = huggingface.FullAttention.String()
		if flags != nil && flags[i] || flags == nil && (i+1)%interval != 0 {
			types[i] = huggingface.LinearAttention.String()
		}
	}
	return types
}

// keyValueHeads reads the heads of keys of attention, of which a file may have a list with 0 for delta nets.
func (g reader) keyValueHeads(layers int) int {
	key := g.key("attention.head_count_kv")
	heads := int64(0)
	for _, n := range g.Ints(key, layers) {
		if n != 0 && heads != 0 && n != heads {
			g.Fault(key, "one number for all layers")
		}
		heads = max(heads, n)
	}
	if heads < 1 || heads > maxHeads {
		g.Fault(key, fmt.Sprintf("an integer from 1 to %d", maxHeads))
	}
	return int(heads)
}

// groupedHeads returns the order that brings heads of values back to the authors', in which those of one key head are
// neighbours. llama.cpp has the first of every key head, then the second of every one, and so on.
func groupedHeads(keyHeads, valueHeads int) []int {
	order := make([]int, 0, valueHeads)
	for g := range keyHeads {
		for j := range valueHeads / keyHeads {
			order = append(order, j*keyHeads+g)
		}
	}
	return order
}

// undo brings tensors back to the order that they had before llama.cpp's converter.
type undo struct {
	heads       []int // what groupedHeads returns; nil where the file has the authors' order
	qkRows      int   // the number of rows of in_proj_qkv, and of channels of the convolution, before those of values
	superblocks bool
}

func (u undo) tensor(t *gguf.Tensor, as string) builder.Tensor {
	b := t.Tensor(as, u.superblocks)
	rows := t.Shape[0]
	_, name, _ := strings.Cut(strings.TrimPrefix(as, "layers."), ".")
	switch {
	case name == "linear_attn.conv1d.weight" && len(t.Shape) == 2:
		b = b.Reshaped(rows, t.Shape[1], 1)
	case name == "mlp.shared_expert_gate.weight" && len(t.Shape) == 1:
		b = b.Reshaped(1, rows)
	}
	if u.heads == nil {
		return b
	}
	switch name {
	case "linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight":
		if rows -= int64(u.qkRows); rows > 0 && rows%int64(len(u.heads)) == 0 {
			b = b.PermuteRows(u.qkRows, u.heads)
		}
	case "linear_attn.in_proj_z.weight", "linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight",
		"linear_attn.dt_bias", "linear_attn." + Rate:
		if rows%int64(len(u.heads)) == 0 {
			b = b.PermuteRows(0, u.heads)
		}
	case "linear_attn.out_proj.weight":
		if !b.CanPermuteColumns(len(u.heads)) { // heads that share groups
			b.Quantized, b.Data = nil, t.Floats()
		}
		if b.CanPermuteColumns(len(u.heads)) {
			b = b.PermuteColumns(u.heads)
		}
	}
	return b
}
