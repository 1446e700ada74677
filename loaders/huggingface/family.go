package huggingface

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Family is a model family: what config.json calls it and how its configuration is read.
type Family struct {
	// Name is short and unique. It is what llama.cpp calls the family, where that has a name of its own for it without
	// a hyphen.
	Name string
	// Title is the usual name of the models. Sizes lists the published ones.
	Title, Sizes string
	// Classes are the class names of transformers: of the language model alone, and of the model with what it is
	// part of. A family may have only one of them.
	Classes []string
	// Types are the values of model_type: of the language model's configuration, and of one that has it as
	// text_config. A family without the latter has one value.
	Types []string

	parse func(root, text section) Config
}

// Families lists the supported families. Whatever else lists architectures is made of it.
var Families = []Family{
	{"qwen35moe", "Qwen3.5, Qwen3.6 MoE", "35B-A3B, 122B-A10B, 397B-A17B",
		[]string{"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
		[]string{"qwen3_5_moe_text", "qwen3_5_moe"}, parseQwen35MoE},
	{"qwen35", "Qwen3.5, Qwen3.6, Qwen3.8", "0.8B to 27B",
		[]string{"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}, []string{"qwen3_5_text", "qwen3_5"},
		parseQwen35},
	{"qwen3next", "Qwen3-Next, Qwen3-Coder-Next", "80B-A3B",
		[]string{"Qwen3NextForCausalLM"}, []string{"qwen3_next"}, parseQwen3Next},
	{"qwen3moe", "Qwen3 MoE, Qwen3-Coder", "30B-A3B, 235B-A22B, 480B-A35B",
		[]string{"Qwen3MoeForCausalLM"}, []string{"qwen3_moe"}, parseQwen3MoE},
	{"qwen3", "Qwen3", "0.6B to 32B",
		[]string{"Qwen3ForCausalLM"}, []string{"qwen3"}, parseQwen3},
	{"gemma4", "Gemma 4", "31B, 26B-A4B, E2B, E4B",
		[]string{"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"}, []string{"gemma4_text", "gemma4"},
		parseGemma4},
	{"gemma4unified", "Gemma 4 unified", "12B",
		[]string{"Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration"},
		[]string{"gemma4_unified_text", "gemma4_unified"}, parseGemma4Unified},
	{"museglimmer", "Muse Glimmer", "30B",
		[]string{"MuseGlimmerForConditionalGeneration"}, []string{"muse_glimmer_text", "muse_glimmer"},
		parseMuseGlimmer},
}

// FamilyNamed finds a family by its short name.
func FamilyNamed(name string) (Family, bool) {
	i := slices.IndexFunc(Families, func(f Family) bool { return f.Name == name })
	if i < 0 {
		return Family{}, false
	}
	return Families[i], true
}

// Architectures lists the supported architectures, sorted, by the class names of transformers that config.json has.
func Architectures() []string {
	var names []string
	for _, f := range Families {
		names = append(names, f.Classes...)
	}
	slices.Sort(names)
	return names
}

// ParseConfig reads a config.json. file serves for messages only. It returns the architecture's name and
// its configuration, or an error that joins a [*ConfigError] for every key that is wrong.
func ParseConfig(file string, text []byte) (string, Config, error) {
	doc, root := parse(file, text)
	if err := doc.err(); err != nil {
		return "", nil, err
	}
	name, _, config := readConfig(root)
	if err := doc.err(); err != nil {
		return "", nil, err
	}
	return name, config, nil
}

// readConfig chooses the reader by the architecture. Multimodal checkpoints have the language model's configuration in
// text_config, next to configurations of other parts, which are ignored; text-only ones have it at the top level.
func readConfig(root section) (class string, family Family, config Config) {
	class, family, ok := findFamily(root)
	if !ok {
		return "", family, nil
	}
	text, nested := root.object("text_config")
	switch {
	case !nested && root.has("text_config"):
		return "", family, nil
	case !nested:
		text = root
	case text.has("model_type") && text.text("model_type") != family.Types[0]:
		text.fault("model_type", show(family.Types[0]))
	}
	return class, family, family.parse(root, text)
}

// findFamily goes by architectures, and by model_type where that is missing.
func findFamily(root section) (class string, family Family, ok bool) {
	supported := "one of " + strings.Join(Architectures(), ", ")
	modelType := root.text("model_type")
	list, ok := root.array("architectures")
	if !ok && root.has("architectures") {
		return "", Family{}, false
	}
	if len(list) == 0 {
		for _, f := range Families {
			if slices.Contains(f.Types, modelType) {
				return f.Classes[0], f, true
			}
		}
		if modelType != "" {
			root.fault("model_type", "one of "+quotedTypes(Families, ", "))
		} else {
			root.fault("architectures", supported)
		}
		return "", Family{}, false
	}
	for _, f := range Families {
		for _, class := range f.Classes {
			if !slices.Contains(list, any(class)) {
				continue
			}
			if modelType != "" && !slices.Contains(f.Types, modelType) {
				root.fault("model_type",
					fmt.Sprintf("%s, as architectures has %s", quotedTypes([]Family{f}, " or "), class))
			}
			return class, f, true
		}
	}
	root.fault("architectures", supported)
	return "", Family{}, false
}

// quotedTypes lists the values of model_type of families, those with text_config first.
func quotedTypes(families []Family, separator string) string {
	var types []string
	for _, f := range families {
		for _, t := range slices.Backward(f.Types) {
			types = append(types, strconv.Quote(t))
		}
	}
	return strings.Join(types, separator)
}
