package qwen

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// draft is the head for multi-token prediction ("mtp." in checkpoints): a projection of the embedding of a token and of
// the hidden state before it, and one layer of full attention. Embedding and lm_head are the model's.
type draft struct {
	projection                weight // [hidden,2·hidden], of embedding and hidden state
	embeddingNorm, hiddenNorm weight // [hidden], before the projection
	layer                     layer
	norm                      weight // [hidden], before lm_head
}

// prefix of the names of the tensors of the head.
const draftPrefix = "mtp."

// ReadMultiToken takes the tensors of the head out of t, the checkpoint's tensors or, with own, those of a file that
// has the head alone. Such a file has the layout of the model's authors, whatever the checkpoint's is. Tensors that are
// missing or do not fit are noted in t. The caller looks at t.Err and then calls use, which gives the model the draft:
// modules that it builds from then on have the method draft.
func (m *Model) ReadMultiToken(t *builder.Tensors, own bool) (use func()) {
	c, h := m.config, m.config.HiddenSize
	layout := m.layout
	if own {
		layout.mlx, layout.multipliers = false, c.PlainNorms
	}
	layout.tensors = t
	d := &draft{
		projection:    t.Matrix(draftPrefix+"fc.weight", h, 2*h),
		embeddingNorm: layout.norm(draftPrefix+"pre_fc_norm_embedding.weight", h),
		hiddenNorm:    layout.norm(draftPrefix+"pre_fc_norm_hidden.weight", h),
		layer:         readLayer(c, t, layout, draftPrefix+"layers.0", huggingface.FullAttention, c.Experts > 0),
		norm:          layout.norm(draftPrefix+"norm.weight", h),
	}
	return func() { m.draft = d }
}

// methods returns the methods of the model beside forward: draft, if there is one.
func (m *Model) methods() []builder.Method {
	if m.draft == nil {
		return nil
	}
	return []builder.Method{{Name: builder.Draft, Make: func(g *builder.Graph) []*ir.Value {
		f := &forward{Graph: g, c: m.config}
		return f.draft(m.draft, &m.weights)
	}}}
}

// draft adds the operations of the head. Row t of its inputs is token x[t+1] and hidden state h[t], which forward gives
// after its final norm. The results are the logits of x[t+2] for the last row, and for all rows hidden states that take
// the place of h[t+1] when the next token is drafted. Row t has position t, in RoPE and in the head's own cache;
// transformers has t+1, which gives the same numbers, since RoPE is relative.
func (f *forward) draft(d *draft, w *weights) []*ir.Value {
	hidden := f.Norm(f.Hidden(f.c.HiddenSize), d.hiddenNorm, f.c.RMSNormEps)
	embedded := f.Norm(f.Embed(w.embedding), d.embeddingNorm, f.c.RMSNormEps)
	both := f.Value("concatenate", &ir.AxisAttrs{Axis: 2}, []*ir.Value{embedded, hidden})
	y := f.Norm(f.layer(&d.layer, f.Linear(both, d.projection)), d.norm, f.c.RMSNormEps)
	return []*ir.Value{f.Cast(f.Linear(f.LastRow(y), w.head), ir.F32), f.Cast(y, ir.F32)}
}
