package gpu

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// rowsOfLogits returns the logits [R, V] on the device in row-major order.
func (b *binder) rowsOfLogits() (logits *value, rows, vocab int) {
	logits = b.floats("logits")
	if logits == nil || len(logits.shape) != 2 || logits.len() == 0 {
		return nil, 0, 0
	}
	if logits = b.dense(logits); logits == nil {
		return nil, 0, 0
	}
	return logits, logits.shape[0], logits.shape[1]
}

// numbers returns an operand of n numbers on the device: floats as float32, integers as 32 bits. An absent operand
// gives the zero operand. It clears ok where the operand is not there or has another length.
func (b *binder) numbers(name string, n int, ok *bool) operand {
	of := b.Op.Input(name)
	if of == nil {
		return operand{}
	}
	v := b.device(of, b.Input(name))
	if v == nil || v.len() != n || !v.isDense() || (v.format == i32) == v.dtype.IsFloat() {
		*ok = false
		return operand{}
	}
	return bytesOf(v)
}

// bindDraw chooses the tokens of rows of logits, each with its own settings.
func bindDraw(b *binder) bool {
	logits, rows, vocab := b.rowsOfLogits()
	if logits == nil {
		return false
	}
	s := kernels.Sample{Vocab: vocab, Filters: true, Rows: rows, MinP: b.Op.Input("min_p") != nil}
	part, collect, choose, err := s.Launches()
	if err != nil {
		return false
	}
	ok := true
	temperature, topP, minP := b.numbers("temperature", rows, &ok), b.numbers("top_p", rows, &ok),
		b.numbers("min_p", rows, &ok)
	topK, ok2 := b.longs("top_k")
	key, ok3 := b.longs("key")
	if !ok || !ok2 || !ok3 || topK.size != 8*rows || key.size != 8*rows {
		return false
	}
	out := b.result(0, nil)
	if out == nil || out.format != i32 || out.len() != rows {
		return false
	}
	out.below = vocab
	parts, each := s.Parts()
	scratch := func(size int) operand { return whole(b.scratch(rows * size)) }
	a := kernels.SampleChooseArguments[operand]{Logits: bytesOf(logits), Temperature: temperature, TopK: topK,
		TopP: topP, MinP: minP, Seed: key,
		Tops: scratch(4 * parts), TopsAt: scratch(4 * parts), Values: scratch(4 * parts * each),
		Places: scratch(4 * parts * each),
		Counts: scratch(4 * parts), Sums: scratch(8 * parts), Token: bytesOf(out), Next: scratch(4)}
	if fed, most := b.plan.uniforms.indexOf(b.plan.inputs[0]); fed != nil && fed.Size == 4*rows && vocab <= most {
		a.Next.then = fed
	}
	b.launch("sample part", part, nil, kernels.SamplePartArguments[operand]{Logits: a.Logits, Temperature: temperature,
		TopK: topK, TopP: topP, MinP: minP,
		Seed: key, Tops: a.Tops, Places: a.TopsAt})
	b.launch("sample collect", collect, nil,
		kernels.SampleCollectArguments[operand]{Logits: a.Logits, Temperature: temperature, TopK: topK, TopP: topP,
			MinP: minP, Tops: a.Tops, Values: a.Values, Places: a.Places, Counts: a.Counts, Sums: a.Sums})
	return b.launch("sample choose", choose, nil, a)
}

// bindAdjust binds the copy of logits to which penalties, biases and masks are applied before a draw.
func bindAdjust(b *binder) bool {
	logits, rows, vocab := b.rowsOfLogits()
	if logits == nil {
		return false
	}
	has := func(name string) bool { return b.Op.Input(name) != nil }
	a := kernels.Adjust{Rows: rows, Vocab: vocab, Bias: has("bias"), Counts: has("counts"),
		Fed: has("fed"), Mask: has("mask")}
	if has("ids") {
		ids := b.Input("ids")
		if ids == nil || len(ids.shape) != 2 {
			return false
		}
		a.Listed = ids.shape[1]
	}
	l, err := a.Launch()
	if err != nil {
		return false
	}
	ok := true
	args := kernels.LogitsAdjustArguments[operand]{Logits: bytesOf(logits), Ids: b.numbers("ids", rows*a.Listed, &ok),
		Bias:   b.numbers("bias", rows*a.Listed, &ok),
		Counts: b.numbers("counts", 2*rows*a.Listed, &ok), Penalties: b.numbers("penalties", 3*rows, &ok),
		Fed:     b.numbers("fed", rows, &ok),
		MaskRow: b.numbers("mask_row", rows, &ok)}
	if a.Mask {
		var masks bool
		args.Mask, masks = b.longs("mask")
		ok = ok && masks
	}
	out := b.result(0, nil)
	if !ok || out == nil || out.format != f32 {
		return false
	}
	args.Out = bytesOf(out)
	return b.launch("adjust logits", l, nil, args)
}

// bindLogprobs binds the log-probabilities of given tokens, and of the most likely tokens of each row.
func bindLogprobs(b *binder) bool {
	logits, rows, vocab := b.rowsOfLogits()
	if logits == nil {
		return false
	}
	p := kernels.Logprobs{Rows: rows, Vocab: vocab, Top: ir.Attrs[ir.LogprobsAttrs](b.Op).Top}
	part, choose, err := p.Launches()
	if err != nil {
		return false
	}
	ok := true
	token, wanted := b.numbers("token", rows, &ok), b.numbers("wanted", rows, &ok)
	drawn, ids, likely := b.result(0, nil), b.result(1, nil), b.result(2, nil)
	if !ok || drawn == nil || ids == nil || likely == nil {
		return false
	}
	parts, _ := p.Parts()
	a := kernels.LogprobsChooseArguments[operand]{Logits: bytesOf(logits), Token: token, Wanted: wanted,
		Tops:   whole(b.scratch(4 * rows * parts)),
		Places: whole(b.scratch(4 * rows * parts)), Sums: whole(b.scratch(4 * rows * parts)), Logprob: bytesOf(drawn),
		Ids: bytesOf(ids), Likely: bytesOf(likely)}
	b.launch("logprobs part", part, nil, kernels.LogprobsPartArguments[operand]{Logits: a.Logits, Wanted: wanted,
		Tops: a.Tops, Places: a.Places, Sums: a.Sums})
	return b.launch("logprobs", choose, nil, a)
}

// bindFillDrafts binds the choice, for each row of a call, between a token that the host gives and a draft that the
// device has drawn.
func bindFillDrafts(b *binder) bool {
	drafts, index := b.Input("drafts"), b.Input("index")
	if drafts == nil || index == nil || drafts.place != onDevice || drafts.format != i32 || !drafts.isDense() ||
		drafts.below == 0 {
		return false
	}
	tokens := b.indices(b.Input("tokens"), drafts.below)
	rows, most := index.len(), int64(drafts.len())
	if tokens == nil || tokens.len() != rows || index.place != onHost || index.hostValue.constant || index.hostValue.step {
		return false
	}
	index.hostValue.need()
	b.check(index.hostValue, func() error {
		for r, at := range index.hostValue.content.Tensor.I {
			if at >= most {
				return fmt.Errorf("fill_drafts: row %d has draft %d, there are %d", r, at, most)
			}
		}
		return nil
	})
	ok := true
	at, out := b.numbers("index", rows, &ok), b.result(0, nil)
	if !ok || out == nil {
		return false
	}
	out.below = drafts.below
	return b.launch("fill drafts", kernels.FillDrafts{Rows: rows}.Launch(), nil,
		kernels.FillDraftsArguments[operand]{Tokens: bytesOf(tokens), Drafts: bytesOf(drafts), Index: at,
			Y: bytesOf(out), Step: b.stepAt(rows, nil)})
}
