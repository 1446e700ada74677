package huggingface

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Gemma4 is the configuration of the language model of a Gemma 4: layers of sliding and of full attention, whose
// heads have different sizes, and a gated MLP. Some models have experts beside the MLP, some an embedding for every
// layer, and layers that attend to the keys and values of an earlier one. Attention is not scaled. Vision and audio are
// left out. The zero values of what only some models have are those of Gemma4-31B.
//
// Sizes are counts of elements. Each field names its key in config.json (in text_config where there is one).
type Gemma4 struct {
	VocabSize        int // vocab_size
	HiddenSize       int // hidden_size
	IntermediateSize int // intermediate_size, of every MLP

	// Layers has the kind of each layer, [SlidingAttention] or [FullAttention], the last one full: layer_types.
	// Its length is num_hidden_layers.
	Layers []LayerKind

	Sliding AttentionGeometry // of the sliding layers
	Full    AttentionGeometry // of the full layers

	// FullValues: full layers have a value projection. Without, values are the keys before norm and rotation
	// (attention_k_eq_v).
	FullValues bool

	// SharedKVLayers is the number of layers at the end that have no keys and values: they attend to those of the last
	// layer of their kind before them (num_kv_shared_layers). With DoubleWideMLP their MLPs have 2·IntermediateSize
	// rows (use_double_wide_mlp).
	SharedKVLayers int
	DoubleWideMLP  bool

	// PerLayerInput is the width of the embedding that every layer has of its own: hidden_size_per_layer_input, 0 for
	// none.
	PerLayerInput int

	// Experts beside every MLP; zeros without (enable_moe_block).
	Experts            int // num_experts
	ExpertsPerToken    int // top_k_experts, at most Experts
	ExpertIntermediate int // moe_intermediate_size

	// SlidingWindow is the number of positions that a sliding layer sees, its own included: sliding_window.
	SlidingWindow int

	RMSNormEps        float64 // rms_norm_eps, of every norm
	FinalLogitSoftcap float64 // final_logit_softcapping c, for c·tanh(logits/c); 0 if null: no cap
	TieWordEmbeddings bool    // tie_word_embeddings: lm_head is the embedding
	MaxPositions      int     // max_position_embeddings: positions the model was made for; 0 if not given
}

// AttentionGeometry is the shape of the attention of one kind of layer.
type AttentionGeometry struct {
	Heads   int // num_attention_heads, a multiple of KVHeads
	KVHeads int // num_key_value_heads
	HeadDim int // head_dim, even

	// RotaryDim elements of a head are rotated, in pairs (i, i + HeadDim/2) for i < RotaryDim/2, by the
	// frequencies RopeTheta^(−2i/HeadDim); the others stay (transformers' "proportional" RoPE, which divides by
	// HeadDim and not by RotaryDim). It is HeadDim without a partial_rotary_factor, else 2⌊factor·HeadDim/2⌋.
	RotaryDim int
	RopeTheta float64 // rope_theta
}

// Vocabulary is VocabSize.
func (c *Gemma4) Vocabulary() int { return c.VocabSize }

// Depth returns the number of layers.
func (c *Gemma4) Depth() int { return len(c.Layers) }

// KVLayer returns the layer whose keys and values a layer attends to: itself, or the last one of its kind before the
// layers that share.
func (c *Gemma4) KVLayer(layer int) int {
	first := len(c.Layers) - c.SharedKVLayers
	if layer < first {
		return layer
	}
	for i := first - 1; i >= 0; i-- {
		if c.Layers[i] == c.Layers[layer] {
			return i
		}
	}
	return layer // check refuses such configurations
}

// MLPRows returns the number of rows of the MLP of a layer.
func (c *Gemma4) MLPRows(layer int) int {
	if c.DoubleWideMLP && layer >= len(c.Layers)-c.SharedKVLayers {
		return 2 * c.IntermediateSize
	}
	return c.IntermediateSize
}

func parseGemma4(root, text section) Config {
	c := readGemma(root, text, false)
	c.readPerLayerInput(text)
	if text.boolean("enable_moe_block", false) {
		c.Experts = text.integer("num_experts", 1, maxExperts)
		c.ExpertsPerToken = text.integer("top_k_experts", 1, maxExperts)
		rows := "moe_intermediate_size"
		if !text.has(rows) && text.has("expert_intermediate_size") { // an earlier name
			rows = "expert_intermediate_size"
		}
		c.ExpertIntermediate = text.integer(rows, 1, maxSize)
		if text.doc.sound() && c.ExpertsPerToken > c.Experts {
			text.fault("top_k_experts", fmt.Sprintf("at most num_experts (%d)", c.Experts))
		}
	}
	return c
}

func parseGemma4Unified(root, text section) Config { return readGemma(root, text, false) }

// readGemma reads what all families have. An assistant has no keys and values of its own.
func readGemma(root, text section, assistant bool) *Gemma4 {
	c := &Gemma4{
		VocabSize:        text.integer("vocab_size", 1, maxSize),
		HiddenSize:       text.integer("hidden_size", 1, maxSize),
		IntermediateSize: text.integer("intermediate_size", 1, maxSize),
		Sliding: AttentionGeometry{
			Heads:   text.integer("num_attention_heads", 1, maxSize),
			KVHeads: text.integer("num_key_value_heads", 1, maxSize),
			HeadDim: text.integer("head_dim", 1, maxSize),
		},
		SlidingWindow:     text.integer("sliding_window", 1, maxPositions),
		RMSNormEps:        text.number("rms_norm_eps"),
		TieWordEmbeddings: tied(root, text, true),
		MaxPositions:      positions(text),
	}
	if value, ok := text.values["final_logit_softcapping"]; !ok || value != nil {
		c.FinalLogitSoftcap = text.number("final_logit_softcapping")
	}
	c.Layers = gemmaLayers(text, text.integer("num_hidden_layers", 1, maxLayers))
	rope, _ := text.object("rope_parameters")
	if !text.has("rope_parameters") {
		text.fault("rope_parameters", "an object with full_attention and sliding_attention")
	}
	sliding, full := gemmaRope(rope, SlidingAttention), gemmaRope(rope, FullAttention)
	refuseGemmaVariants(text)
	c.readSharing(text, assistant)
	overrides, listed := text.object("per_layer_config")
	global := c.globalGeometry(text, !listed)
	if !text.doc.sound() {
		return c
	}

	if listed {
		c.Full = c.perLayerGeometry(overrides)
	}
	if !listed || global.HeadDim != 0 {
		if listed && global != c.Full {
			text.doc.fault(overrides.path,
				fmt.Sprintf("what global_head_dim and num_global_key_value_heads say (%d, %d)", global.HeadDim,
					global.KVHeads), fmt.Sprintf("%d, %d", c.Full.HeadDim, c.Full.KVHeads))
		}
		c.Full = global
	}
	if !text.doc.sound() {
		return c
	}
	c.Sliding.check(text, "head_dim", "num_key_value_heads")
	if listed {
		c.Full.check(text, "per_layer_config", "those of per_layer_config")
	} else {
		c.Full.check(text, "global_head_dim", "num_global_key_value_heads")
	}
	c.Sliding.rotate(sliding)
	c.Full.rotate(full)
	return c
}

func gemmaLayers(text section, layers int) []LayerKind {
	kinds := layerTypes(text, layers, FullAttention, SlidingAttention)
	if kinds != nil && kinds[layers-1] != FullAttention {
		text.doc.fault(fmt.Sprintf("%s[%d]", text.key("layer_types"), layers-1), `"full_attention" in the last layer`,
			fmt.Sprintf("%q", kinds[layers-1]))
	}
	return kinds
}

// The shape of the full-attention layers comes in two forms: per_layer_config, which lists by layer what differs
// (transformers from 5.15 on), or global_head_dim and num_global_key_value_heads. A file with both must say the
// same twice.

// globalGeometry reads the second form. Where it is not required and not there, the head dim is 0.
func (c *Gemma4) globalGeometry(text section, required bool) AttentionGeometry {
	if !required && !text.has("global_head_dim") && !text.has("num_global_key_value_heads") {
		return AttentionGeometry{}
	}
	global := c.Sliding
	global.HeadDim = text.integer("global_head_dim", 1, maxSize)
	// null says that all layers have num_key_value_heads, and so do full layers with values of their own.
	if c.FullValues {
		return global
	}
	if value, ok := text.values["num_global_key_value_heads"]; !ok || value != nil {
		global.KVHeads = text.integer("num_global_key_value_heads", 1, maxSize)
	}
	return global
}

// perLayerGeometry reads {"5": {"head_dim": 512, "num_key_value_heads": 4}, …}. Keys are layers, which may have
// leading zeros; what a layer does not list is as for all. All full layers must come out the same, and all sliding
// ones unchanged.
func (c *Gemma4) perLayerGeometry(overrides section) AttentionGeometry {
	geometry := slices.Repeat([]AttentionGeometry{c.Sliding}, len(c.Layers))
	seen := make(map[int]bool)
	for _, key := range slices.Sorted(maps.Keys(overrides.values)) {
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(c.Layers) || seen[i] {
			overrides.doc.fault(overrides.path, fmt.Sprintf("for keys layers from 0 to %d, each once", len(c.Layers)-1),
				strconv.Quote(clip(key)))
			continue
		}
		seen[i] = true
		layer, ok := overrides.object(key)
		if !ok && !overrides.has(key) {
			overrides.fault(key, "an object")
		}
		for _, name := range slices.Sorted(maps.Keys(layer.values)) {
			switch name {
			case "head_dim":
				geometry[i].HeadDim = layer.integer(name, 1, maxSize)
			case "num_key_value_heads":
				geometry[i].KVHeads = layer.integer(name, 1, maxSize)
			default:
				layer.fault(name, "head_dim and num_key_value_heads, the only keys that etc supports here")
			}
		}
	}
	full := geometry[slices.Index(c.Layers, FullAttention)] // the last layer is one
	for i, kind := range c.Layers {
		want := c.Sliding
		if kind == FullAttention {
			want = full
		}
		if geometry[i] != want && overrides.doc.sound() {
			overrides.doc.fault(fmt.Sprintf("%s.%d", overrides.path, i),
				fmt.Sprintf("head_dim %d and num_key_value_heads %d, as in the other layers of its kind", want.HeadDim,
					want.KVHeads), fmt.Sprintf("%d and %d", geometry[i].HeadDim, geometry[i].KVHeads))
		}
	}
	return full
}

// check notes what is odd about a geometry; the keys are those it comes from.
func (g AttentionGeometry) check(text section, headDimKey, kvHeadsKey string) {
	divides(text, "num_attention_heads", g.Heads, kvHeadsKey, g.KVHeads)
	if g.HeadDim%2 != 0 {
		text.doc.fault(text.key(headDimKey), "an even head dim", fmt.Sprint(g.HeadDim))
	}
}

// ropeParameters is one entry of rope_parameters.
type ropeParameters struct {
	section section
	theta   float64
	factor  float64 // part of the head that is rotated
}

// gemmaRope reads the entry for a kind of layer.
func gemmaRope(rope section, kind LayerKind) ropeParameters {
	s, ok := rope.object(kind.String())
	if !ok {
		if rope.doc != nil && !rope.has(kind.String()) {
			rope.fault(kind.String(), "an object with rope_type and rope_theta")
		}
		return ropeParameters{}
	}
	p := ropeParameters{section: s, theta: s.number("rope_theta"), factor: 1}
	s.only("factor", 1.0)
	switch ropeType := s.text("rope_type"); {
	case ropeType == "default":
		s.only("partial_rotary_factor", 1.0)
	case ropeType == "proportional" && kind == FullAttention:
		p.factor = s.number("partial_rotary_factor")
	case kind == FullAttention:
		s.fault("rope_type", `"proportional" or "default", the only values that etc supports`)
	default:
		s.fault("rope_type", `"default", the only value that etc supports`)
	}
	return p
}

// rotate sets the rotary part of a geometry.
func (g *AttentionGeometry) rotate(p ropeParameters) {
	g.RopeTheta = p.theta
	g.RotaryDim = 2 * int(math.Floor(p.factor*float64(g.HeadDim)/2))
	if p.factor > 1 || g.RotaryDim < 2 {
		p.section.fault("partial_rotary_factor",
			fmt.Sprintf("a number up to 1 that leaves rotary dims of head_dim %d", g.HeadDim))
	}
}

// refuseGemmaVariants refuses the parts of other Gemma4 models that the graph does not have.
func refuseGemmaVariants(text section) {
	text.only("hidden_activation", "gelu_pytorch_tanh")
	text.only("attention_bias", false)
	// "vision" makes the tokens of an image see each other, and changes nothing for text.
	if text.has("use_bidirectional_attention") && text.values["use_bidirectional_attention"] != "vision" {
		text.fault("use_bidirectional_attention", `null or "vision", the only values that etc supports`)
	}
}

// readSharing reads which keys and values there are. Absence of attention_k_eq_v does not mean false: transformers'
// class has had both for its default.
func (c *Gemma4) readSharing(text section, assistant bool) {
	if !text.has("attention_k_eq_v") {
		text.fault("attention_k_eq_v", "true or false")
	}
	c.FullValues = !text.boolean("attention_k_eq_v", true)
	if assistant {
		if n := text.integer("num_kv_shared_layers", 0, maxLayers); text.doc.sound() && n != len(c.Layers) {
			text.fault("num_kv_shared_layers",
				fmt.Sprintf("num_hidden_layers (%d), as an assistant has no keys and values of its own", len(c.Layers)))
		}
		text.only("use_double_wide_mlp", false)
		return
	}
	c.DoubleWideMLP = text.boolean("use_double_wide_mlp", false)
	if text.has("num_kv_shared_layers") {
		c.SharedKVLayers = text.integer("num_kv_shared_layers", 0, max(0, len(c.Layers)-1))
	}
	if !text.doc.sound() {
		return
	}
	first := len(c.Layers) - c.SharedKVLayers
	for i := first; i < len(c.Layers); i++ {
		if !slices.Contains(c.Layers[:first], c.Layers[i]) {
			text.fault("num_kv_shared_layers",
				fmt.Sprintf("a layer of %s before the layers that share its keys and values", c.Layers[i]))
			return
		}
	}
}

// readPerLayerInput reads the width of the embeddings of layers. Absence does not mean none: transformers' class has
// 256 for its default.
func (c *Gemma4) readPerLayerInput(text section) {
	const key, vocabulary = "hidden_size_per_layer_input", "vocab_size_per_layer_input"
	if value, ok := text.values[key]; ok && value == nil {
		return
	}
	if c.PerLayerInput = text.integer(key, 0, maxSize); c.PerLayerInput == 0 {
		return
	}
	if n := text.integer(vocabulary, 1, maxSize); n != c.VocabSize {
		text.fault(vocabulary, fmt.Sprintf("vocab_size (%d), the only value that etc supports", c.VocabSize))
	}
}
