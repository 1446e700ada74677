package huggingface

import (
	"fmt"
	"slices"
)

// Qwen is the configuration of the language model of Qwen3 and what came after it. Layers of gated delta nets (from
// Qwen3-Next on) and of full attention are each followed by a gated MLP, or by routed experts, with a shared one beside
// them in some. Vision and multi-token prediction are left out. The zero values of the flags are what Qwen3.5-MoE has.
//
// Sizes are counts of elements. Each field names its key in config.json (in text_config where there is one).
type Qwen struct {
	VocabSize  int // vocab_size
	HiddenSize int // hidden_size

	// Layers has the kind of each layer, [FullAttention] or [LinearAttention]: layer_types, or where that is
	// absent every full_attention_interval-th layer full. Its length is num_hidden_layers.
	Layers []LayerKind

	// PlainNorms: norms multiply by w, and not by 1+w.
	PlainNorms bool

	// Full attention. With a gate the query projection has twice the rows: per head HeadDim of query, then of gate.
	NoGate      bool         // attention has no output gate
	Heads       int          // num_attention_heads, a multiple of KVHeads
	KVHeads     int          // num_key_value_heads
	HeadDim     int          // head_dim
	RotaryDim   int          // leading elements of a head that are rotated: ⌊head_dim · partial_rotary_factor⌋, even
	RopeTheta   float64      // rope_theta; frequencies are RopeTheta^(−2i/RotaryDim)
	RopeScaling *RopeScaling // what changes them; nil for nothing

	// Gated delta net; zeros in families without.
	LinearKeyHeads     int // linear_num_key_heads
	LinearValueHeads   int // linear_num_value_heads, a multiple of LinearKeyHeads
	LinearKeyHeadDim   int // linear_key_head_dim
	LinearValueHeadDim int // linear_value_head_dim
	ConvKernel         int // linear_conv_kernel_dim: taps of the causal depthwise convolution over q, k and v
	// JointProjections: a checkpoint holds q, k, v and the gate as one matrix whose rows are grouped by key head, and
	// beta and step size as another one.
	JointProjections bool

	// The MLP of layers without experts; 0 where there are none.
	Intermediate int // intermediate_size

	// Experts; zeros in families without.
	Experts                  int // num_experts
	ExpertsPerToken          int // num_experts_per_tok, at most Experts
	ExpertIntermediate       int // moe_intermediate_size
	SharedExpertIntermediate int // shared_expert_intermediate_size; 0 without a shared expert
	// AbsoluteScores: experts are weighted by their part in the softmax over all of them, without dividing by the sum
	// of those that are chosen (norm_topk_prob false).
	AbsoluteScores bool
	// DenseLayers lists the layers without experts among those with, in order: mlp_only_layers, and those whose number
	// from 1 on decoder_sparse_step does not divide.
	DenseLayers []int

	RMSNormEps        float64 // rms_norm_eps, of every norm
	TieWordEmbeddings bool    // tie_word_embeddings: lm_head is the embedding
	MaxPositions      int     // max_position_embeddings: positions the model was made for; 0 if not given
}

// Vocabulary is VocabSize.
func (c *Qwen) Vocabulary() int { return c.VocabSize }

// Depth returns the number of layers.
func (c *Qwen) Depth() int { return len(c.Layers) }

// ConvChannels returns the width of the convolution: all heads of q, of k and of v, in this order.
func (c *Qwen) ConvChannels() int {
	return 2*c.LinearKeyHeads*c.LinearKeyHeadDim + c.LinearValueHeads*c.LinearValueHeadDim
}

// HasExperts reports whether experts follow the attention of a layer, and not one MLP.
func (c *Qwen) HasExperts(layer int) bool {
	return c.Experts > 0 && !slices.Contains(c.DenseLayers, layer)
}

// The families of Qwen, from the newest on.

func parseQwen35MoE(root, text section) Config {
	c := readQwen(root, text, 0, false)
	c.readDeltaNet(text)
	c.readExperts(text)
	c.readSharedExpert(text)
	text.only("decoder_sparse_step", 1.0)
	if dense, _ := text.array("mlp_only_layers"); len(dense) > 0 {
		text.fault("mlp_only_layers", "no layers: etc supports experts in every layer only")
	}
	return c.check(text)
}

func parseQwen35(root, text section) Config {
	c := readQwen(root, text, 0, false)
	c.readDeltaNet(text)
	c.Intermediate = text.integer("intermediate_size", 1, maxSize)
	return c.check(text)
}

func parseQwen3Next(root, text section) Config {
	c := readQwen(root, text, 0, false)
	c.JointProjections = true
	c.readDeltaNet(text)
	c.readExperts(text)
	c.readSharedExpert(text)
	c.readSparsity(text)
	return c.check(text)
}

func parseQwen3MoE(root, text section) Config {
	c := readQwen(root, text, 1, true)
	c.readExperts(text)
	c.readSparsity(text)
	return c.check(text)
}

func parseQwen3(root, text section) Config {
	c := readQwen(root, text, 1, true)
	c.Intermediate = text.integer("intermediate_size", 1, maxSize)
	return c.check(text)
}

// readQwen reads what all families have. rotary is the part of the head that is rotated where the file does not say
// it; 0 requires the file to. plain tells of full attention without a gate in all layers, and norms that multiply by w.
func readQwen(root, text section, rotary float64, plain bool) *Qwen {
	c := &Qwen{
		VocabSize:  text.integer("vocab_size", 1, maxSize),
		HiddenSize: text.integer("hidden_size", 1, maxSize),
		PlainNorms: plain,

		NoGate:  plain,
		Heads:   text.integer("num_attention_heads", 1, maxSize),
		KVHeads: text.integer("num_key_value_heads", 1, maxSize),
		HeadDim: text.integer("head_dim", 1, maxSize),

		RMSNormEps:        text.number("rms_norm_eps"),
		TieWordEmbeddings: tied(root, text, false),
		MaxPositions:      positions(text),
	}
	layers := text.integer("num_hidden_layers", 1, maxLayers)
	if plain {
		c.Layers = slices.Repeat([]LayerKind{FullAttention}, layers)
		text.only("use_sliding_window", false)
	} else {
		c.Layers = qwenLayers(text, layers)
		text.only("attn_output_gate", true)
	}
	text.only("hidden_act", "silu")
	text.only("attention_bias", false)
	rope := readRope(text, c.HeadDim, c.MaxPositions, rotary)
	c.RotaryDim, c.RopeTheta, c.RopeScaling = rope.Dims, rope.Theta, rope.Scaling
	c.MaxPositions = c.RopeScaling.limit(c.MaxPositions)
	return c
}

func (c *Qwen) readDeltaNet(text section) {
	c.LinearKeyHeads = text.integer("linear_num_key_heads", 1, maxSize)
	c.LinearValueHeads = text.integer("linear_num_value_heads", 1, maxSize)
	c.LinearKeyHeadDim = text.integer("linear_key_head_dim", 1, maxSize)
	c.LinearValueHeadDim = text.integer("linear_value_head_dim", 1, maxSize)
	c.ConvKernel = text.integer("linear_conv_kernel_dim", 1, maxSize)
	if text.doc.sound() {
		divides(text, "linear_num_value_heads", c.LinearValueHeads, "linear_num_key_heads", c.LinearKeyHeads)
	}
}

func (c *Qwen) readExperts(text section) {
	c.Experts = text.integer("num_experts", 1, maxExperts)
	c.ExpertsPerToken = text.integer("num_experts_per_tok", 1, maxExperts)
	c.ExpertIntermediate = text.integer("moe_intermediate_size", 1, maxSize)
	if text.doc.sound() && c.ExpertsPerToken > c.Experts {
		text.fault("num_experts_per_tok", fmt.Sprintf("at most num_experts (%d)", c.Experts))
	}
}

func (c *Qwen) readSharedExpert(text section) {
	c.SharedExpertIntermediate = text.integer("shared_expert_intermediate_size", 1, maxSize)
}

// readSparsity reads which layers have experts, and how these are weighted. transformers' fallbacks for
// norm_topk_prob differ between the families, so the key must be there.
func (c *Qwen) readSparsity(text section) {
	if !text.has("norm_topk_prob") {
		text.fault("norm_topk_prob", "true or false")
	}
	c.AbsoluteScores = !text.boolean("norm_topk_prob", true)
	step := 1
	if text.has("decoder_sparse_step") {
		step = text.integer("decoder_sparse_step", 1, maxLayers)
	}
	list, _ := text.array("mlp_only_layers")
	dense := map[int]bool{}
	for i, entry := range list {
		layer, ok := asInt(entry)
		if !ok || layer < 0 || layer >= len(c.Layers) {
			key := fmt.Sprintf("%s[%d]", text.key("mlp_only_layers"), i)
			text.doc.fault(key, fmt.Sprintf("a layer from 0 to %d", len(c.Layers)-1), show(entry))
		}
		dense[layer] = true
	}
	for i := range c.Layers {
		if dense[i] || (i+1)%step != 0 {
			c.DenseLayers = append(c.DenseLayers, i)
		}
	}
	if len(c.DenseLayers) > 0 {
		c.Intermediate = text.integer("intermediate_size", 1, maxSize)
	}
}

// check holds values against each other that all families have.
func (c *Qwen) check(text section) Config {
	if text.doc.sound() {
		divides(text, "num_attention_heads", c.Heads, "num_key_value_heads", c.KVHeads)
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
