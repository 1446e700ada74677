package kernels

import "slices"

// trialled is the number of tokens of trials of rows.
const trialled = 2

// span is the number of elements that rows of n elements, count to a token, take.
func (r Rows) span(tokens, count, n int) int {
	r = r.or(count, n)
	return r.at(tokens-1, count-1) + n
}

func (n RMSNorm) trial() Trial {
	t := newTrial()
	l, _ := n.Launch(trialled) // which was made for more tokens
	size := trialled * n.Heads * n.N
	x, xAt := t.floats(n.X.span(trialled, n.Heads, n.N))
	pre, preAt := t.held(n.Pre, n.N)
	residual, residualAt := t.floats(size)
	weight, weightAt := t.held(n.Weight, n.N)
	gate, gateAt := t.floats(n.Gates.span(trialled, n.Heads, n.N))
	scale := []float32{0.75}
	sum, out := make([]float32, size), make([]float32, size)
	n.Twin(trialled, x, pre, residual, scale[0], weight, gate, sum, out)
	sumAt, outAt := t.out(F32, size), t.out(F32, size)
	t.run(l, NormArguments[place]{X: xAt, Pre: preAt, Residual: residualAt, Scale: t.hold(n.Scale, scale), Weight: weightAt, Gate: gateAt,
		Sum: sumAt, Out: outAt, Step: t.ints(trialled, 5)})
	if n.Sum {
		t.want(sumAt, F32, sum, sums(1))
	}
	if !n.SumOnly {
		t.want(outAt, F32, out, sums(1))
	}
	return t.Trial
}

func (r Reduce) trial() Trial {
	t := newTrial()
	l, _ := r.Launch(trialled)
	x := t.random(F32, r.X.span(trialled, r.Heads, r.N))
	for i := range x {
		x[i] += 0.5 // a sum near zero would be of what was rounded
	}
	y, d, bound := make([]float32, trialled*r.Heads), F32, sums(r.N)
	r.Twin(trialled, x, y)
	switch r.Kind {
	case MaxOf, MinOf:
		bound = 0
	case ArgMaxOf, ArgMinOf:
		d, bound = I32, 0
	}
	out := t.out(d, len(y))
	t.run(l, ReduceArguments[place]{X: t.hold(F32, x), Out: out, Step: t.ints(trialled, 0)})
	t.want(out, d, y, bound)
	return t.Trial
}

// gathered is the number of rows of a table that a trial has numbers in; the others are zeros.
const gathered = 4

func (g Gather) trial() Trial {
	t := newTrial()
	few := g
	few.Rows = min(g.Rows, gathered)
	table := t.random(g.Table, few.Rows*g.N) // the last rows of all
	index := make([]int64, trialled*g.Each)
	numbers := make([]int32, 0, 2*len(index))
	for i := range index {
		index[i] = int64(i % few.Rows)
		n := g.Rows - few.Rows + i%few.Rows
		if i%2 == 1 {
			n -= g.Rows // from the end
		}
		numbers = append(numbers, int32(n))
		if g.Index == I64 {
			numbers = append(numbers, int32(n>>31))
		}
	}
	out := make([]float32, len(index)*g.N)
	few.Twin(trialled, table, index, out)
	size, from := g.N*g.Table.Size(), g.Rows-few.Rows
	tableAt := t.add(max(g.Rows*size, 16), TrialPart{from * size, g.Table.Bytes(table)})
	outAt := t.out(g.Out, len(out))
	l, _ := g.Launch(trialled)
	t.run(l, GatherRowsArguments[place]{Table: tableAt, Index: t.ints(numbers...), Out: outAt, Step: t.ints(trialled, 0)})
	t.want(outAt, g.Out, out, 0)
	return t.Trial
}

func (r Reduce) trialSoftmax() Trial {
	t := newTrial()
	l, _ := r.SoftmaxLaunch(trialled)
	x, xAt := t.floats(r.X.span(trialled, r.Heads, r.N))
	y := make([]float32, trialled*r.Heads*r.N)
	r.SoftmaxTwin(trialled, x, y)
	out := t.out(F32, len(y))
	t.run(l, SoftmaxArguments[place]{X: xAt, Y: out, Step: t.ints(trialled, 0)})
	t.want(out, F32, y, sums(1))
	return t.Trial
}

// trialElements is the number of elements that a trial of functions computes at most, whole threadgroups.
const trialElements = 32 * 256

// tryable reports whether there is a trial: of functions of floats over boxes of fixed dims.
func (e Elementwise) tryable() bool {
	fixed := func(x Extent) bool { return x.Token == 0 && x.Position == 0 && x.Fixed >= 0 }
	ok := len(e.In) > 0 && !slices.ContainsFunc(e.Box, func(x Extent) bool { return !fixed(x) })
	for _, p := range append([]Place{e.Out}, e.In...) {
		ok = ok && (p.DType == F32 || p.DType == BF16) && fixed(p.First) && !slices.ContainsFunc(p.Strides, func(x Extent) bool { return !fixed(x) })
	}
	return ok
}

func (e Elementwise) trial(l Launch) Trial {
	t := newTrial()
	few, count := e, 1
	few.Box = make(Box, len(e.Box))
	for i := len(e.Box) - 1; i >= 0; i-- {
		few.Box[i] = Fixed(min(e.Box[i].Fixed, ceil(trialElements, count))) // the first elements are in this corner
		count *= e.Box[i].Fixed
	}
	count = min(count, trialElements)
	l.Groups[0] = ceil(count, 256)
	span := func(box Box, p Place) int {
		n := p.First.Fixed + 1
		for i, s := range p.Strides {
			n += (box[i].Fixed - 1) * s.Fixed
		}
		return n
	}
	positive := map[string]bool{"log": true, "sqrt": true, "rsqrt": true, "reciprocal": true, "power": true, "divide": true, "logaddexp": true}[e.Op]
	var a ElementwiseArguments[place]
	operands := [...]*place{&a.X0, &a.X1, &a.X2}
	var in [][]float64
	for i, p := range e.In {
		values := t.random(p.DType, span(few.Box, p))
		numbers := make([]float64, len(values))
		for i, v := range values {
			if positive {
				v = p.DType.store(0.25 + float32(v*v))
			}
			values[i], numbers[i] = v, float64(v)
		}
		in = append(in, numbers)
		*operands[i] = t.add(max(16, span(e.Box, p)*p.DType.Size()), TrialPart{0, p.DType.Bytes(values)})
	}
	results := make([]float64, span(few.Box, e.Out)) // between them are zeros, as in the buffer
	few.first(count, 1, 0, in, results)
	values := make([]float32, len(results))
	for i, v := range results {
		values[i] = float32(v)
	}
	out := t.add(max(16, span(e.Box, e.Out)*e.Out.DType.Size()))
	a.Out, a.Step = out, t.ints(1, 0)
	t.run(l, a)
	bound := sums(1)
	if e.Out.DType == BF16 {
		bound = roundedOnce
	}
	t.want(out, e.Out.DType, values, bound)
	return t.Trial
}

func (s Sample) trial(part, collect, choose Launch) Trial {
	t := newTrial()
	logits := t.random(F32, s.Vocab)
	for i := range logits {
		logits[i] *= 6
	}
	const temperature, topK, topP, seed = 0.8, 20, 0.9, 7
	key := [2]uint32{0, seed}
	token := s.Twin(logits, temperature, topK, topP, key)
	long := func(n int32) place { return t.ints(n, 0) } // of 64 bits
	logitsAt, temperatureAt := t.hold(F32, logits), t.hold(F32, []float32{temperature})
	topKAt, topPAt, seedAt := long(topK), t.hold(F32, []float32{topP}), long(seed)
	if !s.Filters {
		seedAt = t.ints(0, seed)
	}
	parts, each := s.Parts()
	tops, topsAt := t.out(F32, parts), t.out(I32, parts)
	values, places := t.add(4*parts*each), t.add(4*parts*each)
	counts, totals, out, next := t.add(4*parts), t.add(8*parts), t.out(I32, 1), t.out(I32, 1)
	t.run(part, SamplePartArguments[place]{Logits: logitsAt, Temperature: temperatureAt, TopK: topKAt, TopP: topPAt, Seed: seedAt, Tops: tops, Places: topsAt})
	if s.Filters {
		t.run(collect, SampleCollectArguments[place]{Logits: logitsAt, Temperature: temperatureAt, TopK: topKAt, TopP: topPAt, Tops: tops,
			Values: values, Places: places, Counts: counts, Sums: totals})
	}
	t.run(choose, SampleChooseArguments[place]{Logits: logitsAt, Temperature: temperatureAt, TopK: topKAt, TopP: topPAt, Seed: seedAt, Tops: tops, TopsAt: topsAt,
		Values: values, Places: places, Counts: counts, Sums: totals, Token: out, Next: next})
	t.want(out, I32, []float32{float32(token)}, 0)
	t.want(next, I32, []float32{float32(token)}, 0)
	return t.Trial
}
