package gemma4

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// weight is a shorthand for the many fields below.
type weight = builder.Weight

// weights are the tensors of the language model.
type weights struct {
	embedding weight // [V,H]
	perLayer  *perLayer
	layers    []layer
	norm      weight // [H]
	head      weight // [V,H]; the embedding if it is tied
}

// perLayer is the embedding of width P that each of L layers has of its own.
type perLayer struct {
	embedding  weight // [V,L·P]
	projection weight // [L·P,H], of the embedding of tokens
	norm       weight // [P], of that projection
}

// layer is a decoder layer. Norms are [H].
type layer struct {
	prefix                          string // of names: "layers.0"
	kind                            huggingface.LayerKind
	attentionNorm, attentionOutNorm weight // before and after attention
	attention                       attention
	mlpNorm, mlpOutNorm             weight // before and after the MLP, and the experts
	gate, up, down                  weight // [I,H], [I,H], [H,I]
	experts                         *experts
	input                           *layerInput
	scalar                          weight // [1], of the layer's whole result
}

// experts are the E routed experts of a layer that also has an MLP; each has I rows.
type experts struct {
	denseOutNorm, norm, outNorm weight // after the MLP; before and after the experts
	routerScale                 weight // [H]/√H, of the norm before the router
	router                      weight // [E,H]
	scale                       weight // [E]: what an expert's weight is multiplied by
	gate, up, down              weight // [E,I,H], [E,I,H], [E,H,I]
}

// layerInput is how a layer uses its own embedding of width P.
type layerInput struct {
	gate, projection weight // [P,H], [H,P]
	outNorm          weight
}

// attention has heads of D elements; D and the number of heads differ between kinds of layers.
type attention struct {
	query              weight  // [heads·D,H]
	key                weight  // [KV heads·D,H]; without data where the keys and values are those of another layer
	value              *weight // as key; nil where the keys before their norm are the values
	output             weight  // [H,heads·D]
	queryNorm, keyNorm weight  // [D]
}

// geometry returns the shape of the attention of a kind of layer.
func geometry(c *huggingface.Gemma4, kind huggingface.LayerKind) huggingface.AttentionGeometry {
	if kind == huggingface.FullAttention {
		return c.Full
	}
	return c.Sliding
}

// read asks for all tensors; what is missing is noted in t.
func read(c *huggingface.Gemma4, t *builder.Tensors) weights {
	h := c.HiddenSize
	w := weights{embedding: t.Matrix("embed_tokens.weight", c.VocabSize, h)}
	if width := c.PerLayerInput; width > 0 {
		w.perLayer = &perLayer{
			embedding:  t.Matrix("embed_tokens_per_layer.weight", c.VocabSize, len(c.Layers)*width),
			projection: t.Matrix("per_layer_model_projection.weight", len(c.Layers)*width, h),
			norm:       t.Weight("per_layer_projection_norm.weight", width),
		}
	}
	for i, kind := range c.Layers {
		prefix := fmt.Sprintf("layers.%d", i)
		l := readLayer(c, t, prefix, kind, c.MLPRows(i), readAttention(c, t, prefix+".self_attn.", i))
		if c.Experts > 0 {
			l.experts = readExperts(c, t, prefix+".")
		}
		if width := c.PerLayerInput; width > 0 {
			l.input = &layerInput{
				gate:       t.Matrix(prefix+".per_layer_input_gate.weight", width, h),
				projection: t.Matrix(prefix+".per_layer_projection.weight", h, width),
				outNorm:    t.Weight(prefix+".post_per_layer_input_norm.weight", h),
			}
		}
		w.layers = append(w.layers, l)
	}
	w.norm = t.Weight("norm.weight", h)
	w.head = w.embedding
	if !c.TieWordEmbeddings || t.Has(builder.Head) {
		w.head = t.Matrix(builder.Head, c.VocabSize, h)
	}
	return w
}

// readLayer reads the weights that all layers have, except for attention.
func readLayer(c *huggingface.Gemma4, t *builder.Tensors, prefix string, kind huggingface.LayerKind,
	rows int, a attention) layer {
	h := c.HiddenSize
	return layer{
		prefix:           t.Names + prefix,
		kind:             kind,
		attentionNorm:    t.Weight(prefix+".input_layernorm.weight", h),
		attention:        a,
		attentionOutNorm: t.Weight(prefix+".post_attention_layernorm.weight", h),
		mlpNorm:          t.Weight(prefix+".pre_feedforward_layernorm.weight", h),
		gate:             t.Matrix(prefix+".mlp.gate_proj.weight", rows, h),
		up:               t.Matrix(prefix+".mlp.up_proj.weight", rows, h),
		down:             t.Matrix(prefix+".mlp.down_proj.weight", h, rows),
		mlpOutNorm:       t.Weight(prefix+".post_feedforward_layernorm.weight", h),
		scalar:           t.Weight(prefix+".layer_scalar", 1),
	}
}

// readQueries reads the weights of attention, except for keys and values.
func readQueries(c *huggingface.Gemma4, t *builder.Tensors, prefix string, kind huggingface.LayerKind) attention {
	h, g := c.HiddenSize, geometry(c, kind)
	return attention{
		query:     t.Matrix(prefix+"q_proj.weight", g.Heads*g.HeadDim, h),
		output:    t.Matrix(prefix+"o_proj.weight", h, g.Heads*g.HeadDim),
		queryNorm: t.Weight(prefix+"q_norm.weight", g.HeadDim),
	}
}

func readAttention(c *huggingface.Gemma4, t *builder.Tensors, prefix string, layer int) attention {
	kind := c.Layers[layer]
	h, g := c.HiddenSize, geometry(c, kind)
	a := readQueries(c, t, prefix, kind)
	if c.KVLayer(layer) != layer {
		t.Skip(builder.SharedKV, prefix+"k_proj.weight", prefix+"v_proj.weight", prefix+"k_norm.weight")
		return a
	}
	a.key = t.Matrix(prefix+"k_proj.weight", g.KVHeads*g.HeadDim, h)
	a.keyNorm = t.Weight(prefix+"k_norm.weight", g.HeadDim)
	if kind == huggingface.SlidingAttention || c.FullValues {
		v := t.Matrix(prefix+"v_proj.weight", g.KVHeads*g.HeadDim, h)
		a.value = &v
	}
	return a
}

func readExperts(c *huggingface.Gemma4, t *builder.Tensors, prefix string) *experts {
	h := c.HiddenSize
	e := &experts{
		denseOutNorm: t.Weight(prefix+"post_feedforward_layernorm_1.weight", h),
		norm:         t.Weight(prefix+"pre_feedforward_layernorm_2.weight", h),
		outNorm:      t.Weight(prefix+"post_feedforward_layernorm_2.weight", h),
		routerScale:  t.Weight(prefix+"router.scale", h).Times(float32(1 / math.Sqrt(float64(h)))),
		router:       t.Matrix(prefix+"router.proj.weight", c.Experts, h),
		scale:        t.Weight(prefix+"router.per_expert_scale", c.Experts).Reshape(c.Experts, 1),
	}
	e.gate, e.up, e.down = t.Experts(prefix, c.Experts, c.ExpertIntermediate, h)
	return e
}
