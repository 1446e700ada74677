package cpu

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/cpu/pool"
)

// This file has the runtime's own sampler; ir/eval defines what it computes.

// rowsOfLogits returns logits [R, V] in row-major order, or nil where the operand is something else.
func (b *binder) rowsOfLogits() (logits *value, rows, vocab int) {
	logits = b.Input("logits")
	if logits == nil || !logits.isFloats() || len(logits.shape) != 2 || logits.len() == 0 {
		return nil, 0, 0
	}
	return b.denseFloats(logits), logits.shape[0], logits.shape[1]
}

// settings returns operands with at least one number for each row. It returns false where one is not stored as that.
func (b *binder) settings(rows int, names ...string) (map[string]*value, bool) {
	out := map[string]*value{}
	for _, name := range names {
		v := b.Input(name)
		if b.Op.Input(name) == nil {
			continue
		}
		if v == nil || v.kind != dense || v.slot.state != nil || !v.isDense() || rows > 0 && v.len() != rows {
			return nil, false
		}
		out[name] = v
	}
	return out, true
}

// integers allocates result number i, of integers.
func (b *binder) integers(i int) *value {
	r := b.Op.Results[i]
	shape, ok := b.Dims(r.Type)
	if !ok {
		return nil
	}
	v := &value{dtype: r.Type.DType, shape: shape}
	v.slot, v.stride = &slot{i: make([]int64, v.len())}, make([]int, len(shape))
	for i, n := len(shape)-1, 1; i >= 0; i-- {
		v.stride[i], n = n, n*shape[i]
	}
	b.Values[r] = v
	return v
}

// bindAdjust copies logits and changes the copy.
func bindAdjust(b *binder) bool {
	logits, rows, vocab := b.rowsOfLogits()
	if logits == nil {
		return false
	}
	operands, ok := b.settings(0, "ids", "bias", "counts", "penalties", "fed", "mask", "mask_row")
	out := b.result(0, nil)
	if !ok || out == nil {
		return false
	}
	b.step("adjust logits", func() error {
		a, err := eval.NewAdjustment(func(name string) *eval.Tensor {
			if v := operands[name]; v != nil {
				return v.tensor()
			}
			return nil
		}, rows, vocab)
		if err != nil {
			return err
		}
		for r := range rows {
			row := out.slot.f[r*vocab : (r+1)*vocab]
			copy(row, logits.floats()[r*vocab:])
			if err := a.Row(row, r); err != nil {
				return fmt.Errorf("row %d: %w", r, err)
			}
		}
		return nil
	})
	return true
}

// bindDraw chooses tokens as bindSample does, each row with its own settings.
func bindDraw(b *binder) bool {
	logits, rows, vocab := b.rowsOfLogits()
	if logits == nil {
		return false
	}
	p, ok := b.settings(rows, "temperature", "top_k", "top_p", "min_p", "key")
	tokens := b.integers(0)
	if !ok || tokens == nil {
		return false
	}
	s := &sampler{pool: b.x.exe.pool, vocab: vocab, scaled: b.scratch(vocab), other: b.scratch(vocab)}
	b.do("draw", func() {
		for r := range rows {
			s.temperature, s.topK, s.topP, s.minP = p["temperature"].floats()[r], p["top_k"].ints()[r],
				p["top_p"].floats()[r], 0
			if v := p["min_p"]; v != nil {
				s.minP = v.floats()[r]
			}
			s.key, s.keyed = numeric.Key(uint64(p["key"].ints()[r])), true
			s.word = func(i int) uint32 { return numeric.Word(s.key, vocab, i) }
			tokens.slot.i[r] = int64(s.token(logits.floats()[r*vocab:(r+1)*vocab], 0))
		}
	})
	return true
}

// bindFillDrafts binds the choice, for each row of a call, between a token that the caller gives and a draft.
func bindFillDrafts(b *binder) bool {
	p, ok := b.settings(0, "tokens", "drafts", "index")
	out := b.integers(0)
	if !ok || out == nil || p["index"].len() != out.len() || p["tokens"].len() != out.len() {
		return false
	}
	n, drafts := out.len(), p["drafts"].len()
	b.step("fill drafts", func() error {
		copy(out.slot.i, p["tokens"].ints()[:n])
		for r, at := range p["index"].ints()[:n] {
			if at >= int64(drafts) {
				return fmt.Errorf("row %d has draft %d, there are %d", r, at, drafts)
			}
			if at >= 0 {
				out.slot.i[r] = p["drafts"].ints()[at]
			}
		}
		return nil
	})
	return true
}

// bindLogprobs binds log-probabilities. It reads the logits once for the sum, and once for the most likely tokens.
func bindLogprobs(b *binder) bool {
	logits, rows, vocab := b.rowsOfLogits()
	if logits == nil {
		return false
	}
	p, ok := b.settings(rows, "token", "wanted")
	drawn, likely := b.result(0, nil), b.result(2, nil)
	ids := b.integers(1)
	if !ok || drawn == nil || ids == nil || likely == nil {
		return false
	}
	top := ir.Attrs[ir.LogprobsAttrs](b.Op).Top
	powers, found := b.scratch(vocab), make([]int32, top)
	b.step("logprobs", func() error {
		for r := range rows {
			row := logits.floats()[r*vocab : (r+1)*vocab]
			wanted, token := p["wanted"].ints()[r], p["token"].ints()[r]
			drawn.slot.f[r] = 0
			for i := range top {
				ids.slot.i[r*top+i], likely.slot.f[r*top+i] = -1, 0
			}
			if wanted < 0 {
				continue
			}
			if token < 0 || token >= int64(vocab) {
				return fmt.Errorf("token %d of row %d is outside of the vocabulary of %d", token, r, vocab)
			}
			highest, sum := softmaxScale(b.x.exe.pool, row, powers.f)
			drawn.slot.f[r] = float32(float32(row[token]-highest) - sum)
			n := kernel.TopK(found[:min(wanted, int64(top), int64(vocab))], row)
			for i, id := range found[:n] {
				ids.slot.i[r*top+i], likely.slot.f[r*top+i] = int64(id), float32(float32(row[id]-highest)-sum)
			}
		}
		return nil
	})
	return true
}

// softmaxScale returns the highest logit and the logarithm of the sum of e^(v - highest), ignoring NaN. As in the
// reference kernel, the sum is in float64 from left to right.
func softmaxScale(threads *pool.Pool, row, powers []float32) (highest, logSum float32) {
	highest = row[kernel.ArgMax(row)]
	threads.Run(len(row), 4<<10, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if powers[i] = 0; row[i] == row[i] && !math.IsInf(float64(row[i]), -1) {
				powers[i] = numeric.Exp32(row[i] - highest)
			}
		}
	})
	sum := 0.0
	for _, v := range powers[:len(row)] {
		sum += float64(v)
	}
	return highest, numeric.Log32(float32(sum))
}
