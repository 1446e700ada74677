package kernels

// trialChoice is a trial of a first product that chooses: among the logits of all experts, those that a trial has
// weights of are the largest.
func (e Experts) trialChoice(l Launch, block int) Trial {
	t := newTrial()
	rows := l.few(trialRows, e.Inner, block)
	l.Groups[1] = min(l.Groups[1], e.Parts()) // where weights are held, every threadgroup has rows of all parts
	total := e.Top * e.Inner
	gate, gates := t.weight(e.Format, total, e.Hidden, total)
	up, ups := t.weight(e.Format, total, e.Hidden, total)
	shared, sharedGates, sharedUp, sharedUps := gate, gates, up, ups
	if e.Shared {
		shared, sharedGates = t.weight(e.Format, e.Inner, e.Hidden, e.Inner)
		sharedUp, sharedUps = t.weight(e.Format, e.Inner, e.Hidden, e.Inner)
	}
	logits := e.favoured(t)
	_, down := t.weight(e.Format, 1, e.Inner, e.Top*e.Hidden) // of which nothing is read
	score, scoreAt := t.floats(1)
	x, xAt := t.floats(e.Hidden)
	norm, normAt := t.norm(e.Norm, e.Hidden)
	experts, scores := make([]int32, e.Parts()), make([]float32, e.Parts())
	e.TwinChoice(logits, score, experts, scores)
	product := MatVecGLU{Vectors: e.up(), N: rows, Activation: e.Activation}
	h, places := make([]float32, e.Parts()*rows), make([]float32, e.Parts())
	for i, at := range experts {
		g, u := gate, up
		if e.Shared && i == 0 {
			g, u = shared, sharedUp
		}
		product.Twin(g.rows(int(at)*e.Inner, rows), u.rows(int(at)*e.Inner, rows), x, norm, h[i*rows:][:rows])
		places[i] = float32(at)
	}
	logitsAt, expertsAt, scoresAt, out := t.hold(F32, logits), t.out(I32, len(experts)), t.out(F32, len(scores)), t.out(F32, e.Parts()*e.Inner)
	t.run(l, ExpertsChooseArguments[place]{W0: gates, W1: ups, V0: sharedGates, V1: sharedUps, D: down, Logits: logitsAt, Gates: scoreAt, X: xAt, Norm: normAt,
		Experts: expertsAt, Scores: scoresAt, Y: out, Step: t.ints(1, 0)})
	t.want(expertsAt, I32, places, 0)
	t.want(scoresAt, F32, scores, sums(1))
	t.wants(out, F32, rows, e.Inner, h, 3*sums(e.Hidden))
	return t.Trial
}

// favoured are logits that choose the first experts of all, which a trial has weights of.
func (e Experts) favoured(t *trial) []float32 {
	logits := t.random(F32, e.Count)
	for i := range e.Top {
		logits[i] += 4
	}
	return logits
}

// trialJoin is a trial of a second product with a shared expert.
func (e Experts) trialJoin(l Launch, block int) Trial {
	t := newTrial()
	rows := l.few(trialRows, e.Hidden, block)
	l.Groups[1] = 1
	total := e.Top * e.Hidden
	down, downs := t.weight(e.Format, total, e.Inner, total)
	shared, shareds := t.weight(e.Format, e.Hidden, e.Inner, e.Hidden)
	experts := make([]int32, e.Parts())
	for i := range e.Top {
		experts[i+1] = int32(e.Top - 1 - i)
	}
	expertsAt := t.ints(experts...)
	scores, scoresAt := t.floats(e.Parts())
	h, hAt := t.floats(e.Parts() * e.Inner)
	extra, extraAt := t.floats(e.Hidden)
	product := MatVec{Vectors: Vectors{Format: e.Format, K: e.Inner, M: 1}, N: rows}
	y, part := make([]float32, rows), make([]float32, rows)
	if e.Residual {
		copy(y, extra)
	}
	for i, at := range experts {
		w := down.rows(int(at)*e.Hidden, rows)
		if i == 0 {
			w = shared.rows(0, rows)
		}
		product.Twin(w, h[i*e.Inner:][:e.Inner], nil, nil, nil, part)
		for n, v := range part {
			y[n] += float32(scores[i] * v)
		}
	}
	out := t.out(F32, e.Hidden)
	t.run(l, ExpertsJoinArguments[place]{W: downs, V: shareds, Experts: expertsAt, Scores: scoresAt, X: hAt, Extra: extraAt, Y: out, Step: t.ints(1, 0)})
	t.want(out, F32, y, 2*sums(e.Parts()*e.Inner))
	return t.Trial
}
