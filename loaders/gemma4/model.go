package gemma4

import (
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Model is a Gemma 4 with its weights, ready to be built.
type Model struct {
	config  *huggingface.Gemma4
	tokens  huggingface.Tokens
	weights weights
	draft   *assistant // nil for none
	dtype   ir.DType   // of activations
}

// New takes the weights of the model out of a checkpoint's tensors. Tensors that are missing or do not fit are noted in
// t; the caller looks at t.Err before it builds.
func New(c *huggingface.Gemma4, tokens huggingface.Tokens, t *builder.Tensors) *Model {
	w := read(c, t)
	return &Model{c, tokens, w, nil, t.ActivationsFor(w.embedding)}
}

// defaultChunk is the default prefill chunk, that of ExecuTorch's exporter.
const defaultChunk = 256

// Build makes the module of the model; see [builder.Build] for its inputs and outputs.
func (m *Model) Build(o builder.Options) (*ir.Module, error) {
	limits := builder.Limits{Positions: m.config.MaxPositions, Chunk: defaultChunk}
	for _, kind := range m.config.Layers {
		if kind == huggingface.SlidingAttention {
			limits.Window = m.config.SlidingWindow
		}
	}
	d := builder.Decoder{
		DType:      m.dtype,
		Vocabulary: m.config.VocabSize,
		Depth:      len(m.config.Layers),
		Limits:     limits,
		Tokens:     m.tokens,
	}
	return builder.Build(d, o, func(g *builder.Graph) *ir.Value {
		f := &forward{Graph: g, c: m.config}
		return f.run(&m.weights)
	}, m.methods()...)
}

// Sensitive lists patterns of names of weights that stay at 8 bits where others have 4: the router, and the projections
// of layers' own embeddings, which add to the residual stream in every layer.
func (m *Model) Sensitive() []string {
	var patterns []string
	if m.config.Experts > 0 {
		patterns = append(patterns, "*.router.proj.weight")
	}
	if m.config.PerLayerInput > 0 {
		patterns = append(patterns,
			"per_layer_model_projection.weight", "*.per_layer_input_gate.weight", "*.per_layer_projection.weight")
	}
	if m.draft != nil && m.draft.config.Centroids > 0 {
		patterns = append(patterns, centroidsPattern)
	}
	return patterns
}

// forward builds the graph of the method forward. Its methods add the operations of a part of the model and return the
// value that the part gives; nothing is computed then.
type forward struct {
	*builder.Graph
	c *huggingface.Gemma4
	// kv are the keys and values of layers, as attention reads them, for the layers that share them.
	kv map[int]builder.KeysValues
	// given has, in an assistant, the target's keys and values for each kind of layer; nil in other models.
	given map[huggingface.LayerKind]builder.KeysValues
}

// run adds the operations of the whole model and returns the logits [1,S,V].
func (f *forward) run(w *weights) *ir.Value {
	f.kv = map[int]builder.KeysValues{}
	x := f.embed(w.embedding)
	var inputs *ir.Value
	if w.perLayer != nil {
		inputs = f.perLayer(w.perLayer, x)
	}
	for i := range w.layers {
		x = f.layer(i, &w.layers[i], x, inputs)
	}
	return f.Softcap(f.Cast(f.Linear(f.norm(x, w.norm), w.head), ir.F32), f.c.FinalLogitSoftcap)
}

// embed returns the scaled embeddings [1,S,H] of the tokens.
func (f *forward) embed(table weight) *ir.Value {
	return f.Cast(f.Multiply(f.Embed(table), f.root("embed_scale", f.c.HiddenSize)), f.DType)
}

// root returns the constant √n.
func (f *forward) root(name string, n int) *ir.Value { return f.number(name, math.Sqrt(float64(n))) }

// number returns a constant that the authors keep in float32.
func (f *forward) number(name string, v float64) *ir.Value {
	return f.Constant(weight{Name: name, Data: ir.Exact(ir.Float32s(nil, float32(v)))})
}

// perLayer returns the inputs of all layers [1,S,L,P] for the embeddings x [1,S,H] of the tokens: the mean of a
// projection of them, normalised by layer, and of the layers' own embeddings, times √2.
func (f *forward) perLayer(w *perLayer, x *ir.Value) *ir.Value {
	layers, width := len(f.c.Layers), f.c.PerLayerInput
	own := f.Multiply(f.Embed(w.embedding), f.root("embed_per_layer_scale", width))
	scale := f.number("per_layer_projection_scale", 1/math.Sqrt(float64(f.c.HiddenSize)))
	projected := f.Multiply(f.Linear(x, w.projection), scale)
	projected = f.norm(f.Heads(projected, layers, width), w.norm)
	both := f.Add(projected, f.Heads(f.Cast(own, f.DType), layers, width))
	return f.Cast(f.Multiply(both, f.number("per_layer_input_scale", 1/math.Sqrt2)), f.DType)
}

func (f *forward) norm(x *ir.Value, w weight) *ir.Value { return f.Norm(x, w, f.c.RMSNormEps) }

// layer adds decoder layer number i to the graph, for the residual stream x [1,S,H]. inputs [1,S,L,P] are what perLayer
// returns; nil in models without embeddings for each layer.
func (f *forward) layer(i int, l *layer, x, inputs *ir.Value) *ir.Value {
	y := f.attention(i, &l.attention, l.prefix+".self_attn", l.kind, f.norm(x, l.attentionNorm))
	x = f.Add(x, f.norm(y, l.attentionOutNorm))

	y = f.gated(f.norm(x, l.mlpNorm), l.prefix+".mlp.gate_up_proj.weight", l.gate, l.up, l.down)
	if l.experts != nil {
		y = f.Add(f.norm(y, l.experts.denseOutNorm), f.norm(f.experts(l.experts, x), l.experts.outNorm))
	}
	x = f.Add(x, f.norm(y, l.mlpOutNorm))
	if l.input != nil {
		own := f.Reshape(f.Slice(inputs, 2, i, i+1), 1, -1, f.c.PerLayerInput)
		y = f.Linear(f.Multiply(f.gelu(f.Linear(x, l.input.gate)), own), l.input.projection)
		x = f.Add(x, f.norm(y, l.input.outNorm))
	}
	return f.Cast(f.Multiply(x, f.Constant(l.scalar)), f.DType)
}

func (f *forward) gelu(x *ir.Value) *ir.Value {
	return f.Value("gelu", &ir.GeluAttrs{Approximate: "tanh"}, x)
}

// gated adds a gated MLP to the graph. fused is the name of the weight that gate and up become where the compiler joins
// them.
func (f *forward) gated(x *ir.Value, fused string, gate, up, down weight) *ir.Value {
	p := f.Projections(x, fused, gate, up)
	return f.Linear(f.Multiply(f.gelu(p[0]), p[1]), down)
}

// experts adds the mixture of experts to the graph, for the residual stream x [1,S,H]. Router and experts have norms of
// their own. The result is the sum over the experts with the highest router scores, weighted by the softmax over these
// scores (which equals the softmax over all scores, renormalised) times the scale of each.
func (f *forward) experts(w *experts, x *ir.Value) *ir.Value {
	routed := f.RawNorm(x, f.Constant(w.routerScale), f.c.RMSNormEps)
	top := f.Op("top_k", &ir.TopKAttrs{K: f.c.ExpertsPerToken}, f.Value("linear", nil, routed, f.Constant(w.router)))
	scores := f.Value("softmax", &ir.SoftmaxAttrs{Axis: -1, Precise: true}, top.Results[0])
	scales := f.Reshape(f.Value("take", nil, f.Constant(w.scale), top.Results[1]), 1, -1, f.c.ExpertsPerToken)
	gate, up, down := f.Constant(w.gate), f.Constant(w.up), f.Constant(w.down)
	weights := f.Multiply(scores, scales)
	return f.Cast(f.Value("switch_geglu", nil, f.norm(x, w.norm), gate, up, down, top.Results[1], weights), f.DType)
}

// attention adds the attention of layer number i to the graph. Queries, keys and values are normalised by head, the
// values without weights; queries and keys are rotated. A layer that attends to keys and values of another one projects
// queries only.
func (f *forward) attention(i int, w *attention, prefix string, kind huggingface.LayerKind, x *ir.Value) *ir.Value {
	g, from := geometry(f.c, kind), f.c.KVLayer(i)
	own := from == i && f.given == nil
	matrices := []weight{w.query}
	if own {
		matrices = append(matrices, w.key)
	}
	if w.value != nil {
		matrices = append(matrices, *w.value)
	}
	p := f.Projections(x, prefix+".qkv_proj.weight", matrices...)
	q := f.SwapHeads(f.norm(f.Heads(p[0], g.Heads, g.HeadDim), w.queryNorm))
	var k, v *ir.Value
	if own {
		rawKeys := f.Heads(p[1], g.KVHeads, g.HeadDim)
		values := rawKeys
		if w.value != nil {
			values = f.Heads(p[2], g.KVHeads, g.HeadDim)
		}
		k = f.SwapHeads(f.norm(rawKeys, w.keyNorm))
		v = f.SwapHeads(f.RawNorm(values, nil, f.c.RMSNormEps))
	}
	q = f.rotate(q, kind, g)
	if own {
		f.kv[i] = f.cached(prefix, f.rotate(k, kind, g), v, kind)
	}
	kv, ok := f.given[kind]
	if !ok {
		kv = f.kv[from]
	}
	const scale = 1
	y := f.AttendTo(q, kv, scale)
	return f.Linear(f.Reshape(f.SwapHeads(y), 1, -1, g.Heads*g.HeadDim), w.output)
}

// cached writes keys and values to the caches of a layer of some kind.
func (f *forward) cached(prefix string, k, v *ir.Value, kind huggingface.LayerKind) builder.KeysValues {
	if kind == huggingface.FullAttention {
		return f.Cached(prefix, k, v)
	}
	return f.CachedWindow(prefix, k, v, f.c.SlidingWindow)
}

// rotate applies RoPE to heads [1,N,S,D].
func (f *forward) rotate(x *ir.Value, kind huggingface.LayerKind, g huggingface.AttentionGeometry) *ir.Value {
	if g.RotaryDim == g.HeadDim {
		return f.Rope(x, g.HeadDim, g.RopeTheta)
	}
	return f.RopeFreqs(x, weight{Name: "rope." + kind.String() + ".freqs", Data: proportional(g)})
}

// proportional returns the divisors of the positions of proportional RoPE f32[D/2]: theta^(2i/D) for the
// pairs of the rotary part, and infinity, which rotates by nothing, for the others.
func proportional(g huggingface.AttentionGeometry) ir.Data {
	freqs := make([]float32, g.HeadDim/2)
	for i := range freqs {
		freqs[i] = float32(math.Inf(1))
		if i < g.RotaryDim/2 {
			freqs[i] = float32(numeric.Pow(g.RopeTheta, float64(2*i)/float64(g.HeadDim)))
		}
	}
	return ir.Exact(ir.Float32s([]int64{int64(len(freqs))}, freqs...))
}
