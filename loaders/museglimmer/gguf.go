package museglimmer

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// arch is the name of the architecture in GGUF files.
const arch = "muse-glimmer"

// GGUF are the names of architectures of GGUF files that FromGGUF reads.
var GGUF = []string{arch}

// ggufNames are llama.cpp's names (gguf-py/gguf/constants.py, MODEL_ARCH.MUSE_GLIMMER).
var ggufNames = gguf.Names{
	"token_embd.weight":  "embed_tokens.weight",
	"output_norm.weight": "norm.weight",
	"output.weight":      builder.Head,

	"blk.attn_norm.weight":           "layers.input_layernorm.weight",
	"blk.post_attention_norm.weight": "layers.post_attention_layernorm.weight",
	"blk.ffn_norm.weight":            "layers.pre_feedforward_layernorm.weight",
	"blk.post_ffw_norm.weight":       "layers.post_feedforward_layernorm.weight",

	"blk.attn_q.weight":      "layers.self_attn.q_proj.weight",
	"blk.attn_k.weight":      "layers.self_attn.k_proj.weight",
	"blk.attn_v.weight":      "layers.self_attn.v_proj.weight",
	"blk.attn_gate.weight":   "layers.self_attn.gate_proj.weight",
	"blk.attn_output.weight": "layers.self_attn.o_proj.weight",

	"blk.ffn_gate.weight": "layers.mlp.gate_proj.weight",
	"blk.ffn_up.weight":   "layers.mlp.up_proj.weight",
	"blk.ffn_down.weight": "layers.mlp.down_proj.weight",
}

// postNormEps is the eps of the norms after attention and MLP, which llama.cpp's files do not hold: it has this one in
// its source (src/models/muse-glimmer.cpp).
const postNormEps = 1e-8

// FromGGUF reads the model from a GGUF file: its configuration with the keys of config.json, and its tensors. What
// llama.cpp's converter does to them (conversion/muse_glimmer.py) is undone, but that norms stay what they multiply by
// (see [builder.Tensors].Multipliers): rows of queries and keys are brought back from interleaved pairs to halves, and
// the multiplier of the norm of queries, which the file has as weights, is qk_scale_factor again.
func FromGGUF(m *gguf.Model, superblocks bool) (config map[string]any, tensors []builder.Tensor, err error) {
	k := m.Keys()
	key := func(name string) string { return arch + "." + name }
	layers := k.Layers(arch)
	head := k.Int(key("attention.key_length"), 2)
	if head%2 != 0 {
		k.Fault(key("attention.key_length"), "an even number")
	}
	for _, same := range []string{"attention.value_length", "rope.dimension_count"} {
		if k.IntOr(key(same), head) != head {
			k.Fault(key(same), fmt.Sprintf("%d, attention.key_length", head))
		}
	}
	if scaling := k.Text(key("rope.scaling.type")); scaling != "" && scaling != "none" {
		k.Fault(key("rope.scaling.type"), `"none", as etc supports no other scaling here`)
	}
	types, thetas := attentionLayers(k, layers)
	_, untied := m.Tensor("output.weight")
	config = map[string]any{
		"architectures": []string{"MuseGlimmerForConditionalGeneration"}, "model_type": "muse_glimmer_text",
		"tie_word_embeddings": !untied,
		"vocab_size":          k.Vocabulary(), "hidden_size": k.Int(key("embedding_length"), 1),
		"intermediate_size": k.Int(key("feed_forward_length"), 1),
		"num_hidden_layers": layers, "layer_types": types, "layer_rope_theta": thetas,
		"sliding_window":      k.Int(key("attention.sliding_window"), 1),
		"num_attention_heads": k.Int(key("attention.head_count"), 1), "head_dim": head,
		"num_key_value_heads": k.Int(key("attention.head_count_kv"), 1),
		"qk_scale_factor":     queryScale(k, m, layers, head),
		"rope_parameters":     map[string]any{"rope_type": "default", "rope_theta": rotationBase(k)},
		"rms_norm_eps":        k.Float(key("attention.layer_norm_rms_epsilon")), "post_norm_eps": postNormEps,
		"output_multiplier":       k.Float(key("logit_scale")),
		"max_position_embeddings": k.Int(key("context_length"), 1), "final_logit_softcapping": nil,
	}
	if k.Has(key("final_logit_softcapping")) {
		config["final_logit_softcapping"] = k.Float(key("final_logit_softcapping"))
	}
	if err := k.Err(); err != nil {
		return nil, nil, err
	}
	order := halves(head)
	for _, t := range m.Tensors() {
		name, _ := gguf.Key(t.Name)
		if name == "blk.attn_q_norm.weight" || name == "blk.attn_k_norm.weight" {
			continue
		}
		as, _ := ggufNames.Find(t.Name)
		b := t.Tensor(as, superblocks)
		if (name == "blk.attn_q.weight" || name == "blk.attn_k.weight") && len(t.Shape) == 2 &&
			t.Shape[0]%int64(head) == 0 {
			b = b.PermuteRowsOfEach(order)
		}
		tensors = append(tensors, b)
	}
	return config, tensors, nil
}

// rotationBase is that of sliding layers, the only ones that llama.cpp rotates.
func rotationBase(k *gguf.Keys) float64 {
	if sliding := arch + ".rope.freq_base_swa"; k.Has(sliding) {
		return k.Float(sliding)
	}
	return k.Float(arch + ".rope.freq_base")
}

// attentionLayers reads which layers slide; those are rotated, and the others are not.
func attentionLayers(k *gguf.Keys, layers int) (types []string, thetas []float64) {
	const key = arch + ".attention.sliding_window_pattern"
	slides := k.Bools(key)
	if len(slides) < layers {
		k.Fault(key, fmt.Sprintf("a flag for each of %d layers", layers))
		slides = make([]bool, layers)
	}
	base := rotationBase(k)
	for _, s := range slides[:layers] {
		kind, theta := huggingface.FullAttention, 0.0
		if s {
			kind, theta = huggingface.SlidingAttention, base
		}
		types, thetas = append(types, kind.String()), append(thetas, theta)
	}
	return types, thetas
}

// normName returns the name of the tensor with the weights of the norm of queries ("q") or keys ("k") of a layer.
func normName(layer int, of string) string {
	return fmt.Sprintf("blk.%d.attn_%s_norm.weight", layer, of)
}

// queryScale is what the norms of queries multiply by: one number in every layer, where those of keys multiply by 1.
func queryScale(k *gguf.Keys, m *gguf.Model, layers, head int) float64 {
	scale := float32(0)
	for i := range layers {
		for _, of := range []string{"q", "k"} {
			values, found := normValues(m, normName(i, of), head)
			if found != "" {
				k.Note(normName(i, of), fmt.Sprintf("F32 [%d]", head), found)
				return 1
			}
			if of == "q" && i == 0 {
				scale = values[0]
			}
			want := map[string]float32{"q": scale, "k": 1}[of]
			for _, v := range values {
				if v != want {
					k.Note(normName(i, of), fmt.Sprintf("%g everywhere, as the model has one number for all", want),
						fmt.Sprint(v))
					return 1
				}
			}
		}
	}
	return float64(scale)
}

// normValues reads the weights of a norm of heads; found says what is there instead.
func normValues(m *gguf.Model, name string, head int) (values []float32, found string) {
	t, ok := m.Tensor(name)
	switch {
	case !ok:
		return nil, "none"
	case t.Type != gguf.F32 || len(t.Shape) != 1 || t.Shape[0] != int64(head) || head > 1<<16:
		return nil, fmt.Sprintf("%s %v", t.Type, t.Shape)
	}
	raw, err := ir.ReadData(t.Floats())
	if err != nil {
		return nil, err.Error()
	}
	values = make([]float32, head)
	numeric.F32SliceFromBytes(values, raw)
	return values, ""
}

// halves returns the order that brings the rows of a head from pairs (2i, 2i+1), as llama.cpp rotates them here, to
// pairs (i, i+D/2).
func halves(head int) []int {
	order := make([]int, 0, head)
	for first := range 2 {
		for i := range head / 2 {
			order = append(order, 2*i+first)
		}
	}
	return order
}
