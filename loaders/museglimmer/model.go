package museglimmer

import (
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Model is a Muse Glimmer with its weights, ready to be built.
type Model struct {
	config  *huggingface.MuseGlimmer
	tokens  huggingface.Tokens
	weights weights
	dtype   ir.DType // of activations
}

// New takes the weights of the model out of a checkpoint's tensors. Tensors that are missing or do not fit are noted in
// t; the caller looks at t.Err before it builds.
func New(c *huggingface.MuseGlimmer, tokens huggingface.Tokens, t *builder.Tensors) *Model {
	w := read(c, t)
	return &Model{c, tokens, w, t.ActivationsFor(w.embedding)}
}

// defaultChunk is the default prefill chunk, as of the other models with sliding layers.
const defaultChunk = 256

// Build makes the module of the model; see [builder.Build] for its inputs and outputs.
func (m *Model) Build(o builder.Options) (*ir.Module, error) {
	limits := builder.Limits{Positions: m.config.MaxPositions, Chunk: defaultChunk}
	if slices.Contains(m.config.Layers, huggingface.SlidingAttention) {
		limits.Window = m.config.SlidingWindow
	}
	d := builder.Decoder{
		DType: m.dtype, Vocabulary: m.config.VocabSize, Depth: len(m.config.Layers), Limits: limits, Tokens: m.tokens,
	}
	return builder.Build(d, o, func(g *builder.Graph) *ir.Value {
		f := &forward{Graph: g, c: m.config}
		return f.run(&m.weights)
	})
}

// forward builds the graph of the method forward. Its methods add the operations of a part of the model and return the
// value that the part gives; nothing is computed then.
type forward struct {
	*builder.Graph
	c *huggingface.MuseGlimmer
	// queryScale f32[D] is the multiplier of the norm of queries.
	queryScale *ir.Value
}

// run adds the operations of the whole model and returns the logits [1,S,V].
func (f *forward) run(w *weights) *ir.Value {
	scale := slices.Repeat([]float32{float32(f.c.QKScale)}, f.c.HeadDim)
	data := ir.Float32s([]int64{int64(len(scale))}, scale...)
	f.queryScale = f.Constant(weight{Name: "self_attn.query_scale", Data: data})
	x := f.Cast(f.RawNorm(f.Embed(w.embedding), nil, f.c.RMSNormEps), f.DType)
	for i := range w.layers {
		x = f.layer(i, &w.layers[i], x)
	}
	logits := f.Cast(f.Linear(f.Norm(x, w.norm, f.c.RMSNormEps), w.head), ir.F32)
	multiplier := ir.Exact(ir.Float32s(nil, float32(f.c.OutputMultiplier)))
	logits = f.Multiply(logits, f.Constant(weight{Name: "output_multiplier", Data: multiplier}))
	return f.Softcap(logits, f.c.FinalLogitSoftcap)
}

// layer adds decoder layer number i to the graph, for the residual stream x [1,S,H], and returns the stream after it.
func (f *forward) layer(i int, l *layer, x *ir.Value) *ir.Value {
	y := f.attention(i, l, f.Norm(x, l.attentionNorm, f.c.RMSNormEps))
	x = f.Add(x, f.Norm(y, l.attentionOutNorm, f.c.PostNormEps))
	p := f.Projections(f.Norm(x, l.mlpNorm, f.c.RMSNormEps), l.prefix+".mlp.gate_up_proj.weight", l.mlpGate, l.mlpUp)
	y = f.Linear(f.Multiply(f.Unary("silu", p[0]), p[1]), l.mlpDown)
	return f.Add(x, f.Norm(y, l.mlpOutNorm, f.c.PostNormEps))
}

// attention adds the attention of layer number i to the graph. Queries and keys are normalised by head, the queries
// scaled, and both rotated in layers that rotate. The result is multiplied by σ(gate) before the output projection.
func (f *forward) attention(i int, l *layer, x *ir.Value) *ir.Value {
	c, prefix := f.c, l.prefix+".self_attn"
	p := f.Projections(x, prefix+".qkv_proj.weight", l.query, l.key, l.value, l.gate)
	heads := func(x *ir.Value, n int, scale *ir.Value) *ir.Value {
		x = f.SwapHeads(f.RawNorm(f.Heads(x, n, c.HeadDim), scale, c.RMSNormEps))
		if !c.Unrotated[i] {
			x = f.Rope(x, c.HeadDim, c.RopeTheta)
		}
		return f.Cast(x, f.DType)
	}
	q, k := heads(p[0], c.Heads, f.queryScale), heads(p[1], c.KVHeads, nil)
	v := f.SwapHeads(f.Heads(p[2], c.KVHeads, c.HeadDim))
	scale := 1 / math.Sqrt(float64(c.HeadDim))
	var y *ir.Value
	if c.Layers[i] == huggingface.FullAttention {
		y = f.Attend(prefix, q, k, v, scale)
	} else {
		y = f.AttendWindow(prefix, q, k, v, scale, c.SlidingWindow)
	}
	y = f.Reshape(f.SwapHeads(y), 1, -1, c.Heads*c.HeadDim)
	return f.Linear(f.Multiply(y, f.Unary("sigmoid", p[3])), l.output)
}
