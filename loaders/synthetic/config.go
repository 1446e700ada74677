package synthetic

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/etc-ml/etc/loaders/huggingface"
)

// Qwen35MoE35B is the configuration of Qwen3.5-35B-A3B with the given number of layers (40 in the published
// model): three gated delta nets, then one full attention, repeated.
func Qwen35MoE35B(layers int) *huggingface.Qwen {
	return &huggingface.Qwen{
		VocabSize: 248320, HiddenSize: 2048, Layers: pattern(layers, 4, huggingface.LinearAttention),
		Heads: 16, KVHeads: 2, HeadDim: 256, RotaryDim: 64, RopeTheta: 1e7,
		LinearKeyHeads: 16, LinearValueHeads: 32, LinearKeyHeadDim: 128, LinearValueHeadDim: 128, ConvKernel: 4,
		Experts: 256, ExpertsPerToken: 8, ExpertIntermediate: 512, SharedExpertIntermediate: 512,
		RMSNormEps: 1e-6, MaxPositions: 262144,
	}
}

// Gemma431B is the configuration of Gemma4-31B with the given number of layers (60 in the published model): five
// sliding, then one full, repeated; the last one is full, as the architecture asks for.
func Gemma431B(layers int) *huggingface.Gemma4 {
	c := &huggingface.Gemma4{
		VocabSize: 262144, HiddenSize: 5376, IntermediateSize: 21504, Layers: pattern(layers, 6, huggingface.SlidingAttention),
		Sliding:       huggingface.AttentionGeometry{Heads: 32, KVHeads: 16, HeadDim: 256, RotaryDim: 256, RopeTheta: 1e4},
		Full:          huggingface.AttentionGeometry{Heads: 32, KVHeads: 4, HeadDim: 512, RotaryDim: 128, RopeTheta: 1e6},
		SlidingWindow: 1024, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 262144,
	}
	if layers > 0 {
		c.Layers[layers-1] = huggingface.FullAttention
	}
	return c
}

// pattern makes every interval-th layer full, and the others of the given kind.
func pattern(layers, interval int, other huggingface.LayerKind) []huggingface.LayerKind {
	kinds := make([]huggingface.LayerKind, max(layers, 0))
	for i := range kinds {
		kinds[i] = other
		if (i+1)%interval == 0 {
			kinds[i] = huggingface.FullAttention
		}
	}
	return kinds
}

// object is a JSON object; encoding/json sorts its keys.
type object map[string]any

// configJSON is the config.json of a configuration. It reads back as the same configuration, or there is an
// error that says why it cannot.
func configJSON(config huggingface.Config) ([]byte, error) {
	var root object
	switch c := config.(type) {
	case *huggingface.Qwen:
		root = qwenJSON(c)
	case *huggingface.Gemma4:
		root = gemmaJSON(c)
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
		return nil, fmt.Errorf("expected a configuration that config.json can hold, found %+v, which reads back as %+v", config, again)
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

func qwenJSON(c *huggingface.Qwen) object {
	return object{
		"architectures": []string{"Qwen3_5MoeForConditionalGeneration"},
		"model_type":    "qwen3_5_moe", "tie_word_embeddings": c.TieWordEmbeddings,
		"text_config": object{
			"model_type": "qwen3_5_moe_text", "dtype": "bfloat16",
			"vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "num_hidden_layers": len(c.Layers), "layer_types": layerNames(c.Layers),
			"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
			"attention_bias": false, "attn_output_gate": true, "hidden_act": "silu",
			"rope_parameters":      object{"rope_type": "default", "rope_theta": c.RopeTheta, "partial_rotary_factor": float64(c.RotaryDim) / float64(c.HeadDim)},
			"linear_num_key_heads": c.LinearKeyHeads, "linear_num_value_heads": c.LinearValueHeads,
			"linear_key_head_dim": c.LinearKeyHeadDim, "linear_value_head_dim": c.LinearValueHeadDim, "linear_conv_kernel_dim": c.ConvKernel,
			"num_experts": c.Experts, "num_experts_per_tok": c.ExpertsPerToken, "moe_intermediate_size": c.ExpertIntermediate,
			"shared_expert_intermediate_size": c.SharedExpertIntermediate, "rms_norm_eps": c.RMSNormEps,
		}.setPositions(c.MaxPositions),
	}
}

func gemmaJSON(c *huggingface.Gemma4) object {
	text := object{
		"model_type": "gemma4_text", "dtype": "bfloat16",
		"vocab_size": c.VocabSize, "hidden_size": c.HiddenSize, "intermediate_size": c.IntermediateSize,
		"num_hidden_layers": len(c.Layers), "layer_types": layerNames(c.Layers),
		"num_attention_heads": c.Sliding.Heads, "num_key_value_heads": c.Sliding.KVHeads, "head_dim": c.Sliding.HeadDim,
		"num_global_key_value_heads": c.Full.KVHeads, "global_head_dim": c.Full.HeadDim,
		"rope_parameters": object{
			"sliding_attention": object{"rope_type": "default", "rope_theta": c.Sliding.RopeTheta},
			"full_attention":    object{"rope_type": "proportional", "rope_theta": c.Full.RopeTheta, "partial_rotary_factor": float64(c.Full.RotaryDim) / float64(c.Full.HeadDim)},
		},
		"sliding_window": c.SlidingWindow, "rms_norm_eps": c.RMSNormEps, "final_logit_softcapping": nil,
		"attention_bias": false, "attention_k_eq_v": true, "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 0,
		"enable_moe_block": false, "num_kv_shared_layers": 0, "use_double_wide_mlp": false,
	}
	if c.FinalLogitSoftcap != 0 {
		text["final_logit_softcapping"] = c.FinalLogitSoftcap
	}
	return object{
		"architectures": []string{"Gemma4ForConditionalGeneration"},
		"model_type":    "gemma4", "tie_word_embeddings": c.TieWordEmbeddings,
		"text_config": text.setPositions(c.MaxPositions),
	}
}
