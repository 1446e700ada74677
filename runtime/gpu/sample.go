package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// bindSample chooses the token of one row of logits.
func bindSample(b *binder) bool {
	logits, temperature := b.floats("logits"), b.floats("temperature")
	if logits == nil || len(logits.shape) != 2 || logits.shape[0] != 1 || temperature == nil || temperature.len() != 1 {
		return false
	}
	has := func(name string) bool { return b.op.Input(name) != nil }
	s := kernels.Sample{Vocab: logits.shape[1], Filters: has("seed")}
	if has("top_k") != s.Filters || has("top_p") != s.Filters {
		return false
	}
	part, collect, choose, err := s.Launches()
	if err != nil {
		return false
	}
	topK, topP, seed := reads(temperature), reads(temperature), operand{}
	if s.Filters {
		p := b.floats("top_p")
		if p == nil || p.len() != 1 {
			return false
		}
		k, ok := b.long("top_k")
		n, ok2 := b.long("seed")
		if !ok || !ok2 {
			return false
		}
		topK, topP, seed = k, reads(p), n
	} else {
		keys := b.x.keys
		seed = whole(b.word(8, func(p []byte) error {
			key := keys.Next()
			binary.LittleEndian.PutUint32(p, key[0])
			binary.LittleEndian.PutUint32(p[4:], key[1])
			return nil
		}))
	}
	if logits = b.dense(logits); logits == nil {
		return false
	}
	out := b.result(0, nil)
	if out == nil || out.format != i32 || out.len() != 1 {
		return false
	}
	parts, each := s.Parts()
	tops, topsAt := b.scratch(4*parts), b.scratch(4*parts)
	values, places := b.scratch(4*parts*each), b.scratch(4*parts*each)
	counts, sums := b.scratch(4*parts), b.scratch(8*parts)
	in, t := reads(logits), reads(temperature)
	b.dispatch("sample part", part, nil, in, t, topK, topP, seed, written(tops), written(topsAt))
	if s.Filters {
		b.dispatch("sample collect", collect, nil, in, t, topK, topP, whole(tops), written(values), written(places), written(counts), written(sums))
	} else {
		values, places, counts, sums = tops, tops, tops, tops
	}
	next := written(b.scratch(4))
	if fed, rows := b.plan.words.indexOf(b.plan.inputs[0]); s.Vocab <= rows {
		next.then = fed
	}
	return b.dispatch("sample choose", choose, nil, in, t, topK, topP, seed, whole(tops), whole(topsAt), whole(values), whole(places), whole(counts), whole(sums), writes(out), next)
}

// long is an integer of an operand with all its 64 bits, on the device.
func (b *binder) long(operandName string) (operand, bool) {
	v := b.input(operandName)
	if v == nil || v.place != onHost || v.cell.step || v.dtype != ir.I64 || v.shape == nil || v.len() != 1 {
		return operand{}, false
	}
	v.cell.need()
	c := v.cell
	return whole(b.word(8, func(p []byte) error {
		t := c.content.Tensor
		if t == nil || len(t.I) != 1 {
			return fmt.Errorf("sample: %s is no integer", operandName)
		}
		binary.LittleEndian.PutUint64(p, uint64(t.I[0]))
		return nil
	})), true
}
