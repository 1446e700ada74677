package kernels

import (
	"math"
	"slices"
)

func (r Router) newCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 0)
	l, _ := r.Launch(c.Capacity)
	logits, scales := c.random(F32, c.Tokens*r.Experts), r.scales(c)
	experts, scores := c.out(I32, c.Capacity*r.Top), c.out(F32, c.Capacity*r.Top)
	c.run(l, RouterArguments[*Buffer]{Logits: logits, Scales: scales, Experts: experts, Scores: scores, Step: c.step()})
	c.reference = func() {
		chosen := make([]int32, c.Tokens*r.Top)
		r.Reference(logits.Values(), scales.Values(), chosen, c.want(scores, Bounds{1e-6, sums(1)}, len(chosen)))
		c.wantInts(experts, chosen)
	}
	return c
}

// scales adds the factors of the experts' scores.
func (r Router) scales(c *Case) *Buffer {
	if r.Scales == None {
		return nil
	}
	return c.random(r.Scales, r.Experts)
}

// weighted returns the number of experts that have weights in a case.
func (e Experts) weighted(c *Case) int {
	if c.Chosen {
		return min(e.Top, e.Count)
	}
	return e.Count
}

// given returns the experts of the tokens' parts for kernels that do not choose them; the shared expert, if any, comes
// first.
func (e Experts) given(c *Case) []int32 {
	r, out := c.seed(), make([]int32, 0, c.Capacity*e.Parts())
	for range c.Capacity {
		if e.Shared {
			out = append(out, 0)
		}
		for _, at := range r.Perm(e.weighted(c))[:e.Top] {
			out = append(out, int32(at))
		}
	}
	return out
}

// pair returns the weights of a part of a token: the shared expert's, or the rows of an expert in the stack.
func (e Experts) pair(part, expert, size, rows int, shared, all func() *Weight) *Weight {
	if e.Shared && part%e.Parts() == 0 {
		return shared().rows(0, rows)
	}
	return all().rows(expert*size, rows)
}

// onceCase returns the case of a first product that reads the weights of each chosen expert once for all tokens.
func (e Experts) onceCase(s Sizes, capacity int, l Launch) *Case {
	if !s.Whole {
		s = Sizes{Whole: true, Tokens: min(capacity, caseTokens), Capacity: capacity, Chosen: true}
	}
	return e.upCase(l, e.Inner, s)
}

// upCase returns the case of a first product, whose experts are given or chosen by it. If not all experts have weights
// in the case, the logits of those that do are the largest, so that only they are chosen.
func (e Experts) upCase(l Launch, block int, s Sizes) *Case {
	c := newCase(s, 1, 0)
	parts, rows := e.Parts(), c.few(&l, caseRows, e.Inner, block)
	if !c.Whole {
		l.Groups[1] = min(l.Groups[1], parts) // with resident weights every threadgroup has rows of all parts
	}
	count := e.weighted(c)
	gate, gates := c.weight(e.Format, count*e.Inner, e.Hidden, count*e.Inner)
	up, ups := c.weight(e.Format, count*e.Inner, e.Hidden, count*e.Inner)
	x, norm, y := c.random(F32, c.Capacity*e.Hidden), c.norm(e.Norm, e.Hidden), c.out(F32, c.Capacity*parts*e.Inner)
	var choose ExpertsChooseArguments[*Buffer]
	var given []int32
	sharedGate, sharedUp := gate, up
	if e.Router.Top > 0 {
		choose = ExpertsChooseArguments[*Buffer]{W0: gates, W1: ups, X: x, Norm: norm, Y: y, Step: c.step()}
		if e.Shared {
			sharedGate, choose.V0 = c.weight(e.Format, e.Inner, e.Hidden, e.Inner)
			sharedUp, choose.V1 = c.weight(e.Format, e.Inner, e.Hidden, e.Inner)
			_, choose.E = c.weight(e.Format, 1, e.Inner, e.Hidden)
		}
		_, choose.D = c.weight(e.Format, 1, e.Inner, count*e.Hidden) // the kernel only prefetches them
		choose.Logits, choose.ExpertScales, choose.Gates = e.logits(c), e.Router.scales(c), c.random(F32, c.Capacity)
		choose.Experts, choose.Scores = c.out(I32, c.Capacity*parts), c.out(F32, c.Capacity*parts)
		c.run(l, choose)
	} else {
		given = e.given(c)
		c.run(l, ExpertsUpArguments[*Buffer]{W0: gates, W1: ups, Experts: c.ints(given...), X: x,
			Norm: norm, Y: y, Step: c.step()})
	}
	bound := Bounds{2e-6, 3 * sums(e.Hidden)}
	if l.Kernel == "once_choose" { // it rounds x to bf16
		bound = Bounds{6e-3, 2 * roundedAll}
	}
	c.reference = func() {
		experts := given
		if e.Router.Top > 0 {
			experts = make([]int32, c.Tokens*parts)
			scores := c.want(choose.Scores, Bounds{1e-6, sums(1)}, len(experts))
			e.ReferenceChoice(choose.Logits.Values()[:c.Tokens*e.Count], choose.ExpertScales.Values(),
				choose.Gates.Values(), experts, scores)
			c.wantInts(choose.Experts, experts)
		}
		product, h := MatVecGLU{Vectors: e.up(), N: rows, Activation: e.Activation},
			c.wantRows(y, bound, c.Tokens*parts, rows, e.Inner)
		for i, at := range experts[:c.Tokens*parts] {
			product.Reference(e.pair(i, int(at), e.Inner, rows, sharedGate, gate),
				e.pair(i, int(at), e.Inner, rows, sharedUp, up),
				x.Values()[i/parts*e.Hidden:][:e.Hidden], norm.Values(), h[i*rows:][:rows])
		}
	}
	return c
}

// logits adds the logits of all experts, many of them equal. Experts that have weights have the largest ones.
func (e Experts) logits(c *Case) *Buffer {
	return c.random(F32, c.Capacity*e.Count).each(func(i int, x float32) float32 {
		x = float32(math.Round(float64(4*x)) / 4)
		if e.Router.Logits {
			x = 1 + max(x, -x) // so that the sum is never near 0
		}
		if i%e.Count < e.weighted(c) && c.Chosen {
			x += 4
		}
		return x
	})
}

// downCase returns the case of a second product, with a shared expert or without.
func (e Experts) downCase(l Launch, block int, s Sizes) *Case {
	c := newCase(s, 1, 0)
	parts, rows, count := e.Parts(), c.few(&l, caseRows, e.Hidden, block), e.weighted(c)
	if !c.Whole {
		l.Groups[1] = 1
	}
	down, w := c.weight(e.Format, count*e.Hidden, e.Inner, count*e.Hidden)
	given := e.given(c)
	experts, scores := c.ints(given...), c.random(F32, c.Capacity*parts)
	x, extra, y := c.random(F32, c.Capacity*parts*e.Inner), c.random(F32, c.Capacity*e.Hidden),
		c.out(F32, c.Capacity*e.Hidden)
	shared := down
	if e.Shared {
		var v WeightArguments[*Buffer]
		shared, v = c.weight(e.Format, e.Hidden, e.Inner, e.Hidden)
		c.run(l, ExpertsJoinArguments[*Buffer]{W: w, V: v, Experts: experts, Scores: scores, X: x,
			Extra: extra, Y: y, Step: c.step()})
	} else {
		c.run(l, ExpertsDownArguments[*Buffer]{W: w, Experts: experts, Scores: scores, X: x,
			Extra: extra, Y: y, Step: c.step()})
	}
	c.reference = func() {
		product, part := MatVec{Vectors: Vectors{Format: e.Format, K: e.Inner, M: 1}, N: rows}, make([]float32, rows)
		sum := make([]float64, c.Tokens*rows)
		for i := range sum {
			if e.Residual {
				sum[i] = float64(extra.Values()[i/rows*e.Hidden+i%rows])
			}
		}
		for i, at := range given[:c.Tokens*parts] {
			product.Reference(e.pair(i, int(at), e.Hidden, rows, shared, down), x.Values()[i*e.Inner:][:e.Inner], nil,
				nil, nil, part)
			for n, v := range part {
				sum[i/parts*rows+n] += float64(scores.Values()[i]) * float64(v)
			}
		}
		want := c.wantRows(y, Bounds{4e-6, 2 * sums(parts*e.Inner)}, c.Tokens, rows, e.Hidden)
		for i, v := range sum {
			want[i] = float32(v)
		}
	}
	return c
}

// flat returns the tiles as the kernel writes them, filled up to all tiles with ones that have no expert.
func flat(tiles [][4]int32, all int) []int32 {
	out := make([]int32, 0, 4*all)
	for _, x := range tiles {
		out = append(out, x[:]...)
	}
	for len(out) < 4*all {
		out = append(out, -1, 0, 0, 0)
	}
	return out
}

func (e ManyExperts) sortCase(tile Tile, capacity int, s Sizes) *Case {
	c := newCase(s, min(capacity, 37), 0)
	c.Capacity = max(c.Capacity, capacity)
	l, _ := e.LaunchSort(tile, c.Capacity)
	r, experts := c.seed(), make([]int32, c.Capacity*e.Top)
	for i := range experts {
		experts[i] = int32(math.Abs(r.NormFloat64())*float64(e.Count)/3) % int32(e.Count)
	}
	all := e.SortedTiles(tile, c.Capacity)
	order, tiles := c.out(I32, c.Capacity*e.Parts()), c.out(I32, 4*all)
	c.run(l, ExpertsSortArguments[*Buffer]{Experts: c.ints(experts...), Order: order, Tiles: tiles, Step: c.step()})
	c.reference = func() {
		wantOrder, wantTiles := e.ReferenceSort(tile, experts[:c.Tokens*e.Top])
		c.wantInts(order, wantOrder)
		c.wantInts(tiles, flat(wantTiles, all))
	}
	return c
}

// casePairs returns the experts of the tokens for tiled products, and their number. A self-test has three experts. For
// tiles with BK 0 it has experts with one, two and more groups of eight pairs, since the kernel has different code for
// each number.
func (e ManyExperts) casePairs(c *Case, tile Tile) (experts []int32, count int) {
	if c.Whole {
		for i := range c.Tokens * e.Top {
			experts = append(experts, int32((i*(e.Count/e.Top)+i/e.Top*7)%e.Count))
		}
		return experts, e.Count
	}
	count = min(3, e.Count)
	if tile.BK > 0 {
		for i := range c.Tokens * e.Top {
			experts = append(experts, int32((i*2+i/3)%count))
		}
		return experts, count
	}
	for i, pairs := range []int{tile.BM + 5, 12, 20} {
		for range pairs {
			experts = append(experts, int32(i%count))
		}
	}
	for e.Shared && len(experts)%e.Top > 0 { // every token has Top pairs
		experts = append(experts, experts[len(experts)-1])
	}
	return experts, count
}

// part returns the token of a part, and which expert of the stack it has: -1 where it has the shared one.
func (e ManyExperts) part(experts []int32, part int32) (token, expert int) {
	token, at := int(part)/e.Parts(), int(part)%e.Parts()-btoi(e.Shared)
	if at < 0 {
		return token, -1
	}
	return token, int(experts[token*e.Top+at])
}

// rowsOfExpert returns the first rows of the weight of an expert, whose weights stand every size rows in the stack;
// expert -1 is the shared one.
func rowsOfExpert(expert, size, rows int, shared, all func() *Weight) *Weight {
	if expert < 0 {
		return shared().rows(0, rows)
	}
	return all().rows(expert*size, rows)
}

// newCase returns the case of a tiled product, the experts, the order of pairs, and the pairs whose results are
// checked: all of them, or for each expert the first, the last, and one of every eight between them.
func (e ManyExperts) newCase(l *Launch, tile Tile, s Sizes) (c *Case, experts, order []int32, count int, orders,
	tiles *Buffer, at []int) {
	c = newCase(s, 5, 0)
	experts, count = e.casePairs(c, tile)
	order, list := e.ReferenceSort(tile, experts)
	for _, x := range list {
		last := int(x[2] - 1)
		for i := int(x[1]); i < last; i += 8 {
			at = append(at, i)
		}
		at = append(at, last)
	}
	all := len(list)
	if c.Whole {
		all, at = l.Groups[1], every(len(order))
	}
	l.Groups[1] = all
	return c, experts, order, count, c.ints(order...), c.ints(flat(list, all)...), at
}

func (e ManyExperts) upCase(l Launch, tile Tile, s Sizes) *Case {
	c, experts, order, count, orders, tiles, pairs := e.newCase(&l, tile, s)
	rows := c.few(&l, tile.BN/2+1, e.Inner, tile.BN/2)
	m := e.up()
	d, bound := m.tiled()
	gate, gates := c.weight(e.Format, count*e.Inner, e.Hidden, count*e.Inner)
	up, ups := c.weight(e.Format, count*e.Inner, e.Hidden, count*e.Inner)
	x, out := c.vectors(m, ceil(len(experts), e.Top)), c.out(d, len(order)*e.Inner)
	args := ExpertsMatMulUpArguments[*Buffer]{W0: gates, W1: ups, Order: orders, Tiles: tiles, X: x, H: out}
	sharedGate, sharedUp := gate, up
	if e.Shared {
		sharedGate, args.V0 = c.weight(e.Format, e.Inner, e.Hidden, e.Inner)
		sharedUp, args.V1 = c.weight(e.Format, e.Inner, e.Hidden, e.Inner)
	}
	c.run(l, args)
	c.reference = func() {
		product := MatMulGLU{Matrices: m, N: rows, Activation: e.Activation}
		bound = Bounds{2 * bound.Test, 2 * bound.SelfTest}
		y := make([]float32, len(pairs)*rows)
		if !e.Lanes {
			y = c.wantAmong(out, bound, pairs, len(order), rows, e.Inner)
		}
		for i, at := range pairs {
			token, expert := e.part(experts, order[at])
			product.Reference(rowsOfExpert(expert, e.Inner, rows, sharedGate, gate),
				rowsOfExpert(expert, e.Inner, rows, sharedUp, up), x.Values()[token*e.Hidden:][:e.Hidden], y[i*rows:][:rows])
			for k := 0; e.Lanes && k < rows; k += 8 { // eight numbers stand together, in an order of their own
				var eight [8]float32
				for j := range eight {
					eight[laneOrder(j)] = y[i*rows+k+j]
				}
				c.wantAt(out, bound, at*e.Inner+laneOrder(k), eight[:])
			}
		}
	}
	return c
}

func (e ManyExperts) downCase(l Launch, tile Tile, s Sizes) *Case {
	c, experts, order, count, orders, tiles, pairs := e.newCase(&l, tile, s)
	rows := c.few(&l, tile.BN+1, e.Hidden, tile.BN)
	m := e.down()
	_, bound := m.tiled()
	down, w := c.weight(e.Format, count*e.Hidden, e.Inner, count*e.Hidden)
	h, out := c.vectors(m, len(order)), c.out(F32, len(order)*e.Hidden)
	args := ExpertsMatMulDownArguments[*Buffer]{W: w, Order: orders, Tiles: tiles, H: h, Y: out}
	shared := down
	if e.Shared {
		shared, args.V = c.weight(e.Format, e.Hidden, e.Inner, e.Hidden)
	}
	c.run(l, args)
	c.reference = func() {
		slices.SortFunc(pairs, func(a, b int) int { return int(order[a] - order[b]) })
		product, to := MatMul{Matrices: m, N: rows}, make([]int, len(pairs))
		for i, at := range pairs {
			to[i] = int(order[at])
		}
		y := c.wantAmong(out, bound, to, len(order), rows, e.Hidden)
		for i, at := range pairs {
			_, expert := e.part(experts, int32(to[i]))
			product.Reference(rowsOfExpert(expert, e.Hidden, rows, shared, down), h.Values()[at*e.Inner:][:e.Inner], nil,
				y[i*rows:][:rows])
		}
	}
	return c
}

// vectors adds vectors of a product, random numbers in the form that it takes.
func (c *Case) vectors(m Matrices, n int) *Buffer {
	if m.Packed == 0 {
		d, _ := m.tiled()
		return c.random(d, n*m.K)
	}
	return c.packed(Prepare{K: m.K, Packed: m.Packed}, every(n), n)
}

func (e ManyExperts) combineCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 0)
	l, _ := e.LaunchCombine(c.Capacity)
	x, scores := c.random(F32, c.Tokens*e.Parts()*e.Hidden), c.random(F32, c.Tokens*e.Top)
	extra, out := c.random(F32, c.Tokens*e.Hidden), c.out(F32, c.Capacity*e.Hidden)
	gates := c.random(F32, c.Tokens)
	c.run(l, ExpertsCombineArguments[*Buffer]{X: x, Scores: scores, Extra: extra, Y: out, Gates: gates, Step: c.step()})
	c.reference = func() {
		y := c.want(out, Bounds{2e-6, sums(1)}, c.Tokens*e.Hidden)
		for i := range y {
			sum := 0.0
			if e.Residual {
				sum = float64(extra.Values()[i])
			}
			token := i / e.Hidden
			for j := range e.Parts() {
				score := 1 / (1 + math.Exp(-float64(gates.Values()[token])))
				if j >= btoi(e.Shared) {
					score = float64(scores.Values()[token*e.Top+j-btoi(e.Shared)])
				}
				sum += float64(score * float64(x.Values()[(token*e.Parts()+j)*e.Hidden+i%e.Hidden]))
			}
			y[i] = float32(sum)
		}
	}
	return c
}
