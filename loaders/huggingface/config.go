package huggingface

import (
	"fmt"
	"slices"
)

// Config is the configuration of one of the supported architectures: a [*Qwen], a [*Gemma4] or a [*MuseGlimmer].
type Config interface {
	// Vocabulary is the number of token ids, the rows of the embedding and of the logits.
	Vocabulary() int
	// Depth is the number of decoder layers.
	Depth() int
}

// LayerKind is the attention of one decoder layer.
type LayerKind uint8

// The kinds of layers. A model has full-attention layers and those of one other kind.
const (
	FullAttention    LayerKind = iota + 1 // every earlier position
	SlidingAttention                      // the last SlidingWindow positions
	LinearAttention                       // a gated delta net: state of fixed size
)

var layerKinds = map[string]LayerKind{
	"full_attention": FullAttention, "sliding_attention": SlidingAttention, "linear_attention": LinearAttention,
}

// String returns the name of the kind in layer_types: "full_attention".
func (k LayerKind) String() string {
	for name, kind := range layerKinds {
		if kind == k {
			return name
		}
	}
	return fmt.Sprintf("LayerKind(%d)", uint8(k))
}

// Bounds of sizes. They are far above any model of these architectures, and keep what a hostile
// configuration can make a reader allocate, or a product of sizes overflow, within reason.
const (
	maxSize      = 1 << 24
	maxLayers    = 1 << 12
	maxExperts   = 1 << 16
	maxPositions = 1<<31 - 1
)

// tied reads tie_word_embeddings. transformers goes by the outermost configuration; without the key a class has
// its own fallback.
func tied(root, text section, fallback bool) bool {
	return root.boolean("tie_word_embeddings", text.boolean("tie_word_embeddings", fallback))
}

// layerTypes reads layer_types, which must have an entry of one of the allowed kinds for each layer.
func layerTypes(text section, layers int, allowed ...LayerKind) []LayerKind {
	list, ok := text.array("layer_types")
	if !ok {
		if !text.has("layer_types") {
			text.fault("layer_types", fmt.Sprintf("an array with the kind of each of the %d layers", layers))
		}
		return nil
	}
	if len(list) != layers {
		text.doc.fault(text.key("layer_types"), fmt.Sprintf("%d entries, as num_hidden_layers has it", layers),
			fmt.Sprint(len(list)))
		return nil
	}
	kinds := make([]LayerKind, layers)
	for i, entry := range list {
		name, _ := entry.(string)
		kinds[i] = layerKinds[name]
		if !slices.Contains(allowed, kinds[i]) {
			text.doc.fault(fmt.Sprintf("%s[%d]", text.key("layer_types"), i),
				fmt.Sprintf("%q or %q", allowed[0], allowed[1]), show(entry))
			return nil
		}
	}
	return kinds
}

// divides notes a fault where the value of the first key is no multiple of the second's.
func divides(s section, key string, value int, divisorKey string, divisor int) {
	if value%divisor != 0 {
		s.doc.fault(s.key(key), fmt.Sprintf("a multiple of %s (%d)", divisorKey, divisor), fmt.Sprint(value))
	}
}

// positions reads max_position_embeddings, which decides no shape: 0 where it is absent.
func positions(text section) int {
	if !text.has("max_position_embeddings") {
		return 0
	}
	return text.integer("max_position_embeddings", 1, maxPositions)
}
