package gemma4

import (
	"fmt"

	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// weight is a shorthand for the many fields below.
type weight = builder.Weight

// weights are the tensors of the language model.
type weights struct {
	embedding weight // [V,H]
	layers    []layer
	norm      weight // [H]
	head      weight // [V,H]; the embedding if it is tied
}

// layer is a decoder layer. Norms are [H].
type layer struct {
	prefix                          string // of names: "layers.0"
	kind                            huggingface.LayerKind
	attentionNorm, attentionOutNorm weight // before and after attention
	attention                       attention
	mlpNorm, mlpOutNorm             weight // before and after the MLP
	gate, up, down                  weight // [I,H], [I,H], [H,I]
	scalar                          weight // [1], of the layer's whole result
}

// attention has heads of D elements; D and the number of heads differ between kinds of layers.
type attention struct {
	query              weight  // [heads·D,H]
	key                weight  // [KV heads·D,H]
	value              *weight // as key; nil in full layers
	output             weight  // [H,heads·D]
	queryNorm, keyNorm weight  // [D]
}

// geometry is the shape of the attention of a kind of layer.
func geometry(c *huggingface.Gemma4, kind huggingface.LayerKind) huggingface.AttentionGeometry {
	if kind == huggingface.FullAttention {
		return c.Full
	}
	return c.Sliding
}

// read asks for all tensors; what is missing is noted in t.
func read(c *huggingface.Gemma4, t *builder.Tensors) weights {
	h, rows := c.HiddenSize, c.IntermediateSize
	w := weights{embedding: t.Matrix("embed_tokens.weight", c.VocabSize, h)}
	for i, kind := range c.Layers {
		prefix := fmt.Sprintf("layers.%d", i)
		w.layers = append(w.layers, layer{
			prefix:           prefix,
			kind:             kind,
			attentionNorm:    t.Weight(prefix+".input_layernorm.weight", h),
			attention:        readAttention(c, t, prefix+".self_attn.", kind),
			attentionOutNorm: t.Weight(prefix+".post_attention_layernorm.weight", h),
			mlpNorm:          t.Weight(prefix+".pre_feedforward_layernorm.weight", h),
			gate:             t.Matrix(prefix+".mlp.gate_proj.weight", rows, h),
			up:               t.Matrix(prefix+".mlp.up_proj.weight", rows, h),
			down:             t.Matrix(prefix+".mlp.down_proj.weight", h, rows),
			mlpOutNorm:       t.Weight(prefix+".post_feedforward_layernorm.weight", h),
			scalar:           t.Weight(prefix+".layer_scalar", 1),
		})
	}
	w.norm = t.Weight("norm.weight", h)
	w.head = w.embedding
	if !c.TieWordEmbeddings || t.Has(builder.Head) {
		w.head = t.Matrix(builder.Head, c.VocabSize, h)
	}
	return w
}

func readAttention(c *huggingface.Gemma4, t *builder.Tensors, prefix string, kind huggingface.LayerKind) attention {
	h, g := c.HiddenSize, geometry(c, kind)
	a := attention{
		query:     t.Matrix(prefix+"q_proj.weight", g.Heads*g.HeadDim, h),
		key:       t.Matrix(prefix+"k_proj.weight", g.KVHeads*g.HeadDim, h),
		output:    t.Matrix(prefix+"o_proj.weight", h, g.Heads*g.HeadDim),
		queryNorm: t.Weight(prefix+"q_norm.weight", g.HeadDim),
		keyNorm:   t.Weight(prefix+"k_norm.weight", g.HeadDim),
	}
	if kind == huggingface.SlidingAttention {
		v := t.Matrix(prefix+"v_proj.weight", g.KVHeads*g.HeadDim, h)
		a.value = &v
	}
	return a
}
