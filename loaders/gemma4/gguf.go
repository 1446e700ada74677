package gemma4

import (
	"fmt"
	"maps"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// GGUF are the names of architectures of GGUF files that FromGGUF reads.
var GGUF = []string{"gemma4"}

// ggufNames are llama.cpp's names (gguf-py/gguf/constants.py, MODEL_ARCH.GEMMA4).
var ggufNames = gguf.Names{
	"token_embd.weight":  "embed_tokens.weight",
	"output_norm.weight": "norm.weight",
	"output.weight":      builder.Head,

	"blk.attn_norm.weight":           "layers.input_layernorm.weight",
	"blk.post_attention_norm.weight": "layers.post_attention_layernorm.weight",
	"blk.ffn_norm.weight":            "layers.pre_feedforward_layernorm.weight",
	"blk.post_ffw_norm.weight":       "layers.post_feedforward_layernorm.weight",
	"blk.layer_output_scale.weight":  "layers.layer_scalar",

	"blk.attn_q.weight":      "layers.self_attn.q_proj.weight",
	"blk.attn_k.weight":      "layers.self_attn.k_proj.weight",
	"blk.attn_v.weight":      "layers.self_attn.v_proj.weight",
	"blk.attn_output.weight": "layers.self_attn.o_proj.weight",
	"blk.attn_q_norm.weight": "layers.self_attn.q_norm.weight",
	"blk.attn_k_norm.weight": "layers.self_attn.k_norm.weight",

	"blk.ffn_gate.weight": "layers.mlp.gate_proj.weight",
	"blk.ffn_up.weight":   "layers.mlp.up_proj.weight",
	"blk.ffn_down.weight": "layers.mlp.down_proj.weight",

	"blk.ffn_gate_inp.weight":     "layers.router.proj.weight",
	"blk.ffn_gate_inp.scale":      "layers.router.scale",
	"blk.ffn_down_exps.scale":     "layers.router.per_expert_scale",
	"blk.ffn_gate_up_exps.weight": "layers.experts.gate_up_proj",
	"blk.ffn_gate_exps.weight":    "layers.experts.gate_proj.weight",
	"blk.ffn_up_exps.weight":      "layers.experts.up_proj.weight",
	"blk.pre_ffw_norm_2.weight":   "layers.pre_feedforward_layernorm_2.weight",
	"blk.post_ffw_norm_1.weight":  "layers.post_feedforward_layernorm_1.weight",
	"blk.post_ffw_norm_2.weight":  "layers.post_feedforward_layernorm_2.weight",

	"per_layer_token_embd.weight": "embed_tokens_per_layer.weight",
	"per_layer_model_proj.weight": "per_layer_model_projection.weight",
	"per_layer_proj_norm.weight":  "per_layer_projection_norm.weight",
	"blk.inp_gate.weight":         "layers.per_layer_input_gate.weight",
	"blk.proj.weight":             "layers.per_layer_projection.weight",
	"blk.post_norm.weight":        "layers.post_per_layer_input_norm.weight",
}

// downExperts is the name of the tensor whose name in transformers depends on how the file holds the other matrices of
// experts.
const downExperts = "blk.ffn_down_exps.weight"

// freqsName is the tensor with the divisors of the frequencies of full layers, which is configuration to
// transformers: 1 for the pairs that are rotated and a huge number for the others.
const freqsName = "rope_freqs.weight"

// FromGGUF reads the model from a GGUF file: its configuration with the keys of config.json, and its tensors
// (conversion/gemma.py, src/models/gemma4.cpp).
func FromGGUF(m *gguf.Model, superblocks bool) (config map[string]any, tensors []builder.Tensor, err error) {
	k := m.Keys()
	key := func(name string) string { return "gemma4." + name }
	layers := k.Layers("gemma4")
	types, perLayer := layerTypes(k, layers)
	shared := k.IntOr(key("attention.shared_kv_layers"), 0)
	rows, doubleWide := feedForward(k, layers, shared)
	full, sliding := k.Int(key("attention.key_length"), 2), k.Int(key("attention.key_length_swa"), 2)
	fullHeads, slidingHeads := keyValueHeads(k, perLayer)
	_, untied := m.Tensor("output.weight")
	config = map[string]any{
		"architectures": []string{"Gemma4ForCausalLM"}, "model_type": "gemma4_text",
		"attention_k_eq_v": !hasFullValues(m, perLayer), "tie_word_embeddings": !untied,
		"vocab_size": k.Vocabulary(), "hidden_size": k.Int(key("embedding_length"), 1), "intermediate_size": rows,
		"num_hidden_layers": layers, "layer_types": types, "sliding_window": k.Int(key("attention.sliding_window"), 1),
		"num_attention_heads": k.Int(key("attention.head_count"), 1), "head_dim": sliding,
		"num_key_value_heads": slidingHeads,
		"global_head_dim":     full, "num_global_key_value_heads": fullHeads,
		"rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "proportional",
				"rope_theta": k.Float(key("rope.freq_base")), "partial_rotary_factor": rotaryFactor(k, m, full)},
			"sliding_attention": map[string]any{"rope_type": "default",
				"rope_theta": k.Float(key("rope.freq_base_swa"))},
		},
		"rms_norm_eps":            k.Float(key("attention.layer_norm_rms_epsilon")),
		"max_position_embeddings": k.Int(key("context_length"), 1), "final_logit_softcapping": nil,
	}
	config["num_kv_shared_layers"], config["use_double_wide_mlp"] = shared, doubleWide
	config["hidden_size_per_layer_input"] = k.IntOr(key("embedding_length_per_layer_input"), 0)
	config["vocab_size_per_layer_input"] = k.Vocabulary()
	if n := k.IntOr(key("expert_count"), 0); n > 0 {
		config["enable_moe_block"], config["num_experts"] = true, n
		config["top_k_experts"] = k.Int(key("expert_used_count"), 1)
		config["moe_intermediate_size"] = k.Int(key("expert_feed_forward_length"), 1)
	}
	if k.Has(key("final_logit_softcapping")) {
		config["final_logit_softcapping"] = k.Float(key("final_logit_softcapping"))
	}
	if rotary := k.IntOr(key("rope.dimension_count_swa"), sliding); rotary != sliding {
		k.Fault(key("rope.dimension_count_swa"), fmt.Sprintf("%d, attention.key_length_swa", sliding))
	}
	if err := k.Err(); err != nil {
		return nil, nil, err
	}
	_, joint := m.Tensor("blk.0.ffn_gate_up_exps.weight")
	names := maps.Clone(ggufNames)
	if names[downExperts] = "layers.experts.down_proj.weight"; joint {
		names[downExperts] = "layers.experts.down_proj"
	}
	for _, t := range m.Tensors() {
		if t.Name == freqsName {
			continue
		}
		as, _ := names.Find(t.Name)
		tensors = append(tensors, t.Tensor(as, superblocks))
	}
	return config, tensors, nil
}

// layerTypes reads which layers slide.
func layerTypes(k *gguf.Keys, layers int) (types []string, slides []bool) {
	const key = "gemma4.attention.sliding_window_pattern"
	slides = k.Bools(key)
	if len(slides) < layers {
		k.Fault(key, fmt.Sprintf("a flag for each of %d layers", layers))
		slides = make([]bool, layers)
	}
	for _, s := range slides[:layers] {
		kind := huggingface.FullAttention
		if s {
			kind = huggingface.SlidingAttention
		}
		types = append(types, kind.String())
	}
	return types, slides[:layers]
}

// keyValueHeads reads the heads of keys and values of both kinds of layers.
func keyValueHeads(k *gguf.Keys, slides []bool) (full, sliding int64) {
	const key = "gemma4.attention.head_count_kv"
	heads := k.Ints(key, len(slides))
	if heads == nil {
		k.Fault(key, "an integer, or one for each layer")
		return 1, 1
	}
	for i, s := range slides {
		kind := &full
		if s {
			kind = &sliding
		}
		if *kind != 0 && *kind != heads[i] {
			k.Fault(key, "one number for all layers of a kind")
		}
		*kind = heads[i]
	}
	if sliding == 0 { // no layer slides
		sliding = full
	}
	return full, sliding
}

// hasFullValues reports whether full layers have a value projection.
func hasFullValues(m *gguf.Model, slides []bool) bool {
	for i, s := range slides {
		if _, ok := m.Tensor(fmt.Sprintf("blk.%d.attn_v.weight", i)); ok && !s {
			return true
		}
	}
	return false
}

// feedForward reads the rows of the MLPs, which must be as many in every layer but those that share keys and values,
// where there may be twice as many.
func feedForward(k *gguf.Keys, layers, shared int) (rows int64, doubleWide bool) {
	const key = "gemma4.feed_forward_length"
	list := k.Ints(key, layers)
	if list == nil {
		k.Fault(key, "an integer")
		return 1, false
	}
	doubleWide = shared > 0 && list[layers-1] == 2*list[0]
	for i, n := range list[:layers] {
		want := list[0]
		if doubleWide && i >= layers-shared {
			want *= 2
		}
		if n != want {
			k.Fault(key, "one number for all layers, or twice as many in those that share keys and values")
			break
		}
	}
	return list[0], doubleWide
}

// rotaryFactor returns the part of the head that full layers rotate.
func rotaryFactor(k *gguf.Keys, m *gguf.Model, head int) float64 {
	t, ok := m.Tensor(freqsName)
	if !ok {
		return 1
	}
	const huge = 1e10
	fault := func(found string) float64 {
		k.Note(freqsName, fmt.Sprintf("F32 [%d], first 1 for what is rotated, then %g and more", head/2, huge), found)
		return 1
	}
	if t.Type != gguf.F32 || len(t.Shape) != 1 || t.Shape[0] != int64(head/2) || head > 1<<16 {
		return fault(fmt.Sprintf("%s %v", t.Type, t.Shape))
	}
	raw, err := ir.ReadData(t.Floats())
	if err != nil {
		return fault(err.Error())
	}
	divisors := make([]float32, head/2)
	numeric.F32SliceFromBytes(divisors, raw)
	rotated := 0
	for i, d := range divisors {
		if d == 1 && rotated == i {
			rotated++
		} else if !(d >= huge) {
			return fault(fmt.Sprintf("%g at index %d", d, i))
		}
	}
	return float64(rotated) / float64(head/2)
}
