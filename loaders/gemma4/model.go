package gemma4

import (
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Model is a dense Gemma4 with its weights, ready to be built.
type Model struct {
	config  *huggingface.Gemma4
	tokens  huggingface.Tokens
	weights weights
	dtype   ir.DType // of activations
}

// New takes the weights of the model out of a checkpoint's tensors. What does not fit is noted in t,
// which the caller asks before it builds.
func New(c *huggingface.Gemma4, tokens huggingface.Tokens, t *builder.Tensors) *Model {
	w := read(c, t)
	return &Model{c, tokens, w, t.ActivationsFor(w.embedding)}
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
		f := &forward{g, m.config}
		return f.run(&m.weights)
	})
}

// forward is a graph in the making.
type forward struct {
	*builder.Graph
	c *huggingface.Gemma4
}

// run computes the logits [1,S,V] of the tokens.
func (f *forward) run(w *weights) *ir.Value {
	root := ir.Exact(ir.Float32s(nil, float32(math.Sqrt(float64(f.c.HiddenSize)))))
	x := f.Cast(f.Multiply(f.Embed(w.embedding), f.Constant(weight{Name: "embed_scale", Data: root})), f.DType)
	for i := range w.layers {
		x = f.layer(&w.layers[i], x)
	}
	logits := f.Cast(f.Linear(f.norm(x, w.norm), w.head), ir.F32)
	if f.c.FinalLogitSoftcap == 0 {
		return logits
	}
	limit := f.Constant(weight{Name: "logit_softcap", Data: ir.Exact(ir.Float32s(nil, float32(f.c.FinalLogitSoftcap)))})
	return f.Multiply(f.Unary("tanh", f.Value("divide", nil, logits, limit)), limit)
}

func (f *forward) norm(x *ir.Value, w weight) *ir.Value { return f.Norm(x, w, f.c.RMSNormEps) }

// layer is a decoder layer for x [1,S,H].
func (f *forward) layer(l *layer, x *ir.Value) *ir.Value {
	y := f.attention(&l.attention, l.prefix+".self_attn", l.kind, f.norm(x, l.attentionNorm))
	x = f.Add(x, f.norm(y, l.attentionOutNorm))

	p := f.Projections(f.norm(x, l.mlpNorm), l.prefix+".mlp.gate_up_proj.weight", l.gate, l.up)
	gate := f.Value("gelu", &ir.GeluAttrs{Approximate: "tanh"}, p[0])
	y = f.Linear(f.Multiply(gate, p[1]), l.down)
	x = f.Add(x, f.norm(y, l.mlpOutNorm))
	return f.Cast(f.Multiply(x, f.Constant(l.scalar)), f.DType)
}

// attention normalises queries, keys and values by head, the values without weights, and rotates queries
// and keys.
func (f *forward) attention(w *attention, prefix string, kind huggingface.LayerKind, x *ir.Value) *ir.Value {
	g := geometry(f.c, kind)
	matrices := []weight{w.query, w.key}
	if w.value != nil {
		matrices = append(matrices, *w.value)
	}
	p := f.Projections(x, prefix+".qkv_proj.weight", matrices...)
	q := f.SwapHeads(f.norm(f.Heads(p[0], g.Heads, g.HeadDim), w.queryNorm))
	rawKeys := f.Heads(p[1], g.KVHeads, g.HeadDim)
	values := rawKeys
	if w.value != nil {
		values = f.Heads(p[2], g.KVHeads, g.HeadDim)
	}
	k := f.SwapHeads(f.norm(rawKeys, w.keyNorm))
	v := f.SwapHeads(f.RawNorm(values, nil, f.c.RMSNormEps))
	q, k = f.rotate(q, kind, g), f.rotate(k, kind, g)

	const scale = 1
	var y *ir.Value
	if kind == huggingface.FullAttention {
		y = f.Attend(prefix, q, k, v, scale)
	} else {
		y = f.AttendWindow(prefix, q, k, v, scale, f.c.SlidingWindow)
	}
	return f.Linear(f.Reshape(f.SwapHeads(y), 1, -1, g.Heads*g.HeadDim), w.output)
}

// rotate applies RoPE to heads [1,N,S,D].
func (f *forward) rotate(x *ir.Value, kind huggingface.LayerKind, g huggingface.AttentionGeometry) *ir.Value {
	if g.RotaryDim == g.HeadDim {
		return f.Rope(x, g.HeadDim, g.RopeTheta)
	}
	return f.RopeFreqs(x, weight{Name: "rope." + kind.String() + ".freqs", Data: proportional(g)})
}

// proportional gives the divisors of the positions of proportional RoPE f32[D/2]: theta^(2i/D) for the
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
