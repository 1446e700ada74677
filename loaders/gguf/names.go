package gguf

import (
	"fmt"
	"strconv"
	"strings"
)

// Names maps a model's tensors to the names that transformers gives them in the language model. Keys that begin with
// "blk." are of every layer and lack its number, and so do their values: "blk.attn_q.weight" to
// "layers.self_attn.q_proj.weight".
type Names map[string]string

// Find returns the name for a tensor and its layer, -1 for one outside of them. A name that is not in the table stays
// as it is, for the builder to refuse.
func (n Names) Find(name string) (as string, layer int) {
	key, layer := Key(name)
	as, ok := n[key]
	if !ok {
		return name, layer
	}
	if layer < 0 {
		return as, layer
	}
	return fmt.Sprintf("layers.%d.%s", layer, strings.TrimPrefix(as, "layers.")), layer
}

// Key returns the key of [Names] for a tensor, and its layer, -1 for one outside of them.
func Key(name string) (key string, layer int) {
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		number, inner, _ := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && strconv.Itoa(i) == number {
			return "blk." + inner, i
		}
	}
	return name, -1
}

// Layers reads the number of layers ARCH.block_count, of which every one must have tensors.
func (k *Keys) Layers(arch string) int {
	key := arch + ".block_count"
	n := k.Int(key, 1)
	if n > len(k.model.tensors) {
		k.Fault(key, fmt.Sprintf("layers that have tensors, of which there are %d", len(k.model.tensors)))
		return 1
	}
	return n
}

// Vocabulary returns the number of rows of the embedding.
func (k *Keys) Vocabulary() int {
	t, ok := k.model.byName["token_embd.weight"]
	if !ok || len(t.Shape) != 2 {
		k.faults = append(k.faults, &FormatError{k.model.path, "tensor token_embd.weight", -1,
			"an embedding of two dims", "none"})
		return 1
	}
	return int(t.Shape[0])
}
