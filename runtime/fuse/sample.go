package fuse

import (
	"math"

	"github.com/etc-ml/etc/ir"
)

// fuseSample replaces the graphs of samplers by sample. There are three forms: every filter behind a condition of its
// own; filters that are always computed; and the model authors' sampler, which has no filters. In the form that is
// always computed, each negative k has another meaning in top-k; here they all switch it off.
func fuseSample(m *ir.Module) error {
	return apply(m, "", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		var s *sampler
		switch op.Def.Name {
		case "if":
			s = matchSampler(op)
		case "argmax":
			s = matchUnseeded(op)
		}
		if s == nil || s.logits.Type.Rank() != 2 || len(op.Results) != 1 || op.Result().Type.Rank() != 1 {
			return nil, false
		}
		args := make([]any, 5)
		for i, v := range []*ir.Value{s.logits, s.temperature, s.topK, s.topP, s.seed} {
			if v != nil {
				args[i] = v
			}
		}
		return []*ir.Value{cast(b, b.Value("sample", nil, args...), op.Result().Type.DType)}, true
	})
}

// sampler are the operands of sample.
type sampler struct{ logits, temperature, topK, topP, seed *ir.Value }

func isParameter(v *ir.Value, d ir.DType) bool {
	return v != nil && v.Type.Kind == ir.TensorKind && v.Type.DType == d && v.Type.Rank() == 0
}

// matchSampler matches if(temperature > 0) argmax(filtered logits/temperature + noise) else argmax(logits).
func matchSampler(op *ir.Op) *sampler {
	if len(op.Results) != 1 {
		return nil
	}
	var s sampler
	hot := conditionOf(op, "greater")
	if hot == nil || !isScalar(hot.Input("b"), 0) {
		return nil
	}
	s.temperature = hot.Input("a")
	if s.logits = argmaxOf(op.Regions[1].Results[0]); s.logits == nil || !isParameter(s.temperature, ir.F32) {
		return nil
	}
	noisy := is(argmaxOf(op.Regions[0].Results[0]), "add")
	if noisy == nil || !eitherWay(noisy, func(kept, noise *ir.Value) bool {
		bits := gumbelBits(noise, 0)
		if bits == nil || !sameShape(bits.Result().Type, s.logits.Type) {
			return false
		}
		seed := def(bits.Input("seed"), "item_int")
		if seed == nil || !isParameter(seed.Input("x"), ir.I64) {
			return false
		}
		s.seed = seed.Input("x")
		return s.matchFilters(kept)
	}) {
		return nil
	}
	return &s
}

// matchUnseeded matches argmax(logits/max(temperature, 1e-6) + noise) with noise of the runtime's own.
func matchUnseeded(op *ir.Op) *sampler {
	var s sampler
	noisy := is(argmaxOf(op.Result()), "add")
	if noisy == nil || !eitherWay(noisy, func(scaled, noise *ir.Value) bool {
		bits, division := gumbelBits(noise, 1e-20), is(scaled, "divide")
		if bits == nil || bits.Input("seed") != nil || division == nil ||
			!sameShape(bits.Result().Type, division.Input("a").Type) {
			return false
		}
		s.logits = plain(division.Input("a"))
		limited := is(division.Input("b"), "maximum")
		return limited != nil && eitherWay(limited, func(t, least *ir.Value) bool {
			s.temperature = t
			one := t.Type.DType == ir.F32 && (t.Type.Rank() == 0 || isDims(t.Type, ir.Const(1)))
			return one && isScalar(least, float64(float32(1e-6)))
		})
	}) {
		return nil
	}
	return &s
}

// conditionOf returns the comparison of that name that an if depends on.
func conditionOf(op *ir.Op, name string) *ir.Op {
	a, _ := op.Arg("cond")
	item := def(a.Value, "item_int")
	if item == nil {
		return nil
	}
	v := item.Input("x")
	if c := is(v, "astype"); c != nil && c.Input("x").Type.DType == ir.Bool {
		v = c.Input("x")
	}
	return is(v, name)
}

// argmaxOf returns the value whose argmax along the last axis v is, or nil.
func argmaxOf(v *ir.Value) *ir.Value {
	op := def(v, "argmax")
	if op == nil {
		return nil
	}
	a, x := ir.Attrs[ir.ArgReduceAttrs](op), op.Input("x")
	if a.Keepdims || x.Type.Rank() == 0 || axisOf(a.Axis, x.Type) != x.Type.Rank()-1 || !x.Type.DType.IsFloat() {
		return nil
	}
	return plain(x)
}

// gumbelBits matches -log(-log(u+shift)+shift) with u = min(bits/(2³²−1), the largest float below 1) and
// gives the operation that draws the bits.
func gumbelBits(v *ir.Value, shift float64) *ir.Op {
	for range 2 {
		neg := is(v, "neg")
		if neg == nil {
			return nil
		}
		log := is(neg.Input("x"), "log")
		if log == nil {
			return nil
		}
		v = log.Input("x")
		if shift != 0 {
			add := is(v, "add")
			if add == nil || !eitherWay(add,
				func(a, b *ir.Value) bool { v = a; return isScalar(b, float64(float32(shift))) }) {
				return nil
			}
		}
	}
	least := is(v, "minimum")
	if least == nil || !eitherWay(least,
		func(a, b *ir.Value) bool { v = a; return isScalar(b, float64(math.Nextafter32(1, 0))) }) {
		return nil
	}
	quotient := is(v, "divide")
	if quotient == nil || !isScalar(quotient.Input("b"), float64(float32(math.MaxUint32))) {
		return nil
	}
	convert := is(quotient.Input("a"), "astype")
	if convert == nil || convert.Result().Type.DType != ir.F32 {
		return nil
	}
	bits := def(convert.Input("x"), "random_bits")
	if bits == nil || ir.Attrs[ir.RandomBitsAttrs](bits).Width != 4 {
		return nil
	}
	return bits
}

// matchFilters matches top-p over top-k over logits/temperature; either filter may be missing.
func (s *sampler) matchFilters(v *ir.Value) bool {
	if x, p := optional(v, "less", func(cond *ir.Op, p *ir.Value) bool {
		return cond.Input("a") == p &&
			isScalar(cond.Input("b"), 1)
	}, topPOf); p != nil {
		v, s.topP = x, p
		if !isParameter(p, ir.F32) {
			return false
		}
	}
	vocab, ok := s.logits.Type.Shape[1].Const()
	if !ok {
		return false
	}
	on := func(cond *ir.Op, k *ir.Value) bool {
		return eitherWay(cond, func(a, b *ir.Value) bool {
			above, below := is(a, "greater"), is(b, "less")
			return above != nil && below != nil && above.Input("a") == k && below.Input("a") == k &&
				isScalar(above.Input("b"), 0) && isScalar(below.Input("b"), float64(vocab))
		})
	}
	limited := false // min(k, vocab) in the graph, which a form without a condition needs
	find := func(v *ir.Value) (x, k *ir.Value) { x, k, limited = topKOf(v, vocab); return x, k }
	if x, k := optional(v, "logical_and", on, find); k != nil {
		if is(v, "if") == nil && !limited || !isParameter(k, ir.I64) {
			return false
		}
		v, s.topK = x, k
	}
	scaled := is(v, "divide")
	return scaled != nil && plain(scaled.Input("a")) == s.logits && plain(scaled.Input("b")) == s.temperature
}

// optional matches a filter that is always on, or an if that applies the filter where its condition holds and else
// gives the filter's input unchanged. find matches the filter itself; on checks the condition. optional gives the
// filter's input and its parameter. The parameter is nil where v matches neither.
func optional(v *ir.Value, comparison string, on func(cond *ir.Op, parameter *ir.Value) bool,
	find func(*ir.Value) (x, parameter *ir.Value)) (x, parameter *ir.Value) {
	op := is(v, "if")
	if op == nil {
		return find(v)
	}
	if len(op.Results) != 1 {
		return nil, nil
	}
	x, parameter = find(op.Regions[0].Results[0])
	cond := conditionOf(op, comparison)
	if parameter == nil || cond == nil || !on(cond, parameter) || plain(op.Regions[1].Results[0]) != plain(x) {
		return nil, nil
	}
	return x, parameter
}

// maskedBelow matches where(of < threshold, -inf, x).
func maskedBelow(v *ir.Value) (x, of, threshold *ir.Value) {
	w := is(v, "where")
	if w == nil || !isScalar(w.Input("x"), math.Inf(-1)) {
		return nil, nil, nil
	}
	less := is(w.Input("condition"), "less")
	if less == nil {
		return nil, nil, nil
	}
	return plain(w.Input("y")), plain(less.Input("a")), less.Input("b")
}

// descendingOf matches -sort(-x) along the last axis.
func descendingOf(v *ir.Value) *ir.Value {
	neg := is(v, "neg")
	if neg == nil {
		return nil
	}
	sort := is(neg.Input("x"), "sort")
	if sort == nil || !isLast(sort) {
		return nil
	}
	if neg = is(sort.Input("x"), "neg"); neg == nil {
		return nil
	}
	return plain(neg.Input("x"))
}

// topKOf matches a mask of what is below the k-th largest; limited says that k is cut to the vocabulary.
func topKOf(v *ir.Value, vocab int64) (x, k *ir.Value, limited bool) {
	x, of, threshold := maskedBelow(v)
	if x == nil || of != x {
		return nil, nil, false
	}
	take := is(flat(threshold), "take")
	if take == nil || axisOf(ir.Attrs[ir.AxisAttrs](take).Axis, take.Input("x").Type) != 1 ||
		descendingOf(take.Input("x")) != x {
		return nil, nil, false
	}
	index, _ := take.Arg("index")
	minus := def(index.Value, "subtract_int")
	if minus == nil || !expr(minus, "b").IsConst(1) {
		return nil, nil, false
	}
	a, _ := minus.Arg("a")
	item := def(a.Value, "item_int")
	if item == nil {
		return nil, nil, false
	}
	k = item.Input("x")
	if least := is(k, "minimum"); least != nil {
		limited = eitherWay(least, func(a, b *ir.Value) bool {
			ok := isScalar(b, float64(vocab))
			if ok {
				k = a
			}
			return ok
		})
	}
	return x, k, limited
}

// topPOf matches a mask of what is less likely than every token with at most p before it.
func topPOf(v *ir.Value) (x, p *ir.Value) {
	x, probabilities, threshold := maskedBelow(v)
	if x == nil {
		return nil, nil
	}
	softmax, least := is(probabilities, "softmax"), is(threshold, "min")
	if softmax == nil || least == nil || plain(softmax.Input("x")) != x ||
		axisOf(ir.Attrs[ir.SoftmaxAttrs](softmax).Axis, x.Type) != x.Type.Rank()-1 {
		return nil, nil
	}
	if a := ir.Attrs[ir.ReduceAttrs](least); len(a.Axes) != 1 || axisOf(a.Axes[0], x.Type) != x.Type.Rank()-1 ||
		!a.Keepdims {
		return nil, nil
	}
	kept := is(least.Input("x"), "where")
	if kept == nil || !isScalar(kept.Input("x"), math.Inf(1)) || descendingOf(kept.Input("y")) != probabilities {
		return nil, nil
	}
	sorted, over := plain(kept.Input("y")), is(kept.Input("condition"), "greater")
	if over == nil {
		return nil, nil
	}
	before := is(over.Input("a"), "subtract")
	if before == nil || plain(before.Input("b")) != sorted {
		return nil, nil
	}
	sum := is(before.Input("a"), "cumsum")
	if sum == nil || plain(sum.Input("x")) != sorted {
		return nil, nil
	}
	if a := ir.Attrs[ir.CumsumAttrs](sum); a.Reverse || !a.Inclusive || axisOf(a.Axis, x.Type) != x.Type.Rank()-1 {
		return nil, nil
	}
	return x, over.Input("b")
}
