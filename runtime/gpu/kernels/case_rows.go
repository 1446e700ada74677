package kernels

import "slices"

// caseTokens is the number of tokens of self-tests that work on rows.
const caseTokens = 2

// span returns the number of elements that tokens tokens with count rows of n elements take.
func (r Rows) span(tokens, count, n int) int {
	r = r.or(count, n)
	return r.at(tokens-1, count-1) + n
}

func (d Dequantize) newCase(s Sizes) *Case {
	c := newCase(s, 1, 0)
	if !c.Whole {
		d.N = min(d.N, 3)
	}
	l, _ := d.Launch()
	w, weight := c.weight(d.Format, d.N, d.K, d.N)
	y := c.out(BF16, d.N*d.K)
	c.run(l, DequantizeArguments[*Buffer]{W: weight, Y: y})
	// The result is rounded to bf16 once, or computed in fp32 first.
	c.reference = func() { d.Reference(w(), c.want(y, Bounds{4e-3, roundedOnce}, d.N*d.K)) }
	return c
}

func (e Embedding) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 0)
	few, tokens := e, []int32{3, 0, 6, -1, 9}
	if !c.Whole {
		few.N = min(e.N, 3)
		tokens = []int32{int32(few.N - 1), 0}
	}
	l, _ := e.Launch(c.Capacity)
	w, weight := c.weight(e.Format, few.N, e.K, few.N)
	y := c.out(F32, c.Capacity*e.K)
	c.run(l, EmbeddingArguments[*Buffer]{W: weight, Tokens: c.ints(tokens...), Y: y, Step: c.step()})
	c.reference = func() { few.Reference(w(), tokens[:c.Tokens], c.want(y, Bounds{3e-7, sums(1)}, c.Tokens*e.K)) }
	return c
}

func (n RMSNorm) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 5)
	l, _ := n.Launch(c.Capacity)
	size := n.Heads * n.N
	x, gate := c.random(F32, n.X.span(c.Tokens, n.Heads, n.N)), c.random(F32, n.Gates.span(c.Tokens, n.Heads, n.N))
	pre, weight, scale := c.random(n.Pre, n.N), c.random(n.Weight, n.N), c.given(n.Scale, 0.75)
	written := F32
	if n.Half {
		written = BF16
	}
	p := Prepare{K: size, Packed: n.Packed}
	residual, sum, out := c.random(F32, c.Tokens*size), c.out(F32, c.Capacity*size), c.out(written, p.Size(c.Capacity))
	c.run(l, NormArguments[*Buffer]{X: x, Pre: pre, Residual: residual, Scale: scale, Weight: weight, Gate: gate,
		Sum: sum, Out: out, Step: c.step()})
	c.reference = func() {
		var wantSum, want []float32
		if n.Sum {
			wantSum = c.want(sum, Bounds{1e-6, sums(1)}, c.Tokens*size)
		}
		bound := stored(written, Bounds{2e-6, sums(1)})
		if !n.SumOnly {
			want = p.unpacked(c, out, bound)
		}
		n.Reference(c.Tokens, x.Values(), pre.Values(), residual.Values(), 0.75, weight.Values(),
			gate.Values(), wantSum, want)
		p.expect(c, out, bound, want)
	}
	return c
}

func (r Reduce) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 0)
	l, _ := r.Launch(c.Capacity)
	x := c.random(F32, r.X.span(c.Tokens, r.Heads, r.N)).each(func(_ int, x float32) float32 {
		if c.Whole {
			return float32(int(x * 8)) // many equal numbers
		}
		return x + 0.5 // a sum near zero would consist of rounding errors
	})
	d, bound := F32, Bounds{1e-6, sums(r.N)}
	switch r.Kind {
	case MaxOf, MinOf:
		bound = Bounds{}
	case ArgMaxOf, ArgMinOf:
		d, bound = I32, Bounds{}
	}
	out := c.out(d, c.Capacity*r.Heads)
	c.run(l, ReduceArguments[*Buffer]{X: x, Out: out, Step: c.step()})
	c.reference = func() { r.Reference(c.Tokens, x.Values(), c.want(out, bound, c.Tokens*r.Heads)) }
	return c
}

func (r Reduce) softmaxCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 0)
	l, _ := r.SoftmaxLaunch(c.Capacity)
	x := c.random(F32, r.X.span(c.Tokens, r.Heads, r.N)).each(func(_ int, x float32) float32 { return 8 * x })
	out := c.out(F32, c.Capacity*r.Heads*r.N)
	c.run(l, SoftmaxArguments[*Buffer]{X: x, Y: out, Step: c.step()})
	c.reference = func() {
		r.ReferenceSoftmax(c.Tokens, x.Values(), c.want(out, Bounds{1e-6, sums(1)}, c.Tokens*r.Heads*r.N))
	}
	return c
}

// gathered is the number of rows of a table that have numbers in a self-test; the others are zeros.
const gathered = 4

func (g Gather) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 0)
	l, _ := g.Launch(c.Capacity)
	few := g
	few.Rows = min(g.Rows, gathered)
	first := g.Rows - few.Rows // the last rows have numbers
	table := c.sparse(g.Table, []int{first}, g.Rows, few.Rows*g.N, g.N)
	index, indexed := make([]int64, c.Tokens*g.Each), make([]float32, c.Tokens*g.Each)
	for i := range index {
		at := i % few.Rows
		n := first + at
		if i%2 == 1 {
			n -= g.Rows // from the end
		}
		if c.Whole && i == 2 {
			at, n = few.Rows-1, g.Rows+100 // clamped to the last row
		}
		index[i], indexed[i] = int64(at), float32(n)
	}
	out := c.out(g.Out, c.Capacity*g.Each*g.N)
	c.run(l, GatherRowsArguments[*Buffer]{Table: table, Index: c.given(g.Index, indexed...), Out: out, Step: c.step()})
	c.reference = func() { few.Reference(c.Tokens, table.Values(), index, c.want(out, Bounds{}, len(index)*g.N)) }
	return c
}

// caseElements is the largest number of elements that a self-test of functions computes: whole threadgroups.
const caseElements = 32 * 256

// hasCase reports whether there is a case for the launch: it computes floats, over a box whose dims, except for the
// first, are fixed.
func (e Elementwise) hasCase() bool {
	fixed := func(x Extent) bool { return x.Token == 0 && x.Position == 0 && x.Fixed >= 0 }
	ok := len(e.In) > 0 && (len(e.Box) == 0 ||
		e.Box[0].Position == 0 && !slices.ContainsFunc(e.Box[1:], func(x Extent) bool { return !fixed(x) }))
	for _, p := range append([]Place{e.Out}, e.In...) {
		ok = ok && (p.DType == F32 || p.DType == BF16) && fixed(p.First) &&
			!slices.ContainsFunc(p.Strides, func(x Extent) bool { return !fixed(x) })
	}
	return ok
}

// ofPositive are the functions whose case uses positive numbers.
var ofPositive = map[string]bool{"log": true, "sqrt": true, "rsqrt": true, "reciprocal": true, "power": true,
	"divide": true, "logaddexp": true}

// span returns the number of elements of a buffer up to the last one in a box of fixed dims.
func (p Place) span(box Box) int {
	n := p.First.Fixed + 1
	for i, s := range p.Strides {
		n += (box[i].Fixed - 1) * s.Fixed
	}
	return n
}

// newCase returns the case of a launch for up to tokens tokens. It uses so few of them that there are at most
// caseElements elements.
func (e Elementwise) newCase(l Launch, tokens int) *Case {
	few, count := e, 1
	e.Box, few.Box = slices.Clone(e.Box), make(Box, len(e.Box))
	for i := len(e.Box) - 1; i >= 0; i-- {
		if e.Box[i].Token > 0 {
			tokens = min(tokens, ceil(caseElements, count*e.Box[i].Token))
			e.Box[i] = Fixed(e.Box[i].At(tokens, 0))
		}
		// this corner of the box has the first elements
		few.Box[i] = Fixed(min(e.Box[i].Fixed, ceil(caseElements, count)))
		count *= e.Box[i].Fixed
	}
	c := newCase(Sizes{}, tokens, 0)
	count = min(count, caseElements)
	l.Groups[0] = ceil(count, 256)
	var a ElementwiseArguments[*Buffer]
	operands := [...]**Buffer{&a.X0, &a.X1, &a.X2}
	for i, p := range e.In {
		*operands[i] = c.sparse(p.DType, []int{0}, 1, p.span(few.Box),
			p.span(e.Box)).each(func(_ int, x float32) float32 {
			if ofPositive[e.Op] {
				return 0.25 + float32(x*x)
			}
			return x
		})
	}
	a.Out, a.Step = c.add(e.Out.DType, e.Out.span(e.Box), Zeros), c.step()
	c.run(l, a)
	c.reference = func() {
		var in [][]float64
		for i := range e.In {
			in = append(in, widened((*operands[i]).Values()))
		}
		results := make([]float64, e.Out.span(few.Box)) // the buffer has zeros between them
		few.first(count, tokens, 0, in, results)
		want := c.want(a.Out, stored(e.Out.DType, Bounds{0, sums(1)}), len(results))
		for i, v := range results {
			want[i] = float32(v)
		}
	}
	return c
}

func widened(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// Draw has the settings of one draw of a token. Key is the key of the seed, for the reference implementation and for
// the sampler of rows.
type Draw struct {
	Logits      []float32
	Temperature float32
	TopK, Seed  int64
	TopP, MinP  float32
	Key         [2]uint32
}

// Case returns a case of the launches for the draws of all rows.
func (s Sample) Case(draws ...Draw) *Case {
	c := newCase(Sizes{}, 1, 0)
	part, collect, choose, _ := s.Launches()
	parts, each := s.Parts()
	rows := len(draws)
	var logits, temperature, topP, minP []float32
	var topK, seed []int32
	for _, d := range draws {
		logits = append(logits, d.Logits...)
		temperature, topP, minP = append(temperature, d.Temperature), append(topP, d.TopP), append(minP, d.MinP)
		topK = append(topK, int32(d.TopK), int32(d.TopK>>32))
		switch {
		case s.Rows > 0:
			seed = append(seed, int32(d.Key[1]), int32(d.Key[0]))
		case s.Filters:
			seed = append(seed, int32(d.Seed), int32(d.Seed>>32))
		default:
			seed = append(seed, int32(d.Key[0]), int32(d.Key[1]))
		}
	}
	token, next := c.out(I32, rows), c.out(I32, rows)
	a := SampleChooseArguments[*Buffer]{
		Logits: c.given(F32, logits...), Temperature: c.given(F32, temperature...), TopK: c.ints(topK...),
		TopP: c.given(F32, topP...), Seed: c.ints(seed...),
		Tops: c.scratch(F32, rows*parts), TopsAt: c.scratch(I32, rows*parts), Values: c.scratch(F32, rows*parts*each),
		Places: c.scratch(I32, rows*parts*each),
		Counts: c.scratch(I32, rows*parts), Sums: c.scratch(I64, rows*parts), Token: token, Next: next,
	}
	if s.MinP {
		a.MinP = c.given(F32, minP...)
	}
	c.run(part, SamplePartArguments[*Buffer]{Logits: a.Logits, Temperature: a.Temperature, TopK: a.TopK, TopP: a.TopP,
		MinP: a.MinP, Seed: a.Seed,
		Tops: a.Tops, Places: a.TopsAt})
	if s.Filters {
		c.run(collect, SampleCollectArguments[*Buffer]{Logits: a.Logits, Temperature: a.Temperature, TopK: a.TopK,
			TopP: a.TopP, MinP: a.MinP, Tops: a.Tops,
			Values: a.Values, Places: a.Places, Counts: a.Counts, Sums: a.Sums})
	}
	c.run(choose, a)
	c.reference = func() {
		var want []int32
		for _, d := range draws {
			want = append(want, int32(s.Reference(d)))
		}
		c.wantInts(token, want)
		c.wantInts(next, want)
	}
	return c
}

func (s Sample) newCase(Sizes) *Case {
	var c Case
	logits := c.random(F32, s.Vocab).each(func(_ int, x float32) float32 { return 6 * x })
	d := Draw{Logits: logits.Values(), Temperature: 0.8, TopK: 20, TopP: 0.9, Seed: 7, Key: [2]uint32{0, 7}}
	if s.Rows == 0 {
		return s.Case(d)
	}
	s.Rows = min(s.Rows, 2) // the two rows have different filters
	other := d
	other.TopK, other.TopP, other.MinP, other.Key = 0, 1, 0.02, [2]uint32{3, 8}
	return s.Case([]Draw{d, other}[:s.Rows]...)
}
