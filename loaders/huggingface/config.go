package huggingface

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Config is the configuration of one of the supported architectures: a [*Qwen35MoE] or a [*Gemma4].
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

// String gives the name of the kind in layer_types: "full_attention".
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

// architecture is one class name of transformers and how its configuration is read.
type architecture struct {
	name  string
	types []string // model_type of a configuration without text_config, and of one with it
	parse func(root, text section) Config
}

var (
	qwenTypes     = []string{"qwen3_5_moe_text", "qwen3_5_moe"}
	gemmaTypes    = []string{"gemma4_text", "gemma4"}
	architectures = []architecture{
		{"Gemma4ForCausalLM", gemmaTypes, parseGemma4},
		{"Gemma4ForConditionalGeneration", gemmaTypes, parseGemma4},
		{"Qwen3_5MoeForCausalLM", qwenTypes, parseQwen35MoE},
		{"Qwen3_5MoeForConditionalGeneration", qwenTypes, parseQwen35MoE},
	}
)

// Architectures lists the supported architectures by the class names of transformers that config.json has.
func Architectures() []string {
	var names []string
	for _, a := range architectures {
		names = append(names, a.name)
	}
	return names
}

// ParseConfig reads a config.json. file serves for messages only. It returns the architecture's name and
// its configuration, or an error that joins a [*ConfigError] for every key that is wrong.
func ParseConfig(file string, text []byte) (string, Config, error) {
	doc, root := parse(file, text)
	if err := doc.err(); err != nil {
		return "", nil, err
	}
	name, config := readConfig(root)
	if err := doc.err(); err != nil {
		return "", nil, err
	}
	return name, config, nil
}

// readConfig dispatches on the architecture. Multimodal checkpoints have the language model's configuration in
// text_config, beside those of the other parts, which are not read; text-only ones have it in the root.
func readConfig(root section) (string, Config) {
	arch, ok := findArchitecture(root)
	if !ok {
		return "", nil
	}
	text, nested := root.object("text_config")
	switch {
	case !nested && root.has("text_config"):
		return "", nil
	case !nested:
		text = root
	case text.has("model_type") && text.text("model_type") != arch.types[0]:
		text.fault("model_type", show(arch.types[0]))
	}
	return arch.name, arch.parse(root, text)
}

// findArchitecture goes by architectures, and by model_type where that is missing.
func findArchitecture(root section) (architecture, bool) {
	supported := "one of " + strings.Join(Architectures(), ", ")
	modelType := root.text("model_type")
	list, ok := root.array("architectures")
	if !ok && root.has("architectures") {
		return architecture{}, false
	}
	if len(list) == 0 {
		for _, a := range architectures {
			if slices.Contains(a.types, modelType) {
				return a, true
			}
		}
		if modelType != "" {
			root.fault("model_type", fmt.Sprintf("one of %s", quotedTypes()))
		} else {
			root.fault("architectures", supported)
		}
		return architecture{}, false
	}
	for _, a := range architectures {
		if slices.Contains(list, any(a.name)) {
			if modelType != "" && !slices.Contains(a.types, modelType) {
				root.fault("model_type", fmt.Sprintf("%q or %q, as architectures has %s", a.types[1], a.types[0], a.name))
			}
			return a, true
		}
	}
	root.fault("architectures", supported)
	return architecture{}, false
}

// quotedTypes lists the supported values of model_type.
func quotedTypes() string {
	var types []string
	for _, a := range architectures {
		for _, t := range a.types {
			if quoted := strconv.Quote(t); !slices.Contains(types, quoted) {
				types = append(types, quoted)
			}
		}
	}
	return strings.Join(types, ", ")
}

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
		text.doc.fault(text.key("layer_types"), fmt.Sprintf("%d entries, as num_hidden_layers has it", layers), fmt.Sprint(len(list)))
		return nil
	}
	kinds := make([]LayerKind, layers)
	for i, entry := range list {
		name, _ := entry.(string)
		kinds[i] = layerKinds[name]
		if !slices.Contains(allowed, kinds[i]) {
			text.doc.fault(fmt.Sprintf("%s[%d]", text.key("layer_types"), i), fmt.Sprintf("%q or %q", allowed[0], allowed[1]), show(entry))
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
