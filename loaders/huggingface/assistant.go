package huggingface

import "fmt"

// AssistantType is the model_type of assistants for Gemma 4.
const AssistantType = "gemma4_assistant"

// Gemma4Assistant is the configuration of a model that drafts tokens for a Gemma 4 (transformers'
// models/gemma4_assistant). Its layers attend to the target's keys and values and have none of their own.
type Gemma4Assistant struct {
	// Gemma4 is the content of text_config; SharedKVLayers is 0.
	Gemma4
	// TargetHidden is the target's hidden size: backbone_hidden_size.
	TargetHidden int
	// Centroids is the number of clusters of the vocabulary. The tokens of ChosenCentroids of them get exact logits:
	// num_centroids, centroid_intermediate_top_k. Both are 0 where all tokens get exact logits (use_ordered_embeddings
	// false).
	Centroids, ChosenCentroids int
}

// IsAssistant reports whether a config.json belongs to an assistant. It returns false for a text that is not a JSON
// object.
func IsAssistant(text []byte) bool {
	doc, root := parse(ConfigFile, text)
	return doc.err() == nil && root.text("model_type") == AssistantType
}

// ParseAssistant reads the config.json of an assistant. file serves for messages only. The error joins a [*ConfigError]
// for every key that is wrong.
func ParseAssistant(file string, text []byte) (*Gemma4Assistant, error) {
	doc, root := parse(file, text)
	if err := doc.err(); err != nil {
		return nil, err
	}
	if root.text("model_type") != AssistantType {
		root.fault("model_type", fmt.Sprintf("%q", AssistantType))
	}
	inner, ok := root.object("text_config")
	if !ok {
		if !root.has("text_config") {
			root.fault("text_config", "an object")
		}
		return nil, doc.err()
	}
	c := &Gemma4Assistant{Gemma4: *readGemma(root, inner, true)}
	c.TargetHidden = root.integer("backbone_hidden_size", 1, maxSize)
	inner.only("enable_moe_block", false)
	inner.only("hidden_size_per_layer_input", 0.0)
	if doc.sound() && !c.TieWordEmbeddings {
		root.fault("tie_word_embeddings", "true, the only value that etc supports in assistants")
	}
	if root.boolean("use_ordered_embeddings", false) {
		c.Centroids = root.integer("num_centroids", 1, maxSize)
		c.ChosenCentroids = root.integer("centroid_intermediate_top_k", 1, maxSize)
		if doc.sound() && c.ChosenCentroids > c.Centroids {
			root.fault("centroid_intermediate_top_k", fmt.Sprintf("at most num_centroids (%d)", c.Centroids))
		}
		if doc.sound() && c.VocabSize%c.Centroids != 0 {
			root.fault("num_centroids", fmt.Sprintf("a divisor of vocab_size (%d)", c.VocabSize))
		}
	}
	return c, doc.err()
}
