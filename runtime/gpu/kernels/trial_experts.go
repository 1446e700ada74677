package kernels

// sorted makes the experts of tokens in the order of tiles.
func (e ManyExperts) sorted(t *trial, tile Tile, experts []int32) (order []int32, tiles [][4]int32, orderAt, tilesAt place) {
	order, tiles = e.TwinSort(tile, experts)
	flat := make([]int32, 0, 4*len(tiles))
	for _, x := range tiles {
		flat = append(flat, x[:]...)
	}
	return order, tiles, t.ints(order...), t.ints(flat...)
}

func (e ManyExperts) trialSort(l Launch, tile Tile, capacity int) Trial {
	t := newTrial()
	experts := make([]int32, min(capacity, 37)*e.Top)
	for i := range experts {
		experts[i] = int32(t.IntN(e.Count))
	}
	order, tiles := e.TwinSort(tile, experts)
	wantOrder, wantTiles := make([]float32, len(order)), make([]float32, 4*e.MaxTiles(tile, capacity))
	for i, at := range order {
		wantOrder[i] = float32(at)
	}
	for i := range wantTiles {
		switch {
		case i/4 < len(tiles):
			wantTiles[i] = float32(tiles[i/4][i%4])
		case i%4 == 0:
			wantTiles[i] = -1
		}
	}
	orderAt, tilesAt := t.out(I32, len(order)), t.out(I32, len(wantTiles))
	t.run(l, ExpertsSortArguments[place]{Experts: t.ints(experts...), Order: orderAt, Tiles: tilesAt, Step: t.ints(int32(len(experts)/e.Top), 0)})
	t.want(orderAt, I32, wantOrder, 0)
	t.want(tilesAt, I32, wantTiles, 0)
	return t.Trial
}

// tilePairs are the places, in the order of tiles, of the first and the last pair of each, and of one of every eight between them.
func tilePairs(tiles [][4]int32) []int {
	var out []int
	for _, x := range tiles {
		first, last := int(x[1]), int(x[2]-1)
		for at := first; at < last; at += 8 {
			out = append(out, at)
		}
		out = append(out, last)
	}
	return out
}

// trialTokens is the number of tokens of trials of mixtures of experts.
const trialTokens = 5

// trialPairs are the experts of tokens, for products by tiles. Of tiles of BK 0 there are such with one, two and more eights of pairs,
// up to all, since for each of these a kernel has other code.
func (e ManyExperts) trialPairs(t *trial, tile Tile) []int32 {
	if tile.BK > 0 {
		experts, _ := t.choose(e.Count, trialTokens*e.Top)
		return experts
	}
	var experts []int32
	for i, pairs := range []int{tile.BM + 5, 12, 20} {
		for range pairs {
			experts = append(experts, int32(i%min(trialExperts, e.Count)))
		}
	}
	return experts
}

func (e ManyExperts) trialUp(l Launch, tile Tile) Trial {
	t := newTrial()
	experts := e.trialPairs(t, tile)
	order, tiles, orderAt, tilesAt := e.sorted(t, tile, experts)
	rows := l.few(tile.BN/2+1, e.Inner, tile.BN/2)
	l.Groups[1] = len(tiles)
	m := e.up()
	d, bound := m.tiled()
	total := min(trialExperts, e.Count) * e.Inner
	gate, gates := t.weight(e.Format, total, e.Hidden, total)
	up, ups := t.weight(e.Format, total, e.Hidden, total)
	x, xAt := t.held(d, ceil(len(experts), e.Top)*e.Hidden)
	out := t.out(d, len(order)*e.Inner)
	t.run(l, ExpertsMatMulUpArguments[place]{W0: gates, W1: ups, Order: orderAt, Tiles: tilesAt, X: xAt, H: out})
	product := MatMulGLU{Matrices: m, N: rows, Activation: e.Activation}
	for _, at := range tilePairs(tiles) {
		pair, h := int(order[at]), make([]float32, rows)
		expert := int(experts[pair]) * e.Inner
		product.Twin(gate.rows(expert, rows), up.rows(expert, rows), x[pair/e.Top*e.Hidden:][:e.Hidden], h)
		t.wantAt(out, at*e.Inner, d, h, 2*bound)
	}
	return t.Trial
}

func (e ManyExperts) trialDown(l Launch, tile Tile) Trial {
	t := newTrial()
	experts := e.trialPairs(t, tile)
	order, tiles, orderAt, tilesAt := e.sorted(t, tile, experts)
	rows := l.few(tile.BN+1, e.Hidden, tile.BN)
	l.Groups[1] = len(tiles)
	m := e.down()
	d, bound := m.tiled()
	total := min(trialExperts, e.Count) * e.Hidden
	down, downs := t.weight(e.Format, total, e.Inner, total)
	h, hAt := t.held(d, len(order)*e.Inner)
	out := t.out(F32, len(order)*e.Hidden)
	t.run(l, ExpertsMatMulDownArguments[place]{W: downs, Order: orderAt, Tiles: tilesAt, H: hAt, Y: out})
	product := MatMul{Matrices: m, N: rows}
	for _, at := range tilePairs(tiles) {
		pair, y := int(order[at]), make([]float32, rows)
		product.Twin(down.rows(int(experts[pair])*e.Hidden, rows), h[at*e.Inner:][:e.Inner], nil, y)
		t.wantAt(out, pair*e.Hidden, F32, y, bound)
	}
	return t.Trial
}

func (e ManyExperts) trialCombine() Trial {
	t := newTrial()
	const tokens = 2
	l, _ := e.LaunchCombine(tokens)
	x, xAt := t.floats(tokens * e.Top * e.Hidden)
	scores, scoresAt := t.floats(tokens * e.Top)
	extra, extraAt := t.floats(tokens * e.Hidden)
	y := make([]float32, tokens*e.Hidden)
	for i := range y {
		sum := 0.0
		if e.Residual {
			sum = float64(extra[i])
		}
		for j := range e.Top {
			pair := i/e.Hidden*e.Top + j
			sum += float64(float64(scores[pair]) * float64(x[pair*e.Hidden+i%e.Hidden]))
		}
		y[i] = float32(sum)
	}
	out := t.out(F32, len(y))
	t.run(l, ExpertsCombineArguments[place]{X: xAt, Scores: scoresAt, Extra: extraAt, Y: out, Step: t.ints(tokens, 0)})
	t.want(out, F32, y, sums(1))
	return t.Trial
}

func (r Router) trial() Trial {
	t := newTrial()
	const tokens = 2
	l, _ := r.Launch(tokens)
	logits, logitsAt := t.floats(tokens * r.Experts)
	experts, scores, places := make([]int32, tokens*r.Top), make([]float32, tokens*r.Top), make([]float32, tokens*r.Top)
	r.Twin(logits, experts, scores)
	for i, at := range experts {
		places[i] = float32(at)
	}
	expertsAt, scoresAt := t.out(I32, len(experts)), t.out(F32, len(scores))
	t.run(l, RouterArguments[place]{Logits: logitsAt, Experts: expertsAt, Scores: scoresAt, Step: t.ints(tokens, 0)})
	t.want(expertsAt, I32, places, 0)
	t.want(scoresAt, F32, scores, sums(1))
	return t.Trial
}
