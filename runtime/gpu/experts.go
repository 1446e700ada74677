package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// topKOf are the k largest of rows, deferred: a softmax of them is a part of the same kernel, and both are a part of the
// mixture of experts that they choose the experts of.
type topKOf struct {
	x               *value
	k, rows, width  int
	values, indices *value
	scores          *value // the softmax of values, which nothing else reads then
}

func (t *topKOf) router() kernels.Router {
	return kernels.Router{Experts: t.width, Top: t.k, Logits: t.scores == nil, Normalize: t.scores != nil, Scale: 1}
}

func (t *topKOf) emit(b *binder) {
	scores := t.values
	if t.scores != nil {
		scores = t.scores
	}
	b.take(t.indices.slot)
	b.take(scores.slot)
	l, err := t.router().Launch(t.rows)
	b.launch("top-k", l, err, kernels.RouterArguments[operand]{Logits: bytesOf(t.x), Experts: bytesOf(t.indices), Scores: bytesOf(scores), Step: b.stepAt(t.rows, nil)})
}

// bindTopK finds the k largest of each row, in the order of the reference kernel.
func bindTopK(b *binder) bool {
	x, k := b.floats("x"), ir.Attrs[ir.TopKAttrs](b.op).K
	if x == nil || len(x.shape) == 0 || k < 1 || k > x.shape[len(x.shape)-1] {
		return false
	}
	t := &topKOf{k: k, width: x.shape[len(x.shape)-1]}
	t.rows = x.len() / t.width
	if _, err := (kernels.Router{Experts: t.width, Top: k, Logits: true, Scale: 1}).Launch(t.rows); err != nil {
		return false
	}
	if t.x = b.dense(x); t.x == nil {
		return false
	}
	t.values, t.indices = b.result(0, nil), b.result(1, nil)
	if t.values == nil || t.indices == nil {
		return false
	}
	b.later(t.values.slot, t, t.x)
	b.later(t.indices.slot, t, t.x)
	return true
}

// bindSoftmax normalizes rows to probabilities.
func bindSoftmax(b *binder) bool {
	x, axis := b.floats("x"), ir.Attrs[ir.SoftmaxAttrs](b.op).Axis
	if x == nil || len(x.shape) == 0 || axis != -1 && axis != len(x.shape)-1 {
		return false
	}
	if t, ok := x.slot.pending.(*topKOf); ok && x.same(t.values) && b.only("x") && x.shape[len(x.shape)-1] == t.k {
		// The softmax of the largest is that of all, divided by their sum.
		if t.scores = b.result(0, nil); t.scores == nil {
			return false
		}
		b.take(t.values.slot)
		b.later(t.scores.slot, t, t.x)
		return true
	}
	g, ok := x.grid()
	if !ok {
		return false
	}
	l, err := kernels.Reduce{N: g.Width, Heads: g.Rows, X: g.Strides}.SoftmaxLaunch(g.Tokens)
	out := b.result(0, nil)
	return out != nil && b.launch("softmax", l, err, kernels.SoftmaxArguments[operand]{X: bytesOf(x), Y: bytesOf(out), Step: b.stepAt(g.Tokens, nil)})
}

// expertsOf is a mixture of experts that is deferred: what is added to its result is a part of it.
type expertsOf struct {
	mixture *mixture
	run     func(b *binder, e *expertsOf) bool
	shared  *sharedOf // of the terms the one that is an expert of all tokens
	extra   *value    // the other terms
	out     *value
}

func (e *expertsOf) emit(b *binder) { e.run(b, e) }

// gatedOf is sigmoid(gate) · x that is deferred, for a gate of one number a row.
type gatedOf struct{ gate, x, out *value }

func (g *gatedOf) emit(b *binder) { b.elements("gate", "glu_sigmoid", g.out, g.gate, g.x) }

// addToExperts makes a sum the end of the mixture of experts that is one of its terms. A second sum is made of
// what is added: so the residual goes along.
func (b *binder) addToExperts(x, other *value, operand string) bool {
	e, ok := x.slot.pending.(*expertsOf)
	if !ok || !x.same(e.out) || !b.only(operand) || !other.isDense() || x.len() != other.len() || len(x.shape) == 0 {
		return false
	}
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	with := *e
	with.out = out
	if e.shared == nil {
		if with.shared = b.sharedBy(e.mixture, other); with.shared != nil {
			b.take(x.slot)
			b.later(out.slot, &with)
			return true
		}
	}
	sum := other
	if e.extra != nil {
		sum = &value{place: onDevice, dtype: out.dtype, shape: e.out.shape, stride: strided.RowMajor(e.out.shape), slot: b.scratch(4 * out.len())}
		term := as(other, e.out.shape)
		if g, ok := e.extra.slot.pending.(*gatedOf); ok && e.extra.same(g.out) && g.out.len() == out.len() {
			width := e.out.shape[len(e.out.shape)-1]
			rows := []int{out.len() / width, width}
			if !b.elements("gate", "gated_add", as(sum, rows), as(g.gate, []int{rows[0], 1}), as(g.x, rows), as(term, rows)) {
				return false
			}
		} else if !b.elements("add", "add", sum, as(e.extra, e.out.shape), term) {
			return false
		}
	}
	b.take(x.slot)
	with.extra = sum
	b.later(out.slot, &with, sum)
	return true
}

// bindSwitchMLP computes a mixture of experts.
func bindSwitchMLP(b *binder) bool {
	exe := b.x.exe
	gate, up, down := exe.weight(b.op.Input("gate")), exe.weight(b.op.Input("up")), exe.weight(b.op.Input("down"))
	x, indices, scores := b.floats("x"), b.input("indices"), b.floats("scores")
	if gate == nil || up == nil || down == nil || x == nil || scores == nil || indices == nil || indices.place != onDevice || indices.format != i32 ||
		len(x.shape) == 0 || len(indices.shape) == 0 || !indices.isDense() {
		return false
	}
	top := indices.shape[len(indices.shape)-1]
	rows, norm, tokens := b.rowsFor(x, gate.cols)
	if rows == nil || gate.Format != up.Format || gate.Format != down.Format || gate.count != up.count || gate.count != down.count ||
		gate.rows != up.rows || gate.cols != up.cols || down.cols != gate.rows || down.rows != gate.cols ||
		!slices.Equal(indices.shape, scores.shape) || indices.len() != tokens*top {
		return false
	}
	if scores = b.dense(scores); scores == nil {
		return false
	}
	m := &mixture{gate: gate, up: up, down: down, x: rows, norm: norm, indices: indices, scores: scores, tokens: tokens, top: top}
	if t, ok := indices.slot.pending.(*topKOf); ok && tokens <= fewRows && t.rows == tokens && t.width == gate.count && t.scores != nil &&
		scores.slot.pending == deferred(t) && indices.same(t.indices) && scores.same(t.scores) && b.only("indices") && b.only("scores") {
		m.choice = t
	}
	run := m.few(b)
	if run == nil || tokens > fewRows {
		if many := m.many(b); many != nil {
			run = many
		}
	}
	if run == nil {
		return false
	}
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	b.later(out.slot, &expertsOf{mixture: m, run: run, out: out})
	return true
}

// mixture is a mixture of experts and its operands.
type mixture struct {
	gate, up, down     *weight
	x, indices, scores *value
	norm               *normOf
	tokens, top        int
	// choice is what indices and scores are, where the experts' first kernel is to make them.
	choice *topKOf
}

// kernel describes the kernels for a few tokens.
func (m *mixture) kernel() kernels.Experts {
	e := kernels.Experts{Format: m.gate.Format, Count: m.gate.count, Top: m.top, Hidden: m.gate.cols, Inner: m.gate.rows, Activation: kernels.SiLU}
	e.Norm, e.Eps, _ = m.norm.vectors()
	if m.choice != nil {
		e.Router, e.Ahead = m.choice.router(), true
	}
	return e
}

// fits reports whether there are both kernels, whatever is added to their result.
func (m *mixture) fits(b *binder, e kernels.Experts) bool {
	key := fittingKey{e, m.tokens}
	ok, known := b.fitting[key]
	if !known {
		ok = m.findFit(b, e)
		b.fitting[key] = ok
	}
	return ok
}

// fittingKey is all that fits depends on in a plan.
type fittingKey struct {
	experts kernels.Experts
	tokens  int
}

func (m *mixture) findFit(b *binder, e kernels.Experts) bool {
	first, second := e.Tunings(b.x.exe.machine, m.tokens)
	if len(first) == 0 || len(second) == 0 {
		return false
	}
	_, err := usable(b, first, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchUp(t, m.tokens) })
	for _, e.Residual = range []bool{false, true} {
		if err == nil {
			_, err = usable(b, second, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchDown(t, m.tokens) })
		}
	}
	return err == nil
}

// sharedOf is an expert of all tokens: sigmoid(score) · down(activation(gate) · up).
type sharedOf struct {
	glu   *pairOf
	down  *weight
	score *value
}

// sharedBy sees a term beside a mixture of experts as one expert more; nil where it is something else, or has another
// shape or format.
func (b *binder) sharedBy(m *mixture, v *value) *sharedOf {
	g, ok := v.slot.pending.(*gatedOf)
	if !ok || m.choice == nil || !v.same(g.out) || g.gate.len() != m.tokens || !g.gate.isDense() {
		return nil
	}
	l, ok := g.x.slot.pending.(*linearOf)
	if !ok || !g.x.same(l.out) || l.norm != nil || l.w.Format != m.down.Format || l.w.rows != m.down.rows || l.w.cols != m.down.cols {
		return nil
	}
	p, ok := l.x.slot.pending.(*pairOf)
	if !ok || !l.x.same(p.out) || p.activation != kernels.SiLU || p.n != m.gate.rows || p.gate.w.Format != m.gate.Format || p.gate.w.cols != m.gate.cols ||
		p.gate.rows != m.tokens || !p.gate.x.same(m.x) || p.gate.norm != m.norm {
		return nil
	}
	e := m.kernel()
	if e.Shared = true; !m.fits(b, e) {
		return nil
	}
	return &sharedOf{p, l.w, g.gate}
}

// few reads every token's experts on their own; nil where there are no kernels.
func (m *mixture) few(b *binder) func(b *binder, mix *expertsOf) bool {
	if m.choice != nil && !m.fits(b, m.kernel()) {
		m.choice = nil
	}
	if !m.fits(b, m.kernel()) {
		return nil
	}
	return m.runFew
}

func (m *mixture) runFew(b *binder, mix *expertsOf) bool {
	e, at := m.kernel(), b.stepAt(m.tokens, nil)
	e.Shared, e.Residual = mix.shared != nil, mix.extra != nil
	_, _, normed := m.norm.vectors()
	first, second := e.Tunings(b.x.exe.machine, m.tokens)
	pairs := m.tokens * m.top
	hidden := b.scratch(4 * m.tokens * e.Parts() * e.Inner)
	gate, lifted, down := m.gate.arguments(), m.up.arguments(), m.down.arguments()
	upBytes, downBytes := min(pairs, m.gate.count)*2*m.gate.bytes(), min(pairs, m.gate.count)*m.down.bytes()
	chosen, scores := bytesOf(m.indices), bytesOf(m.scores)
	chosen.example = indicesBelow(e.Count, chosen.size)
	var up kernels.Arguments[operand] = kernels.ExpertsUpArguments[operand]{W0: gate, W1: lifted, Experts: chosen, X: bytesOf(m.x), Norm: normed, Y: whole(hidden), Step: at}
	var sharedDown kernels.WeightArguments[operand]
	if m.choice != nil {
		n := 4 * m.tokens * e.Parts()
		chosen, scores = whole(b.scratch(n)), whole(b.scratch(n))
		choose := kernels.ExpertsChooseArguments[operand]{W0: gate, W1: lifted, D: down, Logits: bytesOf(m.choice.x), X: bytesOf(m.x), Norm: normed,
			Experts: chosen, Scores: scores, Y: whole(hidden), Step: at}
		if s := mix.shared; s != nil {
			sharedDown = s.down.arguments()
			choose.V0, choose.V1, choose.E, choose.Gates = s.glu.first, s.glu.second, sharedDown, bytesOf(s.score)
			upBytes, downBytes = upBytes+2*m.gate.bytes(), downBytes+s.down.bytes()
		}
		up, chosen.example = choose, indicesBelow(e.Count, chosen.size)
	}
	lift, err := e.LaunchUp(first[0], m.tokens)
	if !b.launch("experts up", lift, err, up) {
		return false
	}
	tuned(b, first, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchUp(t, m.tokens) })
	b.reading(upBytes)
	var more operand
	if mix.extra != nil {
		more = bytesOf(mix.extra)
	}
	var fallen kernels.Arguments[operand] = kernels.ExpertsDownArguments[operand]{W: down, Experts: chosen, Scores: scores, X: whole(hidden), Extra: more,
		Y: bytesOf(mix.out), Step: at}
	if mix.shared != nil {
		fallen = kernels.ExpertsJoinArguments[operand]{W: down, V: sharedDown, Experts: chosen, Scores: scores, X: whole(hidden), Extra: more,
			Y: bytesOf(mix.out), Step: at}
	}
	fall, err := e.LaunchDown(second[0], m.tokens)
	if !b.launch("experts down", fall, err, fallen) {
		return false
	}
	tuned(b, second, func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchDown(t, m.tokens) })
	b.reading(downBytes)
	return true
}

// many sorts the tokens by expert and multiplies those of an expert together.
func (m *mixture) many(b *binder) func(b *binder, mix *expertsOf) bool {
	exact := !b.tiled(m.tokens)
	e := kernels.ManyExperts{Format: m.gate.Format, Count: m.gate.count, Top: m.top, Hidden: m.gate.cols, Inner: m.gate.rows, Activation: kernels.SiLU, Exact: exact}
	ways := e.Tiles(b.x.exe.machine.Target, m.tokens)
	var sort, lift, fall kernels.Launch
	first := slices.IndexFunc(ways[:min(len(ways), maxRefused)], func(t kernels.Tile) bool {
		var err error
		if sort, err = b.allowed(e.LaunchSort(t, m.tokens)); err == nil {
			lift, err = b.allowed(e.LaunchUp(t, m.tokens))
		}
		if err == nil {
			fall, err = b.allowed(e.LaunchDown(t, m.tokens))
		}
		return err == nil
	})
	if first < 0 {
		return nil
	}
	tile := ways[first]
	// The order of pairs is made for tiles of so many rows, and both products take it.
	ways = slices.DeleteFunc(ways[first:], func(t kernels.Tile) bool { return t.BM != tile.BM })
	if _, err := b.allowed(e.LaunchCombine(m.tokens)); err != nil {
		return nil
	}
	pairs, at := m.tokens*m.top, b.stepAt(m.tokens, nil)
	return func(b *binder, mix *expertsOf) bool {
		x := b.prepared(m.x, m.norm.only(), m.tokens, e.Hidden, exact)
		order, tiles := b.scratch(4*pairs), b.scratch(16*e.MaxTiles(tile, m.tokens))
		width := 2
		if exact {
			width = 4
		}
		hidden, parts := b.scratch(width*pairs*e.Inner), b.scratch(4*pairs*e.Hidden)
		b.launch("experts sort", sort, nil, kernels.ExpertsSortArguments[operand]{Experts: bytesOf(m.indices), Order: whole(order), Tiles: whole(tiles), Step: at})
		ordered, tiled := whole(order), whole(tiles)
		ordered.example, tiled.example = sortedPairs(e, tile, m.tokens)
		b.launch("experts up", lift, nil, kernels.ExpertsMatMulUpArguments[operand]{W0: m.gate.arguments(), W1: m.up.arguments(), Order: ordered, Tiles: tiled,
			X: x, H: whole(hidden)})
		tuned(b, ways, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchUp(t, m.tokens) })
		b.reading(min(pairs, m.gate.count) * 2 * m.gate.bytes())
		b.launch("experts down", fall, nil, kernels.ExpertsMatMulDownArguments[operand]{W: m.down.arguments(), Order: ordered, Tiles: tiled, H: whole(hidden),
			Y: whole(parts)})
		tuned(b, ways, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchDown(t, m.tokens) })
		b.reading(min(pairs, m.gate.count) * m.down.bytes())
		a := kernels.ExpertsCombineArguments[operand]{X: whole(parts), Scores: bytesOf(m.scores), Y: bytesOf(mix.out), Step: at}
		if mix.extra != nil {
			e.Residual, a.Extra = true, bytesOf(mix.extra)
		}
		combine, err := e.LaunchCombine(m.tokens)
		return b.launch("experts combine", combine, err, a)
	}
}
