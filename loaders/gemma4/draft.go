package gemma4

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// AssistantNames is put before the names of an assistant's weights.
const AssistantNames = "assistant."

// centroidsPattern matches the weights that choose the tokens that get logits: like a router they stay at 8 bits.
const centroidsPattern = AssistantNames + centroids

const centroids = "masked_embedding.centroids.weight"

// assistant is a small Gemma 4 that drafts tokens from the embedding of a token and the hidden state before it, with
// the target's keys and values. h is its hidden size, H the target's.
type assistant struct {
	config    *huggingface.Gemma4Assistant
	in, out   weight // [h,2H], [H,h]
	layers    []layer
	norm      weight // [h]
	head      weight // [V,h]
	centroids weight // [C,h]; only where the configuration has centroids
	ordering  weight // i64 [C,V/C]: the tokens of each centroid
}

// ReadAssistant takes the weights of an assistant out of the tensors of its checkpoint. What does not fit the
// configuration is noted in t, which the caller asks before it calls use: that gives modules of the model the method
// draft. The error names what of the assistant does not fit the model.
func (m *Model) ReadAssistant(c *huggingface.Gemma4Assistant, t *builder.Tensors) (use func(), err error) {
	if err := m.fits(c); err != nil {
		return nil, err
	}
	t.Names = AssistantNames
	h := c.HiddenSize
	a := &assistant{
		config: c,
		in:     t.Matrix("pre_projection.weight", h, 2*c.TargetHidden),
		out:    t.Matrix("post_projection.weight", c.TargetHidden, h),
		norm:   t.Weight("norm.weight", h),
		head:   t.Matrix("embed_tokens.weight", c.VocabSize, h),
	}
	for i, kind := range c.Layers {
		prefix := fmt.Sprintf("layers.%d", i)
		queries := readQueries(&c.Gemma4, t, prefix+".self_attn.", kind)
		a.layers = append(a.layers, readLayer(&c.Gemma4, t, prefix, kind, c.IntermediateSize, queries))
	}
	if c.Centroids > 0 {
		a.centroids = t.Matrix(centroids, c.Centroids, h)
		if a.ordering, err = t.Permutation("masked_embedding.token_ordering", c.VocabSize); err != nil {
			return nil, err
		}
		a.ordering = a.ordering.Reshape(c.Centroids, c.VocabSize/c.Centroids)
	}
	return func() { m.draft = a }, nil
}

// fits checks that an assistant can attend to the keys and values of the model.
func (m *Model) fits(c *huggingface.Gemma4Assistant) error {
	var errs []error
	check := func(what string, assistant, target any) {
		if assistant != target {
			errs = append(errs, fmt.Errorf(
				"%s: the assistant has %v, the model %v; the assistant belongs to another model",
				what, assistant, target))
		}
	}
	check("backbone_hidden_size and hidden_size", c.TargetHidden, m.config.HiddenSize)
	check("vocab_size", c.VocabSize, m.config.VocabSize)
	for _, kind := range []huggingface.LayerKind{huggingface.SlidingAttention, huggingface.FullAttention} {
		if !slices.Contains(c.Layers, kind) {
			continue
		}
		if m.lastOf(kind) < 0 {
			errs = append(errs, fmt.Errorf("layer_types: the assistant has layers of %s, the model none", kind))
			continue
		}
		a, b := geometry(&c.Gemma4, kind), geometry(m.config, kind)
		a.Heads, b.Heads = 0, 0 // of queries, the assistant's own
		check("the attention of "+kind.String(), a, b)
		if kind == huggingface.SlidingAttention {
			check("sliding_window", c.SlidingWindow, m.config.SlidingWindow)
		}
	}
	return errors.Join(errs...)
}

// lastOf returns the last layer of a kind with keys and values of its own, -1 for none.
func (m *Model) lastOf(kind huggingface.LayerKind) int {
	for i, k := range slices.Backward(m.config.Layers) {
		if k == kind && m.config.KVLayer(i) == i {
			return i
		}
	}
	return -1
}

// methods returns those beside forward.
func (m *Model) methods() []builder.Method {
	if m.draft == nil {
		return nil
	}
	return []builder.Method{{Name: builder.Draft, Single: true,
		Make: func(g *builder.Graph) []*ir.Value { return m.drafted(g, m.draft) }}}
}

// drafted computes, for a token x[p] that forward has not had yet and the hidden state h[p-1] after the model's final
// norm, the logits of x[p+1], and the hidden state that takes the place of h[p-1] when the next token is drafted. That
// next one is drafted at position p again: the positions that an assistant attends to are those before p, which the
// model's caches hold, and in sliding layers the last window + 1 of them.
func (m *Model) drafted(g *builder.Graph, a *assistant) []*ir.Value {
	target := &forward{Graph: g, c: m.config}
	f := &forward{Graph: g, c: &a.config.Gemma4, given: map[huggingface.LayerKind]builder.KeysValues{}}
	hidden := f.Hidden(m.config.HiddenSize)
	for i, kind := range m.config.Layers {
		if i != m.lastOf(kind) || !slices.Contains(a.config.Layers, kind) {
			continue
		}
		prefix := m.weights.layers[i].prefix + ".self_attn"
		keys, values := f.CacheInput(prefix+builder.KeyCache), f.CacheInput(prefix+builder.ValueCache)
		if kind == huggingface.FullAttention {
			f.given[kind] = f.Past(keys, values)
		} else {
			f.given[kind] = f.PastWindow(keys, values, m.config.SlidingWindow+1)
		}
	}
	both := f.Value("concatenate", &ir.AxisAttrs{Axis: 2}, []*ir.Value{target.embed(m.weights.embedding), hidden})
	x := f.Linear(both, a.in)
	for i := range a.layers {
		x = f.layer(i, &a.layers[i], x, nil)
	}
	y := f.norm(x, a.norm)
	return []*ir.Value{f.head(a, f.LastRow(y)), f.Cast(f.Linear(y, a.out), ir.F32)}
}

// head returns the logits f32[1,V] for y [1,h]. With centroids only the tokens of those that y is nearest to have
// logits of their own; all others have one that is less than the smallest of them by 1.
func (f *forward) head(a *assistant, y *ir.Value) *ir.Value {
	if a.config.Centroids == 0 {
		return f.Cast(f.Linear(y, a.head), ir.F32)
	}
	c := a.config
	tokens := c.ChosenCentroids * (c.VocabSize / c.Centroids)
	top := f.Op("top_k", &ir.TopKAttrs{K: c.ChosenCentroids}, f.Linear(y, a.centroids))
	ids := f.Reshape(f.Value("take", &ir.AxisAttrs{Axis: 0}, f.Constant(a.ordering), top.Results[1]), tokens)
	rows := f.Cast(f.Value("embedding", nil, ids, f.Constant(a.head)), f.DType)
	logits := f.Cast(f.Value("addmm", nil, rows, f.Reshape(y, c.HiddenSize, 1)), ir.F32)
	least := f.Value("min", &ir.ReduceAttrs{Axes: []int{0}, Keepdims: true}, logits)
	others := f.Value("subtract", nil, least, f.Scalar(ir.F32, 1))
	all := f.Value("broadcast_to", nil, others, []int64{int64(c.VocabSize), 1})
	return f.Reshape(f.Value("index_copy", &ir.AxisAttrs{Axis: 0}, all, logits, ids), 1, c.VocabSize)
}
