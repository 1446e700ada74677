package kernels

// trialRows is the number of rows of a product that a trial makes at least.
const trialRows = 24

func (v MatVec) trial(l Launch, block int) Trial {
	t := newTrial()
	rows := l.few(trialRows, v.N, block)
	vectors := v.M - v.M/3
	w, weight := t.weight(v.Format, rows, v.K, rows)
	x, xAt := t.floats(vectors * v.K)
	norm, normAt := t.norm(v.Norm, v.K)
	gate, gateAt := t.floats(v.K)
	few := v
	few.N = rows
	var extra []float32
	var extraAt place
	switch v.Epilogue {
	case AddVector:
		extra, extraAt = t.floats(rows)
	case AddMatrix:
		extra = t.random(F32, vectors*rows)
		extraAt = t.spread(F32, extra, rows, v.N)
	}
	y := make([]float32, vectors*rows)
	var sum summands
	if v.Sum != nil {
		x, sum = t.sum(*v.Sum, x)
	}
	few.Twin(w, x, norm, gate, extra, y)
	out := t.out(F32, vectors*v.N)
	step := t.ints(int32(vectors), 0)
	if v.Sum != nil {
		t.run(l, StreamSumOneArguments[place]{W: weight, X: xAt, Norm: normAt, Extra: extraAt, Y: out,
			Before: sum.before, Residual: sum.residual, Scale: sum.scale, Out: sum.out, Step: step})
	} else {
		t.run(l, MatVecArguments[place]{W: weight, X: xAt, Norm: normAt, Gate: gateAt, Extra: extraAt, Y: out, Step: step})
	}
	t.wants(out, F32, rows, v.N, y, sums(v.K))
	return t.Trial
}

// summands are what makes a vector of x, and where it is left.
type summands struct{ before, residual, scale, out place }

// sum adds what makes a vector of x, and gives that vector.
func (t *trial) sum(s VectorSum, x []float32) (v []float32, buffers summands) {
	before, beforeAt := t.floats(len(x))
	residual, residualAt := t.floats(len(x))
	scale, scaleAt := t.floats(1)
	v = s.Twin(x, before, residual, scale[0])
	out := t.out(F32, len(x))
	if s.Kept {
		t.want(out, F32, v, sums(len(x)))
	}
	return v, summands{beforeAt, residualAt, scaleAt, out}
}

// spread adds a buffer of rows of n numbers, stride apart.
func (t *trial) spread(d DType, values []float32, n, stride int) place {
	var parts []TrialPart
	for i := 0; i*n < len(values); i++ {
		parts = append(parts, TrialPart{i * stride * d.Size(), d.Bytes(values[i*n:][:n])})
	}
	return t.add(len(values)/n*stride*d.Size(), parts...)
}

func (v MatVecMany) trial(l Launch, block int) Trial {
	t := newTrial()
	vectors := v.M - v.M/3
	x, xAt := t.floats(vectors * v.K)
	norm, normAt := t.norm(v.Norm, v.K)
	a := MatVecManyArguments[place]{X: xAt, Norm: normAt}
	weights, results := [...]*WeightArguments[place]{&a.W0, &a.W1, &a.W2, &a.W3}, [...]*place{&a.Y0, &a.Y1, &a.Y2, &a.Y3}
	var first []float32 // results of weight 0
	for i := range v.N {
		rows := min(v.N[i], max(block, trialRows))
		w, weight := t.weight(v.Format, rows, v.K, v.N[i])
		y := make([]float32, vectors*rows)
		v.Twin(w, x, norm, y)
		out := t.out(F32, vectors*v.N[i])
		*weights[i], *results[i] = weight, out
		t.wants(out, F32, rows, v.N[i], y, sums(v.K))
		if i == 0 {
			first = y
		}
		if of := v.Activated; of.Rows > 0 && i == of.Weight {
			all, wanted := make([]float32, vectors*v.N[i]), make([]float32, vectors*of.Rows)
			for m := range vectors {
				copy(all[m*v.N[i]:], y[m*rows:(m+1)*rows]) // the rest are products with zeros
			}
			v.ActivatedTwin(all, wanted)
			a.Activated = t.out(F32, len(wanted))
			t.want(a.Activated, F32, wanted, sums(v.K))
		}
	}
	if v.Conv != nil {
		c := *v.Conv
		c.Channels = min(c.Channels, len(first))
		c.Token = c.Channels
		conv := c.trialOf(t, v.Conv.Channels, 1, first[:c.Channels], true, sums(v.K))
		a.ConvW, a.Reset, a.State, a.ConvY, a.Next = conv.W, conv.Reset, conv.State, conv.Y, conv.Next
	}
	a.Step = t.ints(int32(vectors), 5)
	t.run(l, a)
	return t.Trial
}

func (v MatVecGLU) trial(l Launch, block int) Trial {
	t := newTrial()
	rows := l.few(trialRows, v.N, block)
	vectors := v.M - v.M/3
	gate, gates := t.weight(v.Format, rows, v.K, rows)
	up, ups := t.weight(v.Format, rows, v.K, rows)
	x, xAt := t.floats(vectors * v.K)
	norm, normAt := t.norm(v.Norm, v.K)
	few, y := v, make([]float32, vectors*rows)
	few.N = rows
	var sum summands
	if v.Sum != nil {
		x, sum = t.sum(*v.Sum, x)
	}
	few.Twin(gate, up, x, norm, y)
	out := t.out(F32, vectors*v.N)
	step := t.ints(int32(vectors), 0)
	if v.Sum != nil {
		t.run(l, StreamSumGLUArguments[place]{W0: gates, W1: ups, X: xAt, Norm: normAt, Y: out,
			Before: sum.before, Residual: sum.residual, Scale: sum.scale, Out: sum.out, Step: step})
	} else {
		t.run(l, MatVecGLUArguments[place]{W0: gates, W1: ups, X: xAt, Norm: normAt, Y: out, Step: step})
	}
	t.wants(out, F32, rows, v.N, y, 3*sums(v.K))
	return t.Trial
}

// trialExperts is the number of experts that a trial has weights of.
const trialExperts = 3

// choose makes the experts of tokens, and the buffer of them.
func (t *trial) choose(count, pairs int) ([]int32, place) {
	out := make([]int32, pairs)
	for i := range out {
		out[i] = int32((i*2 + i/3) % min(trialExperts, count))
	}
	return out, t.ints(out...)
}

func (e Experts) trialUp(l Launch, block int) Trial {
	t := newTrial()
	rows := l.few(trialRows, e.Inner, block)
	l.Groups[1] = e.Top
	total := min(trialExperts, e.Count) * e.Inner
	gate, gates := t.weight(e.Format, total, e.Hidden, total)
	up, ups := t.weight(e.Format, total, e.Hidden, total)
	experts, expertsAt := t.choose(e.Count, e.Top)
	x, xAt := t.floats(e.Hidden)
	norm, normAt := t.norm(e.Norm, e.Hidden)
	product := MatVecGLU{Vectors: e.up(), N: rows, Activation: e.Activation}
	h := make([]float32, e.Top*rows)
	for i, at := range experts {
		product.Twin(gate.rows(int(at)*e.Inner, rows), up.rows(int(at)*e.Inner, rows), x, norm, h[i*rows:][:rows])
	}
	out := t.out(F32, e.Top*e.Inner)
	t.run(l, ExpertsUpArguments[place]{W0: gates, W1: ups, Experts: expertsAt, X: xAt, Norm: normAt, Y: out, Step: t.ints(1, 0)})
	t.wants(out, F32, rows, e.Inner, h, 3*sums(e.Hidden))
	return t.Trial
}

func (e Experts) trialDown(l Launch, block int) Trial {
	t := newTrial()
	rows := l.few(trialRows, e.Hidden, block)
	l.Groups[1] = 1
	total := min(trialExperts, e.Count) * e.Hidden
	down, downs := t.weight(e.Format, total, e.Inner, total)
	experts, expertsAt := t.choose(e.Count, e.Top)
	scores, scoresAt := t.floats(e.Top)
	h, hAt := t.floats(e.Top * e.Inner)
	extra, extraAt := t.floats(e.Hidden)
	product := MatVec{Vectors: Vectors{Format: e.Format, K: e.Inner, M: 1}, N: rows}
	y, part := make([]float32, rows), make([]float32, rows)
	if e.Residual {
		copy(y, extra)
	}
	for i, at := range experts {
		product.Twin(down.rows(int(at)*e.Hidden, rows), h[i*e.Inner:][:e.Inner], nil, nil, nil, part)
		for n, v := range part {
			y[n] += float32(scores[i] * v)
		}
	}
	out := t.out(F32, e.Hidden)
	t.run(l, ExpertsDownArguments[place]{W: downs, Experts: expertsAt, Scores: scoresAt, X: hAt, Extra: extraAt, Y: out, Step: t.ints(1, 0)})
	t.want(out, F32, y, 2*sums(e.Top*e.Inner))
	return t.Trial
}

// tiled is the dtype of vectors, and the bound of results, of tiled products.
func (m Matrices) tiled() (DType, float64) {
	if m.Exact {
		return F32, sums(m.K)
	}
	return BF16, roundedAll
}

// sample adds vectors [tokens, k] of which some are random, the others zeros; at are those.
func (t *trial) sample(d DType, tokens, k int, at []int) ([]float32, place) {
	values := t.random(d, len(at)*k)
	return values, t.sparse(d, tokens, k, values, k, at)
}

// sparse adds a buffer [tokens, width] of which some rows begin with n of the values each, and the rest is zeros.
func (t *trial) sparse(d DType, tokens, width int, values []float32, n int, at []int) place {
	var parts []TrialPart
	for i, row := range at {
		parts = append(parts, TrialPart{row * width * d.Size(), d.Bytes(values[i*n:][:n])})
	}
	return t.add(tokens*width*d.Size(), parts...)
}

// tileRows are a few of the rows of two blocks, the last of all among them.
func (l Tile) tileRows() (at []int, tokens int) {
	return []int{0, 5, l.BM/2 + 3, l.BM - 1, l.BM + 2}, l.BM + 3
}

func (m MatMul) trial(l Launch, tile Tile) Trial {
	t := newTrial()
	at, tokens := tile.tileRows()
	l.Groups[1] = 2
	rows := l.few(tile.BN+1, m.N, tile.BN)
	d, bound := m.tiled()
	w, weight := t.weight(m.Format, rows, m.K, rows)
	x, xAt := t.sample(d, tokens, m.K, at)
	few, y := m, make([]float32, len(at)*rows)
	few.N = rows
	var extra []float32
	var extraAt place
	switch m.Epilogue {
	case AddVector:
		extra, extraAt = t.floats(rows)
	case AddMatrix:
		extra = t.random(F32, len(at)*rows)
		extraAt = t.sparse(F32, tokens, m.N, extra, rows, at)
	}
	few.Twin(w, x, extra, y)
	out, d, bound := t.tiled(m.Half, tokens*m.N, bound)
	t.run(l, MatMulArguments[place]{W: weight, X: xAt, Extra: extraAt, Y: out, Step: t.ints(int32(tokens), 0)})
	t.wantRows(out, d, at, rows, m.N, y, bound)
	return t.Trial
}

func (m MatMulGLU) trial(l Launch, tile Tile) Trial {
	t := newTrial()
	at, tokens := tile.tileRows()
	l.Groups[1] = 2
	rows := l.few(tile.BN/2+1, m.N, tile.BN/2)
	d, bound := m.tiled()
	gate, gates := t.weight(m.Format, rows, m.K, rows)
	up, ups := t.weight(m.Format, rows, m.K, rows)
	x, xAt := t.sample(d, tokens, m.K, at)
	few, y := m, make([]float32, len(at)*rows)
	few.N = rows
	few.Twin(gate, up, x, y)
	out, d, bound := t.tiled(m.Half, tokens*m.N, 2*bound)
	t.run(l, MatMulGLUArguments[place]{W0: gates, W1: ups, X: xAt, Y: out, Step: t.ints(int32(tokens), 0)})
	t.wantRows(out, d, at, rows, m.N, y, bound)
	return t.Trial
}

// tiled adds the n results of a tiled product, of which it gives the dtype and the bound.
func (t *trial) tiled(half bool, n int, bound float64) (place, DType, float64) {
	d := F32
	if half {
		d, bound = BF16, max(bound, roundedOnce)
	}
	return t.out(d, n), d, bound
}

// wantRows adds what some rows of n results must begin with: so many of y each.
func (t *trial) wantRows(out place, d DType, at []int, rows, n int, y []float32, bound float64) {
	for i, row := range at {
		t.wantAt(out, row*n, d, y[i*rows:][:rows], bound)
	}
}

func (p Prepare) trial() Trial {
	const tokens = 2
	t := newTrial()
	l, _ := p.Launch(tokens)
	x, xAt := t.floats(tokens * p.K)
	norm, normAt := t.norm(p.Norm, p.K)
	y := make([]float32, len(x))
	p.Twin(x, norm, y)
	d, bound := F32, sums(1)
	if !p.Exact {
		d, bound = BF16, roundedOnce
	}
	out := t.out(d, len(y))
	t.run(l, MatMulPrepareArguments[place]{X: xAt, Norm: normAt, Y: out, Step: t.ints(tokens, 0)})
	t.want(out, d, y, bound)
	return t.Trial
}

func (d Dequantize) trial() Trial {
	t := newTrial()
	few := d
	few.N = min(d.N, 3)
	l, _ := few.Launch()
	w, weight := t.weight(d.Format, few.N, d.K, few.N)
	y := make([]float32, few.N*d.K)
	few.Twin(w, y)
	out := t.out(BF16, len(y))
	t.run(l, DequantizeArguments[place]{W: weight, Y: out})
	t.want(out, BF16, y, roundedOnce)
	return t.Trial
}

func (e Embedding) trial() Trial {
	t := newTrial()
	n := min(e.N, 3)
	l, _ := e.Launch(2)
	w, weight := t.weight(e.Format, n, e.K, n)
	tokens, y := []int32{int32(n - 1), 0}, make([]float32, 2*e.K)
	e.Twin(w, tokens, y)
	out := t.out(F32, len(y))
	t.run(l, EmbeddingArguments[place]{W: weight, Tokens: t.ints(tokens...), Y: out, Step: t.ints(2, 0)})
	t.want(out, F32, y, sums(1))
	return t.Trial
}
