package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// bindSample chooses the token of one row of logits. It is long because the head has three forms of inputs, and three
// kernels.
func bindSample(b *binder) bool {
	logits, temperature := b.floats("logits"), b.floats("temperature")
	if logits == nil || len(logits.shape) != 2 || logits.shape[0] != 1 || temperature == nil || temperature.len() != 1 {
		return false
	}
	has := func(name string) bool { return b.Op.Input(name) != nil }
	s := kernels.Sample{Vocab: logits.shape[1], Filters: has("seed")}
	if has("top_k") != s.Filters || has("top_p") != s.Filters {
		return false
	}
	part, collect, choose, err := s.Launches()
	if err != nil {
		return false
	}
	var topK, topP, seed operand
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
		topK, topP, seed = k, bytesOf(p), n
	} else {
		keys := b.x.keys
		seed = whole(b.uniform(8, func(p []byte) error {
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
	in, t := bytesOf(logits), bytesOf(temperature)
	tops, topsAt := whole(b.scratch(4*parts)), whole(b.scratch(4*parts))
	b.launch("sample part", part, nil, kernels.SamplePartArguments[operand]{Logits: in, Temperature: t, TopK: topK,
		TopP: topP, Seed: seed, Tops: tops, Places: topsAt})
	a := kernels.SampleChooseArguments[operand]{Logits: in, Temperature: t, TopK: topK, TopP: topP, Seed: seed,
		Tops: tops, TopsAt: topsAt, Token: bytesOf(out)}
	if s.Filters {
		a.Values, a.Places, a.Counts, a.Sums = whole(b.scratch(4*parts*each)), whole(b.scratch(4*parts*each)),
			whole(b.scratch(4*parts)), whole(b.scratch(8*parts))
		b.launch("sample collect", collect, nil, kernels.SampleCollectArguments[operand]{Logits: in, Temperature: t,
			TopK: topK, TopP: topP, Tops: tops,
			Values: a.Values, Places: a.Places, Counts: a.Counts, Sums: a.Sums})
	}
	a.Next = whole(b.scratch(4))
	if fed, rows := b.plan.uniforms.indexOf(b.plan.inputs[0]); fed != nil && fed.Size == 4 && s.Vocab <= rows {
		a.Next.then = fed
	}
	return b.launch("sample choose", choose, nil, a)
}

// long returns an integer operand with all its 64 bits, on the device.
func (b *binder) long(operandName string) (operand, bool) {
	v := b.Input(operandName)
	if v == nil || v.shape == nil || v.len() != 1 {
		return operand{}, false
	}
	return b.longs(operandName)
}

// longs returns an operand of several integers of 64 bits, on the device.
func (b *binder) longs(operandName string) (operand, bool) {
	v := b.Input(operandName)
	if v == nil || v.place != onHost || v.hostValue.step || v.dtype != ir.I64 || v.shape == nil || v.len() == 0 {
		return operand{}, false
	}
	v.hostValue.need()
	c, n := v.hostValue, v.len()
	return whole(b.uniform(8*n, func(p []byte) error {
		t := c.content.Tensor
		if t == nil || len(t.I) != n {
			return fmt.Errorf("%s is not %d integers", operandName, n)
		}
		for i, v := range t.I {
			binary.LittleEndian.PutUint64(p[8*i:], uint64(v))
		}
		return nil
	})), true
}
