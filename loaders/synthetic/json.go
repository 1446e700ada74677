package synthetic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/etc-ml/etc/loaders/huggingface"
)

// object is a JSON object; encoding/json sorts its keys.
type object map[string]any

// configJSON returns the config.json of a configuration, for a family (see [Spec]). It reads back as the same
// configuration, or there is an error that says why it cannot.
func configJSON(config huggingface.Config, name string) ([]byte, error) {
	if _, ok := huggingface.FamilyNamed(name); name != "" && !ok {
		return nil, fmt.Errorf("expected the short name of a family, found %q", name)
	}
	var root object
	switch c := config.(type) {
	case *huggingface.Qwen:
		root = qwenJSON(c, cmp.Or(name, qwenFamily(c)))
	case *huggingface.Gemma4:
		root = gemmaJSON(c, cmp.Or(name, "gemma4"))
	case *huggingface.MuseGlimmer:
		root = museJSON(c, cmp.Or(name, "museglimmer"))
	}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, err
	}
	_, again, err := huggingface.ParseConfig("config.json to be written", append(text, '\n'))
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(again, config) {
		return nil, fmt.Errorf("expected a configuration that config.json can hold, found %+v, which reads back as %+v",
			config, again)
	}
	return append(text, '\n'), nil
}

func layerNames(kinds []huggingface.LayerKind) []string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.String()
	}
	return names
}

// setPositions writes max_position_embeddings, unless it is unknown.
func (o object) setPositions(positions int) object {
	if positions != 0 {
		o["max_position_embeddings"] = positions
	}
	return o
}

// family finds the names that config.json has for a family.
func family(name string) huggingface.Family {
	f, ok := huggingface.FamilyNamed(name)
	if !ok {
		panic("synthetic: no family " + name)
	}
	return f
}

// nested returns a configuration with the language model's in text_config, or the latter itself for a family without.
func nested(name string, tied bool, text object) object {
	f := family(name)
	class := []string{f.Classes[len(f.Classes)-1]}
	text["model_type"], text["dtype"] = f.Types[0], "bfloat16"
	if len(f.Types) == 1 {
		text["architectures"], text["tie_word_embeddings"] = class, tied
		return text
	}
	return object{"architectures": class, "model_type": f.Types[1], "tie_word_embeddings": tied, "text_config": text}
}

// qwenFamily returns the family that has what a configuration says.
func qwenFamily(c *huggingface.Qwen) string {
	switch {
	case c.PlainNorms && c.Experts > 0:
		return "qwen3moe"
	case c.PlainNorms:
		return "qwen3"
	case c.JointProjections:
		return "qwen3next"
	case c.Experts > 0:
		return "qwen35moe"
	}
	return "qwen35"
}

func qwenJSON(c *huggingface.Qwen, name string) object {
	text := object{
		"vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "num_hidden_layers": len(c.Layers),
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"attention_bias": false, "hidden_act": "silu", "rms_norm_eps": c.RMSNormEps,
		"rope_parameters": ropeJSON(c),
	}
	if !c.PlainNorms {
		text["layer_types"], text["attn_output_gate"] = layerNames(c.Layers), true
		text["linear_num_key_heads"], text["linear_num_value_heads"] = c.LinearKeyHeads, c.LinearValueHeads
		text["linear_key_head_dim"], text["linear_value_head_dim"] = c.LinearKeyHeadDim, c.LinearValueHeadDim
		text["linear_conv_kernel_dim"] = c.ConvKernel
	}
	if c.Intermediate > 0 {
		text["intermediate_size"] = c.Intermediate
	}
	if c.Experts > 0 {
		text["num_experts"], text["num_experts_per_tok"] = c.Experts, c.ExpertsPerToken
		text["moe_intermediate_size"] = c.ExpertIntermediate
		if c.SharedExpertIntermediate > 0 {
			text["shared_expert_intermediate_size"] = c.SharedExpertIntermediate
		}
		if c.PlainNorms || c.JointProjections {
			text["norm_topk_prob"], text["decoder_sparse_step"] = !c.AbsoluteScores, 1
			text["mlp_only_layers"] = append([]int{}, c.DenseLayers...)
		}
	}
	return nested(name, c.TieWordEmbeddings, text.setPositions(c.MaxPositions))
}

func ropeJSON(c *huggingface.Qwen) object {
	factor := float64(c.RotaryDim) / float64(c.HeadDim)
	rope := object{"rope_type": "default", "rope_theta": c.RopeTheta, "partial_rotary_factor": factor}
	s := c.RopeScaling
	if s == nil {
		return rope
	}
	rope["rope_type"], rope["factor"] = s.Type, s.Factor
	if s.Type == "yarn" {
		rope["original_max_position_embeddings"], rope["truncate"] = s.Positions, s.Truncate
		rope["beta_fast"], rope["beta_slow"] = s.BetaFast, s.BetaSlow
		options := map[string]float64{"attention_factor": s.Attention, "mscale": s.MScale,
			"mscale_all_dim": s.MScaleAllDim}
		for key, v := range options {
			if v != 0 {
				rope[key] = v
			}
		}
	}
	return rope
}

func gemmaJSON(c *huggingface.Gemma4, name string) object {
	text := object{
		"vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "intermediate_size": c.IntermediateSize,
		"num_hidden_layers": len(c.Layers), "layer_types": layerNames(c.Layers),
		"num_attention_heads": c.Sliding.Heads, "num_key_value_heads": c.Sliding.KVHeads, "head_dim": c.Sliding.HeadDim,
		"num_global_key_value_heads": c.Full.KVHeads, "global_head_dim": c.Full.HeadDim,
		"rope_parameters": object{
			"sliding_attention": object{"rope_type": "default", "rope_theta": c.Sliding.RopeTheta},
			"full_attention": object{"rope_type": "proportional", "rope_theta": c.Full.RopeTheta,
				"partial_rotary_factor": float64(c.Full.RotaryDim) / float64(c.Full.HeadDim)},
		},
		"sliding_window": c.SlidingWindow, "rms_norm_eps": c.RMSNormEps, "final_logit_softcapping": nil,
		"attention_bias": false, "attention_k_eq_v": !c.FullValues, "hidden_activation": "gelu_pytorch_tanh",
		"hidden_size_per_layer_input": c.PerLayerInput,
		"enable_moe_block":            c.Experts > 0, "num_kv_shared_layers": c.SharedKVLayers,
		"use_double_wide_mlp": c.DoubleWideMLP,
	}
	if c.FinalLogitSoftcap != 0 {
		text["final_logit_softcapping"] = c.FinalLogitSoftcap
	}
	if c.PerLayerInput > 0 {
		text["vocab_size_per_layer_input"] = c.VocabSize
	}
	if c.Experts > 0 {
		text["num_experts"], text["top_k_experts"] = c.Experts, c.ExpertsPerToken
		text["moe_intermediate_size"] = c.ExpertIntermediate
	}
	return nested(name, c.TieWordEmbeddings, text.setPositions(c.MaxPositions))
}

func museJSON(c *huggingface.MuseGlimmer, name string) object {
	thetas := make([]float64, len(c.Layers))
	for i, unrotated := range c.Unrotated {
		if !unrotated {
			thetas[i] = c.RopeTheta
		}
	}
	text := object{
		"vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "intermediate_size": c.Intermediate,
		"num_hidden_layers": len(c.Layers), "layer_types": layerNames(c.Layers), "layer_rope_theta": thetas,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"qk_scale_factor": c.QKScale,
		"rope_parameters": object{"rope_type": "default", "rope_theta": c.RopeTheta}, "sliding_window": c.SlidingWindow,
		"rms_norm_eps": c.RMSNormEps, "post_norm_eps": c.PostNormEps, "output_multiplier": c.OutputMultiplier,
		"final_logit_softcapping": nil,
		"attention_bias":          false, "hidden_activation": "silu",
	}
	if c.FinalLogitSoftcap != 0 {
		text["final_logit_softcapping"] = c.FinalLogitSoftcap
	}
	return nested(name, c.TieWordEmbeddings, text.setPositions(c.MaxPositions))
}
