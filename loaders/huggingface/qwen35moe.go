package huggingface

import "fmt"

// Qwen35MoE is the configuration of the language model of Qwen3.5-MoE (Qwen3_5MoeForConditionalGeneration,
// Qwen3_5MoeForCausalLM): layers of gated delta nets and of gated full attention, each followed by routed
// experts and one shared expert. Vision and multi-token prediction are left out.
//
// Sizes are counts of elements. Each field names its key in config.json (in text_config where there is one).
type Qwen35MoE struct {
	VocabSize  int // vocab_size
	HiddenSize int // hidden_size

	// Layers has the kind of each layer, [FullAttention] or [LinearAttention]: layer_types, or where that is
	// absent every full_attention_interval-th layer full. Its length is num_hidden_layers.
	Layers []LayerKind

	// Full attention. The query projection has twice the rows: per head HeadDim of query, then of gate.
	Heads     int     // num_attention_heads, a multiple of KVHeads
	KVHeads   int     // num_key_value_heads
	HeadDim   int     // head_dim
	RotaryDim int     // leading elements of a head that are rotated: ⌊head_dim · partial_rotary_factor⌋, even
	RopeTheta float64 // rope_theta; frequencies are RopeTheta^(−2i/RotaryDim)

	// Gated delta net.
	LinearKeyHeads     int // linear_num_key_heads
	LinearValueHeads   int // linear_num_value_heads, a multiple of LinearKeyHeads
	LinearKeyHeadDim   int // linear_key_head_dim
	LinearValueHeadDim int // linear_value_head_dim
	ConvKernel         int // linear_conv_kernel_dim: taps of the causal depthwise convolution over q, k and v

	// Experts, in every layer.
	Experts                  int // num_experts
	ExpertsPerToken          int // num_experts_per_tok, at most Experts
	ExpertIntermediate       int // moe_intermediate_size
	SharedExpertIntermediate int // shared_expert_intermediate_size

	RMSNormEps        float64 // rms_norm_eps, of every norm
	TieWordEmbeddings bool    // tie_word_embeddings: lm_head is the embedding
	MaxPositions      int     // max_position_embeddings: positions the model was made for; 0 if not given
}

// Vocabulary is VocabSize.
func (c *Qwen35MoE) Vocabulary() int { return c.VocabSize }

// Depth is the number of layers.
func (c *Qwen35MoE) Depth() int { return len(c.Layers) }

// ConvChannels is the width of the convolution: all heads of q, of k and of v, in this order.
func (c *Qwen35MoE) ConvChannels() int {
	return 2*c.LinearKeyHeads*c.LinearKeyHeadDim + c.LinearValueHeads*c.LinearValueHeadDim
}

func parseQwen35MoE(root, text section) Config {
	c := &Qwen35MoE{
		VocabSize:  text.integer("vocab_size", 1, maxSize),
		HiddenSize: text.integer("hidden_size", 1, maxSize),

		Heads:   text.integer("num_attention_heads", 1, maxSize),
		KVHeads: text.integer("num_key_value_heads", 1, maxSize),
		HeadDim: text.integer("head_dim", 1, maxSize),

		LinearKeyHeads:     text.integer("linear_num_key_heads", 1, maxSize),
		LinearValueHeads:   text.integer("linear_num_value_heads", 1, maxSize),
		LinearKeyHeadDim:   text.integer("linear_key_head_dim", 1, maxSize),
		LinearValueHeadDim: text.integer("linear_value_head_dim", 1, maxSize),
		ConvKernel:         text.integer("linear_conv_kernel_dim", 1, maxSize),

		Experts:                  text.integer("num_experts", 1, maxExperts),
		ExpertsPerToken:          text.integer("num_experts_per_tok", 1, maxExperts),
		ExpertIntermediate:       text.integer("moe_intermediate_size", 1, maxSize),
		SharedExpertIntermediate: text.integer("shared_expert_intermediate_size", 1, maxSize),

		RMSNormEps:        text.number("rms_norm_eps"),
		TieWordEmbeddings: tied(root, text, false),
		MaxPositions:      positions(text),
	}
	c.Layers = qwenLayers(text, text.integer("num_hidden_layers", 1, maxLayers))
	var factor float64
	var factorSection section
	c.RopeTheta, factor, factorSection = qwenRope(text)

	text.only("hidden_act", "silu")
	text.only("attention_bias", false)
	text.only("attn_output_gate", true)
	text.only("decoder_sparse_step", 1.0)
	if dense, _ := text.array("mlp_only_layers"); len(dense) > 0 {
		text.fault("mlp_only_layers", "no layers: etc supports experts in every layer only")
	}
	if !text.doc.sound() {
		return c
	}

	divides(text, "num_attention_heads", c.Heads, "num_key_value_heads", c.KVHeads)
	divides(text, "linear_num_value_heads", c.LinearValueHeads, "linear_num_key_heads", c.LinearKeyHeads)
	if c.ExpertsPerToken > c.Experts {
		text.fault("num_experts_per_tok", fmt.Sprintf("at most num_experts (%d)", c.Experts))
	}
	c.RotaryDim = int(float64(c.HeadDim) * factor)
	if factor > 1 || c.RotaryDim < 2 || c.RotaryDim%2 != 0 {
		text.doc.fault(factorSection.key("partial_rotary_factor"), fmt.Sprintf("an even number ≥ 2 of rotary dims, at most head_dim (%d)", c.HeadDim), fmt.Sprintf("%d (%g of head_dim)", c.RotaryDim, factor))
	}
	return c
}

// qwenLayers reads the kinds of the layers. layer_types goes before full_attention_interval, as in transformers.
func qwenLayers(text section, layers int) []LayerKind {
	if text.has("layer_types") {
		return layerTypes(text, layers, FullAttention, LinearAttention)
	}
	if !text.has("full_attention_interval") {
		text.fault("layer_types", "it, or full_attention_interval")
		return nil
	}
	interval := text.integer("full_attention_interval", 1, maxLayers)
	kinds := make([]LayerKind, layers)
	for i := range kinds {
		kinds[i] = LinearAttention
		if (i+1)%interval == 0 {
			kinds[i] = FullAttention
		}
	}
	return kinds
}

// qwenRope reads rope_theta and partial_rotary_factor from rope_parameters, and what is not there from the level
// above, where older files have it. transformers writes a default of its own there into newer files, so the order
// matters. The sections of mrope make no difference for text, whose three positions are equal. The last
// result is where the factor was.
func qwenRope(text section) (theta, factor float64, factorSection section) {
	rope, _ := text.object("rope_parameters")
	at := func(key string) section {
		if rope.has(key) {
			return rope
		}
		return text
	}
	rope.only("rope_type", "default")
	if text.has("rope_scaling") {
		text.fault("rope_scaling", "null: etc supports RoPE without scaling, in rope_parameters")
	}
	factorSection = at("partial_rotary_factor")
	return at("rope_theta").number("rope_theta"), factorSection.number("partial_rotary_factor"), factorSection
}
