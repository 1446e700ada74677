package huggingface

import "fmt"

// MuseGlimmer is the configuration of the language model of Muse Glimmer (MuseGlimmerForConditionalGeneration): layers
// of sliding and of full attention, gated by a projection of its own, and a gated MLP, with norms before and after
// both. Vision is left out.
//
// Sizes are counts of elements. Each field names its key in text_config.
type MuseGlimmer struct {
	VocabSize    int // vocab_size
	HiddenSize   int // hidden_size
	Intermediate int // intermediate_size

	// Layers has the kind of each layer, [SlidingAttention] or [FullAttention]: layer_types, whose length is
	// num_hidden_layers. Unrotated tells which layers do not rotate their heads: those with 0 in layer_rope_theta.
	Layers        []LayerKind
	Unrotated     []bool
	SlidingWindow int // sliding_window: positions that a sliding layer sees, its own included

	Heads     int     // num_attention_heads, a multiple of KVHeads
	KVHeads   int     // num_key_value_heads
	HeadDim   int     // head_dim, even; all of a head is rotated
	RopeTheta float64 // rope_parameters.rope_theta
	QKScale   float64 // qk_scale_factor: what normalised queries are multiplied by

	RMSNormEps        float64 // rms_norm_eps, of every norm but
	PostNormEps       float64 // post_norm_eps, of those after attention and MLP
	OutputMultiplier  float64 // output_multiplier, of logits before the cap
	FinalLogitSoftcap float64 // final_logit_softcapping c, for c·tanh(logits/c); 0 if null: no cap
	TieWordEmbeddings bool    // tie_word_embeddings: lm_head is the embedding
	MaxPositions      int     // max_position_embeddings: positions the model was made for; 0 if not given
}

// Vocabulary is VocabSize.
func (c *MuseGlimmer) Vocabulary() int { return c.VocabSize }

// Depth returns the number of layers.
func (c *MuseGlimmer) Depth() int { return len(c.Layers) }

func parseMuseGlimmer(root, text section) Config {
	c := &MuseGlimmer{
		VocabSize:    text.integer("vocab_size", 1, maxSize),
		HiddenSize:   text.integer("hidden_size", 1, maxSize),
		Intermediate: text.integer("intermediate_size", 1, maxSize),

		SlidingWindow: text.integer("sliding_window", 1, maxPositions),
		Heads:         text.integer("num_attention_heads", 1, maxSize),
		KVHeads:       text.integer("num_key_value_heads", 1, maxSize),
		HeadDim:       text.integer("head_dim", 1, maxSize),
		QKScale:       text.number("qk_scale_factor"),

		RMSNormEps:        text.number("rms_norm_eps"),
		PostNormEps:       text.number("post_norm_eps"),
		OutputMultiplier:  text.number("output_multiplier"),
		TieWordEmbeddings: tied(root, text, false),
		MaxPositions:      positions(text),
	}
	if value, ok := text.values["final_logit_softcapping"]; !ok || value != nil {
		c.FinalLogitSoftcap = text.number("final_logit_softcapping")
	}
	layers := text.integer("num_hidden_layers", 1, maxLayers)
	c.Layers = layerTypes(text, layers, FullAttention, SlidingAttention)
	c.Unrotated = unrotated(text, layers)
	rope := readRope(text, c.HeadDim, c.MaxPositions, 1)
	c.RopeTheta = rope.Theta
	if rope.Scaling != nil || text.doc.sound() && rope.Dims != c.HeadDim {
		text.fault("rope_parameters", "RoPE of whole heads without scaling: etc supports nothing else here")
	}
	text.only("hidden_activation", "silu")
	text.only("attention_bias", false)
	if text.doc.sound() {
		divides(text, "num_attention_heads", c.Heads, "num_key_value_heads", c.KVHeads)
	}
	return c
}

// unrotated reads layer_rope_theta, whose values tell no more than whether they are 0.
func unrotated(text section, layers int) []bool {
	const key = "layer_rope_theta"
	list, ok := text.array(key)
	if !ok || len(list) != layers {
		if ok || !text.has(key) {
			text.fault(key, fmt.Sprintf("an array with a number for each of the %d layers", layers))
		}
		return nil
	}
	flags := make([]bool, layers)
	for i, entry := range list {
		theta, ok := asFloat(entry)
		if !ok || theta < 0 {
			text.doc.fault(fmt.Sprintf("%s[%d]", text.key(key), i), "a number ≥ 0", show(entry))
		}
		flags[i] = theta == 0
	}
	return flags
}
