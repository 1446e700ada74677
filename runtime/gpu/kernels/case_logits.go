package kernels

func (a Adjust) newCase(Sizes) *Case {
	var c Case
	a.Rows = min(a.Rows, 2)
	logits := c.random(F32, a.Rows*a.Vocab).Values()
	o := Adjustments{}
	for r := range a.Rows {
		o.Fed, o.MaskRow = append(o.Fed, int32((a.Vocab-1)/(r+1))), append(o.MaskRow, int32(r)-1)
		o.Penalties = append(o.Penalties, 1.5, 0.25, 0.5)
		for i := range a.Listed {
			id := a.Vocab - 1 - i // distinct tokens, from the end of the vocabulary
			if id < 0 || i%5 == 4 {
				id = -1
			}
			o.IDs, o.Bias = append(o.IDs, int32(id)), append(o.Bias, float32(i%7)-3)
			o.Counts = append(o.Counts, int32(i%3), int32(i%2))
		}
	}
	for i := range a.words() / 2 {
		o.Mask = append(o.Mask, 0x5a5a_5a5a_1234_5678*int64(i+1))
	}
	return a.Case(logits, o)
}

// Case returns a case of the launch.
func (a Adjust) Case(logits []float32, o Adjustments) *Case {
	c := newCase(Sizes{}, 1, 0)
	l, _ := a.Launch()
	out := c.out(F32, len(logits))
	b := LogitsAdjustArguments[*Buffer]{Logits: c.given(F32, logits...), Out: out}
	if a.Listed > 0 {
		b.Ids = c.ints(o.IDs...)
	}
	if a.Bias {
		b.Bias = c.given(F32, o.Bias...)
	}
	if a.Counts {
		b.Counts, b.Penalties = c.ints(o.Counts...), c.given(F32, o.Penalties...)
	}
	if a.Fed {
		b.Fed = c.ints(o.Fed...)
	}
	if a.Mask {
		var words []int32
		for _, w := range o.Mask {
			words = append(words, int32(w), int32(w>>32))
		}
		b.Mask, b.MaskRow = c.ints(words...), c.ints(o.MaskRow...)
	}
	c.run(l, b)
	c.reference = func() {
		want := c.want(out, Bounds{1e-6, sums(1)}, len(logits))
		copy(want, logits)
		a.Reference(want, o)
	}
	return c
}

func (l Logprobs) newCase(Sizes) *Case {
	var c Case
	l.Rows = min(l.Rows, 2)
	logits := c.random(F32, l.Rows*l.Vocab).each(func(_ int, x float32) float32 { return 6 * x }).Values()
	return l.Case(logits, []int32{int32(l.Vocab / 2), 0}[:l.Rows], []int32{int32(l.Top), -1}[:l.Rows])
}

// Case returns a case of the launches, for rows of logits with a token and a number of wanted tokens each.
func (l Logprobs) Case(logits []float32, token, wanted []int32) *Case {
	c := newCase(Sizes{}, 1, 0)
	part, choose, _ := l.Launches()
	parts, _ := l.Parts()
	logprob, ids, likely := c.out(F32, l.Rows), c.out(I32, l.Rows*l.Top), c.out(F32, l.Rows*l.Top)
	a := LogprobsChooseArguments[*Buffer]{
		Logits: c.given(F32, logits...), Token: c.ints(token...), Wanted: c.ints(wanted...),
		Tops:   c.scratch(F32, l.Rows*parts),
		Places: c.scratch(I32, l.Rows*parts), Sums: c.scratch(F32, l.Rows*parts), Logprob: logprob,
		Ids: ids, Likely: likely,
	}
	c.run(part, LogprobsPartArguments[*Buffer]{Logits: a.Logits, Wanted: a.Wanted, Tops: a.Tops,
		Places: a.Places, Sums: a.Sums})
	c.run(choose, a)
	c.reference = func() {
		bound := Bounds{1e-6, sums(l.Vocab)}
		of, lower := c.want(logprob, bound, l.Rows), c.want(likely, bound, l.Rows*l.Top)
		all := make([]int32, l.Rows*l.Top)
		for r := range l.Rows {
			of[r] = l.Reference(logits[r*l.Vocab:][:l.Vocab], int(token[r]), int(wanted[r]), all[r*l.Top:][:l.Top],
				lower[r*l.Top:][:l.Top])
		}
		c.wantInts(ids, all)
	}
	return c
}
