package kernels

import "math"

// angles adds the rotation angles of the case's tokens.
func (c *Case) angles(dims int) *Buffer {
	r := c.seed()
	return c.made(F32, c.Capacity*dims, func() []float32 {
		inverse, out := make([]float32, dims/2), make([]float32, c.Capacity*dims)
		for i := range inverse {
			inverse[i] = r.Float32()
		}
		RopeAngles{Dims: dims, Scale: 1}.Reference(c.Tokens, c.Position, inverse, out)
		return out
	})
}

func (r RopeAngles) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 20)
	l, _ := r.Launch(c.Capacity)
	inverse := c.random(F32, r.Dims/2).each(func(i int, x float32) float32 {
		if c.Whole && i == r.Dims/2-1 {
			return 0
		}
		return x * x / 4
	})
	out := c.out(F32, c.Capacity*r.Dims)
	c.run(l, RopeAnglesArguments[*Buffer]{Inverse: inverse, Angles: out, Step: c.step()})
	c.reference = func() {
		r.Reference(c.Tokens, c.Position, inverse.Values(), c.want(out, Bounds{1e-6, sums(1)}, c.Tokens*r.Dims))
	}
	return c
}

func (r RowAngles) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 20)
	l, _ := r.Launch(c.Capacity)
	inverse := c.random(F32, r.Dims/2).each(func(_ int, x float32) float32 { return x * x / 4 })
	positions := make([]int32, c.Tokens)
	for i := range positions {
		positions[i] = int32(c.Position*(1-i%2) + 7*i - 1) // in no order
	}
	out := c.out(F32, c.Capacity*r.Dims)
	c.run(l, RopeRowAnglesArguments[*Buffer]{Inverse: inverse, Positions: c.ints(positions...),
		Angles: out, Step: c.step()})
	c.reference = func() {
		r.Reference(positions, inverse.Values(), c.want(out, Bounds{1e-6, sums(1)}, c.Tokens*r.Dims))
	}
	return c
}

// inSlots returns a case over a cache with slots slots, and the number of slots in use: up to the one of the last
// token.
func inSlots(s Sizes, tokens, position, slots int) (c *Case, used int) {
	tokens = min(tokens, slots)
	c = newCase(s, tokens, min(position, slots-tokens))
	return c, min(slots, c.Position+c.Tokens)
}

// cache adds keys or values of heads in slots. The first used slots have random numbers. The others are NaN in a small
// cache and zeros in a large one.
func (c *Case) cache(d DType, heads, used, slots, width int) *Buffer {
	b := c.spread(d, heads, used*width, slots*width)
	b.rest, b.Content = 0xff, Kept
	return b
}

// wantCache adds the expectation of the used slots of a cache, and returns their present content for the reference
// implementation to update.
func (c *Case) wantCache(b *Buffer, bound Bounds, heads, used, slots, width int) []float32 {
	return after(c.wantRows(b, stored(b.DType, bound), heads, used*width, slots*width), b)
}

func (r Rope) newCase(s Sizes) *Case {
	if r.Blocks.Rows > 0 {
		return r.Case(s, r.Blocks.rows(s, 5))
	}
	c, used := newCase(s, caseTokens, 0), 0
	if r.KVHeads > 0 {
		c, used = inSlots(s, caseTokens, 5, r.Slots)
	}
	few := r
	few.Slots = used
	l, _ := r.Launch(c.Capacity)
	var a RopeArguments[*Buffer]
	a.Q, a.K = c.random(F32, r.Q.span(c.Tokens, max(r.QHeads, 1), r.D)),
		c.random(F32, r.K.span(c.Tokens, max(r.KVHeads, 1), r.D))
	a.V, a.Angles = c.random(F32, r.V.span(c.Tokens, max(r.KVHeads, 1), r.D)), c.angles(r.Dims)
	a.QWeight, a.KWeight = c.random(r.Weight, r.D), c.random(r.Weight, r.D)
	a.KCache, a.VCache = c.cache(r.Cache, r.KVHeads, used, r.Slots, r.D),
		c.cache(r.Cache, r.KVHeads, used, r.Slots, r.D)
	a.QOut, a.Step = c.out(F32, c.Capacity*r.QHeads*r.D), c.step()
	c.run(l, a)
	c.reference = func() {
		bound := Bounds{2e-6, sums(1)}
		out := c.want(a.QOut, bound, c.Tokens*r.QHeads*r.D)
		keys, values := c.wantCache(a.KCache, bound, r.KVHeads, used, r.Slots, r.D),
			c.wantCache(a.VCache, bound, r.KVHeads, used, r.Slots, r.D)
		few.Reference(c.Tokens, c.Position, a.Q.Values(), a.K.Values(), a.V.Values(), a.QWeight.Values(),
			a.KWeight.Values(), a.Angles.Values(), out, keys, values)
	}
	return c
}

// Case returns a case of the launch with Blocks for these rows.
func (r Rope) Case(s Sizes, rows []BlockRow) *Case {
	c := caseOf(s, len(rows))
	l, _ := r.Launch(c.Capacity)
	t := r.Blocks.lay(rows, func(p int32) int32 { return p })
	n, bound := r.KVHeads*t.units*r.Blocks.Rows, Bounds{2e-6, sums(1)}
	var a RopeArguments[*Buffer]
	a.Q, a.K = c.random(F32, r.Q.span(c.Tokens, max(r.QHeads, 1), r.D)),
		c.random(F32, r.K.span(c.Tokens, r.KVHeads, r.D))
	a.V, a.Angles = c.random(F32, r.V.span(c.Tokens, r.KVHeads, r.D)), c.angles(r.Dims)
	a.QWeight, a.KWeight = c.random(r.Weight, r.D), c.random(r.Weight, r.D)
	a.KCache, a.VCache = c.cache(r.Cache, 1, n, n, r.D), c.cache(r.Cache, 1, n, n, r.D)
	a.Positions, a.Sequences, a.Blocks = c.ints(t.positions...), c.ints(t.sequences...), c.ints(t.blocks...)
	a.QOut, a.Step = c.out(F32, c.Capacity*r.QHeads*r.D), c.ints(int32(len(rows)), int32(t.units))
	c.run(l, a)
	c.reference = func() {
		keys, values := c.wantCache(a.KCache, bound, 1, n, n, r.D), c.wantCache(a.VCache, bound, 1, n, n, r.D)
		r.ReferenceInBlocks(t.units, t.positions, t.sequences, t.blocks, a.Q.Values(), a.K.Values(), a.V.Values(),
			a.QWeight.Values(), a.KWeight.Values(),
			a.Angles.Values(), c.want(a.QOut, bound, c.Tokens*r.QHeads*r.D), keys, values)
	}
	return c
}

func (w CacheWrite) newCase(s Sizes) *Case {
	c, used := inSlots(s, caseTokens, 5, w.Slots)
	l, _ := w.Launch(c.Capacity)
	few := w
	few.Slots = used
	x, cache := c.random(F32, w.X.span(c.Tokens, w.Heads, w.D)), c.cache(w.Cache, w.Heads, used, w.Slots, w.D)
	c.run(l, CacheWriteArguments[*Buffer]{X: x, Cache: cache, Step: c.step()})
	c.reference = func() {
		few.Reference(c.Tokens, c.Position, x.Values(),
			after(c.wantRows(cache, Bounds{}, w.Heads, used*w.D, w.Slots*w.D), cache))
	}
	return c
}

// gates adds the gates of the tokens.
func (a Attention) gates(c *Case) *Buffer {
	return c.random(F32, a.Gates.span(c.Tokens, a.Heads, a.D)).each(func(i int, x float32) float32 {
		if c.Whole && i%9 == 0 {
			return float32(i%2*200 - 100) // sigmoid(gate) is 0 or 1 exactly
		}
		return x
	})
}

// context adds queries, keys, values and gates of the tokens. It returns the arguments, and a function that adds the
// expected results.
func (a Attention) context(c *Case, used int) (of AttentionChunkArguments[*Buffer], want func(bound Bounds)) {
	few := a
	few.Slots = used
	// Scores with a standard deviation of 1, as in models. Queries of size 1 at a scale of 1 would give scores around
	// 20. There, rounding a query to bf16 changes probabilities by some percent, although no kernel is wrong.
	size := float32(min(1, 1/(math.Abs(float64(a.Scale))*math.Sqrt(float64(a.D)))))
	if c.Whole {
		size = 1 // the emulator rounds as the reference does, whatever the scores
	}
	of.Q = c.random(F32, c.Tokens*a.Heads*a.D).each(func(_ int, x float32) float32 { return x * size })
	of.Keys, of.Values = c.cache(a.Cache, a.KVHeads, used, a.Slots, a.D),
		c.cache(a.Cache, a.KVHeads, used, a.Slots, a.D)
	of.Gate, of.Out, of.Step = a.gates(c), c.out(F32, c.Capacity*a.Heads*a.D), c.step()
	return of, func(bound Bounds) {
		few.Reference(c.Tokens, c.Position, of.Q.Values(), of.Keys.Values(), of.Values.Values(), of.Gate.Values(),
			c.want(of.Out, bound, c.Tokens*a.Heads*a.D))
	}
}

// newCase returns the case of both launches, for one token or (many) for several.
func (a Attention) newCase(s Sizes, many bool) *Case {
	tokens := 1
	if many {
		tokens = 3
	}
	c, used := inSlots(s, tokens, 100, a.Slots)
	if many {
		c.Capacity = max(c.Capacity, 2)
	}
	part, merge, blocks, _ := a.Launches(c.Capacity)
	of, want := a.context(c, used)
	n := c.Capacity * a.Heads * blocks
	parts, ml := c.scratch(F32, n*a.D), c.scratch(F32, n*2)
	c.run(part, AttentionPartArguments[*Buffer]{Q: of.Q, Keys: of.Keys, Values: of.Values, Part: parts,
		ML: ml, Step: of.Step})
	c.run(merge, AttentionMergeArguments[*Buffer]{Part: parts, ML: ml, Gate: of.Gate, Out: of.Out, Step: of.Step})
	c.reference = func() { want(Bounds{3e-6, 2 * sums(a.D)}) }
	return c
}

func (a Attention) chunkCase(s Sizes, tuning ChunkTuning) *Case {
	c, used := inSlots(s, 19, 40, a.Slots)
	l, _ := a.ChunkLaunch(c.Capacity, tuning)
	of, want := a.context(c, used)
	c.run(l, of)
	c.reference = func() { want(Bounds{1. / 128, 2 * roundedAll}) }
	return c
}

// newCase returns the case of all launches at a position. Where short contexts have code of their own, a self-test
// includes one.
func (a AttentionStep) newCase(s Sizes) *Case {
	if a.Rope.Blocks.Rows > 0 {
		position := 100
		if s.Whole {
			position = s.Position
		}
		rows := make([]BlockRow, a.rows())
		for i := range rows { // two rows of each sequence
			rows[i] = BlockRow{int32(1 + i/2), int32(min(position, a.Slots-min(2, len(rows))) + i%2)}
		}
		return a.Case(s, rows...)
	}
	one, merge, blocks, _ := a.Launches()
	full, _ := a.tuning()
	c, used := inSlots(s, 1, max(100, full.Short+30), a.Slots)
	few, r := a, a.Rope
	few.Attention.Slots, few.Rope.Slots = used, used
	of := AttentionStepArguments[*Buffer]{
		Q: c.random(F32, r.Q.span(1, a.Heads, a.D)), K: c.random(F32, r.K.span(1, a.KVHeads, a.D)),
		V:       c.random(F32, r.V.span(1, a.KVHeads, a.D)),
		QWeight: c.random(r.Weight, a.D), KWeight: c.random(r.Weight, a.D), Angles: c.angles(r.Dims),
		Keys: c.cache(a.Cache, a.KVHeads, used, a.Slots, a.D), Values: c.cache(a.Cache, a.KVHeads, used, a.Slots, a.D),
		Part: c.scratch(F32, a.Heads*blocks*a.D), ML: c.scratch(F32, a.Heads*blocks*2), Gate: a.gates(c),
		Arrivals: c.add(U32, a.Heads, Zeros),
	}
	of.Arrivals.Scratch = true
	at := []int{c.Position}
	if full.Short > 0 && !c.Whole {
		at = append(at, min(c.Position, full.Short)/2)
	}
	outs := make([]*Buffer, len(at))
	for i, position := range at {
		outs[i] = c.out(F32, a.Heads*a.D)
		of.Out, of.Step = outs[i], c.ints(1, int32(position))
		c.run(one, of)
		if !full.Last {
			c.run(merge, AttentionMergeArguments[*Buffer]{Part: of.Part, ML: of.ML, Gate: of.Gate,
				Out: of.Out, Step: of.Step})
		}
	}
	c.reference = func() {
		bound, result := Bounds{2e-6, sums(1)}, Bounds{3e-6, 2 * sums(a.D)}
		keys, values := c.wantCache(of.Keys, bound, a.KVHeads, used, a.Slots, a.D),
			c.wantCache(of.Values, bound, a.KVHeads, used, a.Slots, a.D)
		if a.Cache == BF16 {
			result.SelfTest = 2 * roundedAll // rounding a key in the other direction changes the scores
		}
		for i, position := range at {
			few.Reference(position, of.Q.Values(), of.K.Values(), of.V.Values(), of.QWeight.Values(),
				of.KWeight.Values(), of.Angles.Values(),
				keys, values, of.Gate.Values(), c.want(outs[i], result, a.Heads*a.D))
		}
	}
	return c
}

// Case returns a case of the launch with Rope.Blocks for these rows.
func (a AttentionStep) Case(s Sizes, rows ...BlockRow) *Case {
	one, _, parts, _ := a.Launches()
	c, r := caseOf(s, len(rows)), a.Rope
	t := r.Blocks.lay(rows, func(p int32) int32 {
		if a.Window > 0 {
			return max(0, p-int32(a.Window)+1)
		}
		return 0
	})
	n, of := a.KVHeads*t.units*r.Blocks.Rows, a.operands(c, len(rows), parts)
	of.Keys, of.Values = c.cache(a.Cache, 1, n, n, a.D), c.cache(a.Cache, 1, n, n, a.D)
	of.Positions, of.Sequences = c.ints(t.positions...), c.ints(t.sequences...)
	of.Blocks, of.Step = c.ints(t.blocks...), c.ints(int32(len(rows)), int32(t.units))
	c.run(one, of)
	c.reference = func() {
		bound, result := Bounds{2e-6, sums(1)}, Bounds{3e-6, 2 * sums(a.D)}
		if a.Cache == BF16 {
			result.SelfTest = 2 * roundedAll // rounding a key in the other direction changes the scores
		}
		if a.Half {
			result = stored(BF16, result)
		}
		keys, values := c.wantCache(of.Keys, bound, 1, n, n, a.D), c.wantCache(of.Values, bound, 1, n, n, a.D)
		a.ReferenceInBlocks(t.units, t.positions, t.sequences, t.blocks, of.Q.Values(), of.K.Values(), of.V.Values(),
			of.QWeight.Values(), of.KWeight.Values(), of.Angles.Values(), keys, values, of.Gate.Values(),
			c.want(of.Out, result, len(rows)*a.Heads*a.D))
	}
	return c
}

// operands returns the operands of a case of rows rows but for caches and tables. parts is the number of blocks.
func (a AttentionStep) operands(c *Case, rows, parts int) AttentionStepArguments[*Buffer] {
	r, most, written := a.Rope, a.rows(), F32
	if a.Half {
		written = BF16
	}
	size := float32(min(1, 1/(math.Abs(float64(a.Scale))*math.Sqrt(float64(a.D)))))
	of := AttentionStepArguments[*Buffer]{
		Q: c.random(F32, r.Q.span(rows, a.Heads, a.D)).each(func(_ int, x float32) float32 { return x * size }),
		K: c.random(F32, r.K.span(rows, a.KVHeads, a.D)), V: c.random(F32, r.V.span(rows, a.KVHeads, a.D)),
		QWeight: c.random(r.Weight, a.D), KWeight: c.random(r.Weight, a.D), Angles: c.angles(r.Dims),
		Part: c.scratch(F32, most*a.Heads*parts*a.D), ML: c.scratch(F32, most*a.Heads*parts*2), Gate: a.gates(c),
		Out: c.out(written, most*a.Heads*a.D), Arrivals: c.add(U32, most*a.Heads, Zeros),
	}
	of.Arrivals.Scratch = true
	return of
}
