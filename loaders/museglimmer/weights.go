package museglimmer

import (
	"fmt"

	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// weight is a shorthand for the many fields below.
type weight = builder.Weight

// weights are the tensors of the language model. Norms are given as what they multiply by.
type weights struct {
	embedding weight // [V,H]
	layers    []layer
	norm      weight // [H]
	head      weight // [V,H]; the embedding if it is tied
}

// layer is a decoder layer with heads of D elements and an MLP of I rows. Norms are [H].
type layer struct {
	prefix                          string // of names: "layers.0"
	attentionNorm, attentionOutNorm weight // before and after attention
	query, key, value               weight // [heads·D,H], [KV heads·D,H] twice
	gate                            weight // [heads·D,H], of attention's result
	output                          weight // [H,heads·D]
	mlpNorm, mlpOutNorm             weight // before and after the MLP
	mlpGate, mlpUp, mlpDown         weight // [I,H], [I,H], [H,I]
}

// read asks for all tensors; what is missing is noted in t.
func read(c *huggingface.MuseGlimmer, t *builder.Tensors) weights {
	h, heads, kv, rows := c.HiddenSize, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.Intermediate
	w := weights{embedding: t.Matrix("embed_tokens.weight", c.VocabSize, h)}
	for i := range c.Layers {
		prefix := fmt.Sprintf("layers.%d", i)
		norm := func(name string) weight {
			w := t.Weight(prefix+"."+name+".weight", h)
			if t.Multipliers {
				return w
			}
			return w.OnePlus()
		}
		attention, mlp := prefix+".self_attn.", prefix+".mlp."
		w.layers = append(w.layers, layer{
			prefix:           prefix,
			attentionNorm:    norm("input_layernorm"),
			query:            t.Matrix(attention+"q_proj.weight", heads, h),
			key:              t.Matrix(attention+"k_proj.weight", kv, h),
			value:            t.Matrix(attention+"v_proj.weight", kv, h),
			gate:             t.Matrix(attention+"gate_proj.weight", heads, h),
			output:           t.Matrix(attention+"o_proj.weight", h, heads),
			attentionOutNorm: norm("post_attention_layernorm"),
			mlpNorm:          norm("pre_feedforward_layernorm"),
			mlpGate:          t.Matrix(mlp+"gate_proj.weight", rows, h),
			mlpUp:            t.Matrix(mlp+"up_proj.weight", rows, h),
			mlpDown:          t.Matrix(mlp+"down_proj.weight", h, rows),
			mlpOutNorm:       norm("post_feedforward_layernorm"),
		})
	}
	w.norm = t.Weight("norm.weight", h)
	w.head = w.embedding
	if !c.TieWordEmbeddings || t.Has(builder.Head) {
		w.head = t.Matrix(builder.Head, c.VocabSize, h)
	}
	return w
}
