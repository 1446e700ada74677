package kernels

import "sync"

// caseRows is the minimum number of rows of a product that a self-test computes.
const caseRows = 24

// newCase returns the case of a product of up to M vectors, with their numbers and the weights of the norm. Unless the
// sizes say how many vectors there are, there are fewer than M. With a Sum the case has the operands of the sum that
// gives the vector.
func (v Vectors) newCase(s Sizes, width int) (c *Case, x, norm *Buffer, sum StreamSumOneArguments[*Buffer],
	read func() []float32) {
	few := v.M - v.M/3
	c = newCase(s, few, 5)
	if c.Tokens == 0 {
		c.Tokens = few
	}
	c.Capacity = v.M
	x, norm = c.random(F32, c.Tokens*v.K), c.norm(v.Norm, width)
	if v.Sum == nil {
		return c, x, norm, sum, x.Values
	}
	sum.Before, sum.Residual = c.random(F32, v.K), c.random(F32, v.K)
	sum.Scale, sum.Out = c.random(F32, 1), c.out(F32, v.K)
	return c, x, norm, sum, func() []float32 {
		made := v.Sum.Reference(x.Values(), sum.Before.Values(), sum.Residual.Values(), sum.Scale.Values()[0])
		if v.Sum.Kept {
			copy(c.want(sum.Out, Bounds{1e-6, sums(v.K)}, v.K), made)
		}
		return made
	}
}

// extra adds the operand of an epilogue for results [count, n]. The rows in at have numbers in their first columns.
func (c *Case) extra(e Epilogue, at []int, count, columns, n int) *Buffer {
	switch e {
	case AddVector:
		return c.random(F32, columns)
	case AddMatrix:
		return c.sparse(F32, at, count, columns, n)
	}
	return nil
}

func (v MatVec) newCase(l Launch, block int, s Sizes) *Case {
	width := v.K
	if v.Head > 0 {
		width = v.Head
	}
	c, x, norm, sum, read := v.Vectors.newCase(s, width)
	few := v
	few.N = c.few(&l, caseRows, v.N, block)
	w, weight := c.weight(v.Format, few.N, v.K, few.N)
	extra := c.extra(v.Epilogue, every(c.Tokens), c.Tokens, few.N, v.N)
	gate, y, step := c.random(F32, v.K), c.out(F32, v.M*v.N), c.step()
	if v.Sum != nil {
		sum.W, sum.X, sum.Norm, sum.Extra, sum.Y, sum.Step = weight, x, norm, extra, y, step
		c.run(l, sum)
	} else {
		c.run(l, MatVecArguments[*Buffer]{W: weight, X: x, Norm: norm, Gate: gate, Extra: extra, Y: y, Step: step})
	}
	c.reference = func() {
		want := c.wantRows(y, Bounds{2e-6, sums(v.K)}, c.Tokens, few.N, v.N)
		few.Reference(w(), read(), norm.Values(), gate.Values(), extra.Values(), want)
	}
	return c
}

func (v MatVecGLU) newCase(l Launch, block int, s Sizes) *Case {
	c, x, norm, sum, read := v.Vectors.newCase(s, v.K)
	few := v
	few.N = c.few(&l, caseRows, v.N, block)
	gate, gates := c.weight(v.Format, few.N, v.K, few.N)
	up, ups := c.weight(v.Format, few.N, v.K, few.N)
	y, step := c.out(F32, v.M*v.N), c.step()
	if v.Sum != nil {
		c.run(l, StreamSumGLUArguments[*Buffer]{W0: gates, W1: ups, X: x, Norm: norm, Y: y,
			Before: sum.Before, Residual: sum.Residual, Scale: sum.Scale, Out: sum.Out, Step: step})
	} else {
		c.run(l, MatVecGLUArguments[*Buffer]{W0: gates, W1: ups, X: x, Norm: norm, Y: y, Step: step})
	}
	c.reference = func() {
		few.Reference(gate(), up(), read(), norm.Values(),
			c.wantRows(y, Bounds{6e-6, 3 * sums(v.K)}, c.Tokens, few.N, v.N))
	}
	return c
}

func (v MatVecMany) newCase(l Launch, block int, s Sizes) *Case {
	c, x, norm, _, _ := v.Vectors.newCase(s, v.K)
	a := MatVecManyArguments[*Buffer]{X: x, Norm: norm}
	to, results := [...]*WeightArguments[*Buffer]{&a.W0, &a.W1, &a.W2, &a.W3}, [...]**Buffer{&a.Y0, &a.Y1, &a.Y2, &a.Y3}
	rows, weights := make([]int, len(v.N)), make([]func() *Weight, len(v.N))
	for i, n := range v.N {
		if rows[i] = n; !c.Whole {
			rows[i] = min(n, max(block, caseRows))
		}
		weights[i], *to[i] = c.weight(v.Format, rows[i], v.K, n)
		*results[i] = c.out(F32, v.M*n)
	}
	if v.Activated.Rows > 0 {
		a.Activated = c.out(F32, v.M*v.Activated.Rows)
	}
	var convolved func(x []float32, bound Bounds)
	if v.Conv != nil {
		convolved = v.addConv(c, rows[0], &a)
	}
	a.Step = c.step()
	c.run(l, a)
	c.reference = func() {
		bound := Bounds{2e-6, sums(v.K)}
		for i, n := range v.N {
			y := c.wantRows(*results[i], bound, c.Tokens, rows[i], n)
			v.Reference(weights[i](), x.Values(), norm.Values(), y)
			if i == 0 && v.Conv != nil {
				convolved(y, bound)
			}
			if of := v.Activated; of.Rows > 0 && i == of.Weight {
				all := make([]float32, c.Tokens*n)
				for m := range c.Tokens {
					copy(all[m*n:], y[m*rows[i]:][:rows[i]]) // products with rows of zeros
				}
				v.ReferenceActivated(all, c.want(a.Activated, bound, c.Tokens*of.Rows))
			}
		}
	}
	return c
}

// addConv adds the operands of the convolution behind the products, of which a self-test has rows of weight 0. It
// returns the function that adds the expected results of the convolution of x, the results of these rows.
func (v MatVecMany) addConv(c *Case, rows int, a *MatVecManyArguments[*Buffer]) func(x []float32, bound Bounds) {
	all, few := v.Conv.Channels, *v.Conv
	few.Channels = min(few.Channels, rows)
	few.Token = few.Channels
	if v.Slots == 0 {
		conv := few.add(c, all, 1)
		a.ConvW, a.Reset, a.State, a.ConvY, a.Next = conv.W, conv.Reset, conv.State, conv.Y, conv.Next
		return func(x []float32, bound Bounds) {
			few.answer(c, conv, all, x[:few.Channels], bound, stored(few.State, bound))
		}
	}
	c.Elsewhere = false
	t, size := c.tables(v.Slots), all*few.Taps
	a.ConvW, a.ConvY = c.random(few.Weight, size), c.out(F32, all)
	a.Entries, a.Writes = c.ints(t.entries...), c.ints(t.writes...)
	a.State = c.pool(few.State, t, size)
	a.Next = a.State
	return func(x []float32, bound Bounds) {
		conv := SlotConv{Conv: *v.Conv, Entries: v.Slots}
		conv.Token = all
		row := make([]float32, all) // products with rows of zeros
		copy(row, x[:few.Channels])
		pool := append([]float32{}, a.State.Values()...)
		conv.Reference(row, a.ConvW.Values(), t.entries, t.writes, pool, c.want(a.ConvY, bound, all))
		c.wantSlots(a.State, t, size, stored(few.State, bound), pool)
	}
}

// newCase returns the case of tiled products. A self-test has some rows of two blocks, including the last row of all.
// at are the rows that are not zeros.
func (m Matrices) newCase(l *Launch, tile Tile, s Sizes) (c *Case, at []int, x *Buffer, bound Bounds) {
	c = newCase(s, min(tile.BM+3, 2*tile.BM), 0)
	at = every(c.Tokens)
	if !c.Whole {
		_, vectors := tile.dimensions()
		if l.Groups[vectors] = 2; tile.BM >= 8 {
			at = []int{0, 5, tile.BM/2 + 2, tile.BM - 1, tile.BM + 2}
		}
	}
	d, bound := m.tiled()
	if m.Packed > 0 {
		return c, at, c.packed(Prepare{K: m.K, Packed: m.Packed}, at, c.Tokens), bound
	}
	return c, at, c.sparse(d, at, c.Tokens, m.K, m.K), bound
}

// packed adds the packed vectors of a product, of which those in at contain random numbers. Its Values are these
// vectors as rows.
func (c *Case) packed(p Prepare, at []int, tokens int) *Buffer {
	r := c.seed()
	b := c.add(BF16, p.Size(tokens), Given)
	b.values = sync.OnceValue(func() []float32 {
		rows := make([]float32, len(at)*p.K)
		for i := range rows {
			rows[i] = BF16.store((r.Float32()*2 - 1) * 1.75)
		}
		return rows
	})
	b.raw = func() []byte {
		rows, all := b.values(), make([]float32, p.Size(tokens))
		for i, t := range at {
			for k := range p.K {
				all[p.at(t, k)] = rows[i*p.K+k]
			}
		}
		return BF16.Bytes(all)
	}
	return b
}

// tiled returns the dtype of the vectors and the bounds of the results of tiled products. CUDA and the reference
// implementation round codes of 4 bits once, other targets twice.
func (m Matrices) tiled() (DType, Bounds) {
	if m.Exact {
		return F32, Bounds{2e-6, sums(m.K)}
	}
	return BF16, Bounds{3e-3, roundedAll}
}

// few shrinks the grid of a product of planes weights with n columns, unless the case is whole. Two blocks of columns
// remain, or, in the order of lanes, as many as make up a whole number of 128 columns. It returns the number of columns
// that are compared, and the number of columns that are computed.
func (m Matrices) few(c *Case, l *Launch, tile Tile, planes, n int) (columns, computed int) {
	if tile.packed() {
		return m.fewPacked(c, l, tile, planes, n)
	}
	dimension, _ := tile.dimensions()
	each := tile.BN / planes
	least := each + 1
	if m.Lanes {
		for least = max(2*each, packedColumns); least%packedColumns != 0; {
			least += each
		}
	}
	columns = c.fewAlong(l, dimension, least, n, each)
	computed = columns
	if m.Lanes {
		columns -= columns % packedColumns
	}
	return columns, computed
}

// fewPacked is few for packed vectors, where a threadgroup has consecutive blocks of the sequence of all tiles. The
// threadgroups of the first tiles remain. Several threadgroups share one of these tiles. The last tile that is computed
// may lack blocks, and then it is not compared.
func (m Matrices) fewPacked(c *Case, l *Launch, tile Tile, planes, n int) (columns, computed int) {
	if c.Whole {
		return n, n
	}
	blocks, each := m.K/packedColumns, tile.BN/planes
	least := tile.Each/blocks + 1
	for m.Lanes && least*each%packedColumns != 0 {
		least++
	}
	l.Groups[1] = min(l.Groups[1], ceil(least*blocks, tile.Each))
	done := l.Groups[1] * tile.Each
	columns, computed = min(n, done/blocks*each), min(n, ceil(done, blocks)*each)
	if m.Lanes {
		columns -= columns % packedColumns
	}
	return columns, computed
}

// leave adds the buffers in which the threadgroups of a launch leave sums for each other and count arrivals, for planes
// weights of n rows each. It returns nil for both if the tile needs none.
func (m Matrices) leave(c *Case, l Launch, tile Tile, planes, n int) (partial, arrivals *Buffer) {
	sums, counters := m.shared([]Tile{tile}, planes, n, c.Capacity)
	if tile.packed() { // the grid may be smaller than that of the product
		sums, counters = tile.packedShared(l.Groups[0], l.Groups[1], planes*n)
	}
	if sums == 0 {
		return nil, nil
	}
	partial, arrivals = c.scratch(F32, sums), c.add(U32, counters, Zeros)
	arrivals.Scratch = tile.streamed() || !c.Whole // threadgroups that share the last tile may be missing
	return partial, arrivals
}

// result adds a buffer for n results of a tiled product and returns their bounds: doubled where a result depends on two
// products.
func (m Matrices) result(c *Case, n, products int, bound Bounds) (*Buffer, Bounds) {
	bound = Bounds{float64(products) * bound.Test, float64(products) * bound.SelfTest}
	if m.Half {
		return c.out(BF16, n), Bounds{max(bound.Test, 4e-3), max(bound.SelfTest, roundedOnce)}
	}
	return c.out(F32, n), bound
}

func (m MatMul) newCase(l Launch, tile Tile, s Sizes) *Case {
	c, at, x, bound := m.Matrices.newCase(&l, tile, s)
	few := m
	n, computed := m.few(c, &l, tile, 1, m.N)
	few.N, few.unrounded = n, tile.streamed()
	w, weight := c.weight(m.Format, few.N, m.K, computed)
	extra := c.extra(m.Epilogue, at, c.Tokens, few.N, m.N)
	y, bound := m.result(c, c.Tokens*m.N, 1, bound)
	partial, arrivals := m.leave(c, l, tile, 1, m.N)
	c.run(l, MatMulArguments[*Buffer]{W: weight, X: x, Extra: extra, Y: y, Step: c.step(), Partial: partial,
		Arrivals: arrivals})
	c.reference = func() {
		few.Reference(w(), x.Values(), extra.Values(), c.wantAmong(y, bound, at, c.Tokens, few.N, m.N))
	}
	return c
}

func (m MatMulGLU) newCase(l Launch, tile Tile, s Sizes) *Case {
	c, at, x, bound := m.Matrices.newCase(&l, tile, s)
	few := m
	n, computed := m.few(c, &l, tile, 2, m.N)
	few.N, few.unrounded = n, tile.streamed()
	gate, gates := c.weight(m.Format, few.N, m.K, computed)
	up, ups := c.weight(m.Format, few.N, m.K, computed)
	y, bound := m.result(c, c.Tokens*m.N, 2, bound)
	if tile.packed() {
		partial, arrivals := m.leave(c, l, tile, 2, m.N)
		c.run(l, MatMulPackedGLUArguments[*Buffer]{W0: gates, W1: ups, X: x, Partial: partial, Arrivals: arrivals, Y: y,
			Step: c.step()})
	} else {
		c.run(l, MatMulGLUArguments[*Buffer]{W0: gates, W1: ups, X: x, Y: y, Step: c.step()})
	}
	c.reference = func() { few.Reference(gate(), up(), x.Values(), c.wantAmong(y, bound, at, c.Tokens, few.N, m.N)) }
	return c
}

func (p Prepare) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 0)
	l, _ := p.Launch(c.Capacity)
	d, bound := BF16, Bounds{4e-3, roundedOnce}
	if p.Exact {
		d, bound = F32, Bounds{1e-6, sums(1)}
	}
	x, norm, y := c.random(F32, c.Tokens*p.K), c.norm(p.Norm, p.K), c.out(d, p.Size(c.Tokens))
	c.run(l, MatMulPrepareArguments[*Buffer]{X: x, Norm: norm, Y: y, Step: c.step()})
	c.reference = func() {
		all := p.unpacked(c, y, bound)
		p.Reference(x.Values(), norm.Values(), all)
		p.expect(c, y, bound, all)
	}
	return c
}

// unpacked returns the slice to which a reference writes the tokens of a case in the form of p. If tokens are not
// packed, this is what buffer y is compared with. Packed tokens take a whole number of tiles, which kernels do not
// fill: from their slice expect then takes the places that are written.
func (p Prepare) unpacked(c *Case, y *Buffer, bound Bounds) []float32 {
	if p.eights() == 0 {
		return c.want(y, bound, c.Tokens*p.K)
	}
	return make([]float32, p.Size(c.Tokens))
}

// expect has buffer y compared with the packed tokens in all, without the places between them that no kernel writes.
func (p Prepare) expect(c *Case, y *Buffer, bound Bounds, all []float32) {
	if p.eights() == 0 {
		return
	}
	rows := p.Packed * 8
	for t := range c.Tokens {
		for k := 0; k < p.K; k += packedColumns {
			for piece := range packedColumns / 8 {
				first := p.at(t/rows*rows, k) + (piece*rows+t%rows)*8
				c.wantAt(y, bound, first, all[first:first+8])
			}
		}
	}
}
