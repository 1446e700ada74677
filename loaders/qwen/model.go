package qwen

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Model is a Qwen with its weights, ready to be built.
type Model struct {
	config  *huggingface.Qwen
	tokens  huggingface.Tokens
	weights weights
	layout  layout
	draft   *draft   // nil for none
	dtype   ir.DType // of activations
}

// New takes the weights of the model out of a checkpoint's tensors. Tensors that are missing or do not fit are noted in
// t; the caller looks at t.Err before it builds.
func New(c *huggingface.Qwen, tokens huggingface.Tokens, t *builder.Tensors) *Model {
	layout := layoutOf(c, t)
	w := read(c, t, layout)
	return &Model{c, tokens, w, layout, nil, t.ActivationsFor(w.embedding)}
}

// defaultChunk is the default prefill chunk, that of ExecuTorch's exporter.
const defaultChunk = 1024

// Build makes the module of the model; see [builder.Build] for its inputs and outputs. Logits are in the
// dtype of activations.
func (m *Model) Build(o builder.Options) (*ir.Module, error) {
	d := builder.Decoder{
		DType:      m.dtype,
		Vocabulary: m.config.VocabSize,
		Depth:      len(m.config.Layers),
		Limits:     builder.Limits{Positions: m.config.MaxPositions, Chunk: defaultChunk},
		Tokens:     m.tokens,
	}
	return builder.Build(d, o, func(g *builder.Graph) *ir.Value {
		f := &forward{Graph: g, c: m.config}
		return f.run(&m.weights)
	}, m.methods()...)
}

// forward builds the graph of the method forward. Its methods add the operations of a part of the model and return the
// value that the part gives; nothing is computed then.
type forward struct {
	*builder.Graph
	c *huggingface.Qwen
	// atStart bool[] is true where the call starts a text; keyScale and queryScale f32[Dk] are the
	// multipliers of the delta nets' norms. They are made for the first delta net.
	atStart, keyScale, queryScale *ir.Value
}

// run adds the operations of the whole model and returns the logits [1,S,V].
func (f *forward) run(w *weights) *ir.Value {
	x := f.Embed(w.embedding)
	for i := range w.layers {
		x = f.layer(&w.layers[i], x)
	}
	return f.Linear(f.Norm(x, w.norm, f.c.RMSNormEps), w.head)
}

// layer adds a decoder layer to the graph, for the residual stream x [1,S,H], and returns the stream after it.
func (f *forward) layer(l *layer, x *ir.Value) *ir.Value {
	n := f.Norm(x, l.inputNorm, f.c.RMSNormEps)
	if l.attention != nil {
		n = f.attention(l.attention, l.prefix+".self_attn", n)
	} else {
		n = f.deltaNet(l.deltaNet, l.prefix+".linear_attn", n)
	}
	x = f.Add(x, n)
	n = f.Norm(x, l.attentionNorm, f.c.RMSNormEps)
	if l.experts != nil {
		n = f.experts(l.experts, l.prefix+".mlp", n)
	} else {
		n = f.mlp(l.mlp, l.prefix+".mlp.gate_up_proj.weight", n)
	}
	return f.Add(x, n)
}
