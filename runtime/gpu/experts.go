package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// bindRouter binds the router of a mixture: for each token the top experts and their scores.
func bindRouter(b *binder) bool {
	logits := b.floats("logits")
	if logits == nil || len(logits.shape) == 0 || !logits.isDense() {
		return false
	}
	width := logits.shape[len(logits.shape)-1]
	scales, ok := b.scales()
	if !ok || !b.largest(logits, lower.Router(width, ir.Attrs[ir.RouterAttrs](b.Op).K, b.Op.Input("scale")), scales, 1,
		0) {
		return false
	}
	b.Values[b.Op.Results[1]].below = width
	return true
}

// scales returns the router's scale for each expert as an operand on the device. It returns false where it cannot be
// brought there.
func (b *binder) scales() (scales operand, ok bool) {
	if b.Op.Input("scale") == nil {
		return operand{}, true
	}
	scales, _, ok = b.table("scale")
	return scales, ok
}

// bindTopK binds the k largest elements of each row. Equal elements come in the order that the reference kernel has.
func bindTopK(b *binder) bool {
	x, k := b.floats("x"), ir.Attrs[ir.TopKAttrs](b.Op).K
	if x == nil || len(x.shape) == 0 || k < 1 || k > x.shape[len(x.shape)-1] {
		return false
	}
	router := kernels.Router{Experts: x.shape[len(x.shape)-1], Top: k, Logits: true, Scale: 1}
	if _, err := router.Launch(x.len() / router.Experts); err != nil {
		return false
	}
	if x = b.dense(x); x == nil {
		return false
	}
	return b.largest(x, router, operand{}, 1, 0)
}

// largest adds the kernel of a router that finds the largest elements of each row of x. scales multiplies the columns
// where the router has scales. indices and values are the numbers of the operation's results that get the columns and
// their values.
func (b *binder) largest(x *value, router kernels.Router, scales operand, indices, values int) bool {
	rows := x.len() / router.Experts
	v, i := b.result(values, nil), b.result(indices, nil)
	if v == nil || i == nil {
		return false
	}
	l, err := router.Launch(rows)
	return b.launch("top-k", l, err, kernels.RouterArguments[operand]{Logits: bytesOf(x), Scales: scales,
		Experts: bytesOf(i), Scores: bytesOf(v), Step: b.stepAt(rows, nil)})
}

// bindSoftmax normalizes rows to probabilities.
func bindSoftmax(b *binder) bool {
	x, axis := b.floats("x"), ir.Attrs[ir.SoftmaxAttrs](b.Op).Axis
	if x == nil || len(x.shape) == 0 || axis != -1 && axis != len(x.shape)-1 {
		return false
	}
	g, ok := x.grid()
	if !ok {
		return false
	}
	l, err := kernels.Reduce{N: g.Width, Heads: g.Rows, X: g.Strides}.SoftmaxLaunch(g.Tokens)
	out := b.result(0, nil)
	return out != nil && b.launch("softmax", l, err, kernels.SoftmaxArguments[operand]{X: bytesOf(x), Y: bytesOf(out),
		Step: b.stepAt(g.Tokens, nil)})
}

// bindGatedAdd computes sigmoid(gate) · x + term.
func bindGatedAdd(b *binder) bool {
	gate, x, term := b.floats("gate"), b.floats("x"), b.floats("term")
	if gate == nil || x == nil || term == nil {
		return false
	}
	out := b.result(0, nil)
	return out != nil && b.elements("gate", "gated_add", out, gate, x, term)
}

// mixture holds a mixture of experts and the operands of its kernels.
type mixture struct {
	kernel             kernels.Experts
	gate, up, down     *weight
	x, indices, scores *value
	norm               operand
	tokens             int
	extra              operand
	out                *value
}

// mixture collects the operands that all kernels of mixtures take. It returns nil where they are not what the kernels
// take.
func (b *binder) mixture() *mixture {
	exe := b.x.exe
	m := &mixture{gate: exe.weight(b.Op.Input("gate")), up: exe.weight(b.Op.Input("up")),
		down: exe.weight(b.Op.Input("down"))}
	x := b.Input("x") // for sorted experts prepare has made the rows already
	if b.Op.Def.Name != "sorted_experts" {
		x = b.floats("x")
	}
	k, ok := lower.Experts(b.Op)
	if !ok || m.gate == nil || m.up == nil || m.down == nil || x == nil || x.place != onDevice || !x.isDense() ||
		len(x.shape) == 0 || x.shape[len(x.shape)-1] != k.Hidden {
		return nil
	}
	m.kernel, m.x, m.tokens = k, x, x.len()/k.Hidden
	if k.Norm == kernels.NormF32 {
		if m.norm, ok = b.weight("norm", k.Hidden); !ok {
			return nil
		}
	}
	if k.Residual {
		v := b.floats("extra")
		if v == nil || !v.isDense() {
			return nil
		}
		m.extra = bytesOf(v)
	}
	return m
}

// chosen collects the operands that say which experts each token uses. It returns false where they are not on the
// device.
func (m *mixture) chosen(b *binder) bool {
	m.scores, m.indices = b.floats("scores"), b.Input("indices")
	if m.scores == nil || m.indices == nil || m.indices.place != onDevice || m.indices.format != i32 ||
		!m.indices.isDense() || !m.scores.isDense() {
		return false
	}
	m.out = b.result(0, nil)
	return m.out != nil
}

// bindExperts binds a mixture for a few tokens, whose experts are read for each token on its own.
func bindExperts(b *binder) bool {
	m := b.mixture()
	if m == nil || !m.chosen(b) {
		return false
	}
	e := m.kernel
	hidden, at := b.scratch(4*m.tokens*e.Parts()*e.Inner), b.stepAt(m.tokens, nil)
	chosen := bytesOf(m.indices)
	chosen.synthetic = indicesBelow(e.Count, chosen.size)
	read := min(m.tokens*e.Top, e.Count)
	return m.few(b, read*2*m.gate.bytes(), read*m.down.bytes(),
		kernels.ExpertsUpArguments[operand]{W0: m.gate.arguments(), W1: m.up.arguments(), Experts: chosen,
			X: bytesOf(m.x), Norm: m.norm, Y: whole(hidden), Step: at},
		kernels.ExpertsDownArguments[operand]{W: m.down.arguments(), Experts: chosen, Scores: bytesOf(m.scores),
			X: whole(hidden), Extra: m.extra, Y: bytesOf(m.out), Step: at})
}

// few adds the two kernels of a mixture for a few tokens: up with the gated product, down with the second product.
// upBytes and downBytes are the bytes of weights that each reads.
func (m *mixture) few(b *binder, upBytes, downBytes int, up, down kernels.Arguments[operand]) bool {
	e := m.kernel
	first, second := e.Tunings(b.x.exe.machine)
	if once := b.x.exe.target().OnceTunings(e, m.tokens); len(once) > 0 {
		first = once
	}
	return offer(b, "experts up", first,
		func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchUp(t, m.tokens) }, upBytes, up) &&
		offer(b, "experts down", second,
			func(t kernels.Tuning) (kernels.Launch, error) { return e.LaunchDown(t, m.tokens) }, downBytes, down)
}

// shared has the operands of a mixture's shared expert.
type shared struct {
	gate, up, down kernels.WeightArguments[operand]
	score          operand
}

// shared collects the operands of the shared expert. They are empty where there is none. It returns false where they
// are not what the kernels take.
func (m *mixture) shared(b *binder) (s shared, ok bool) {
	if !m.kernel.Shared {
		return s, true
	}
	first, second, last, score := b.x.exe.weight(b.Op.Input("shared_gate")), b.x.exe.weight(b.Op.Input("shared_up")),
		b.x.exe.weight(b.Op.Input("shared_down")), b.floats("shared_score")
	if first == nil || last == nil || score == nil || !score.isDense() {
		return s, false
	}
	s.gate, s.down, s.score = first.arguments(), last.arguments(), bytesOf(score)
	if second != nil {
		s.up = second.arguments()
	} else {
		s.gate, s.up = first.part(0, m.kernel.Inner), first.part(m.kernel.Inner, m.kernel.Inner)
	}
	return s, true
}

// bindRoutedExperts binds a mixture whose router is computed by its first kernel. The shared expert counts as one more
// expert.
func bindRoutedExperts(b *binder) bool {
	m, logits := b.mixture(), b.floats("logits")
	if m == nil || logits == nil || !logits.isDense() {
		return false
	}
	if m.out = b.result(0, nil); m.out == nil {
		return false
	}
	e := m.kernel
	scales, ok := b.scales()
	if !ok {
		return false
	}
	hidden, at := b.scratch(4*m.tokens*e.Parts()*e.Inner), b.stepAt(m.tokens, nil)
	n := 4 * m.tokens * e.Parts()
	chosen, scores := whole(b.scratch(n)), whole(b.scratch(n))
	down := m.down.arguments()
	choose := kernels.ExpertsChooseArguments[operand]{W0: m.gate.arguments(), W1: m.up.arguments(), D: down,
		Logits: bytesOf(logits), ExpertScales: scales, X: bytesOf(m.x), Norm: m.norm,
		Experts: chosen, Scores: scores, Y: whole(hidden), Step: at}
	read := min(m.tokens*e.Top, e.Count)
	upBytes, downBytes := read*2*m.gate.bytes(), read*m.down.bytes()
	chosen.synthetic = indicesBelow(e.Count, chosen.size)
	if !e.Shared {
		return m.few(b, upBytes, downBytes, choose,
			kernels.ExpertsDownArguments[operand]{W: down, Experts: chosen, Scores: scores, X: whole(hidden),
				Extra: m.extra, Y: bytesOf(m.out), Step: at})
	}
	s, ok := m.shared(b)
	if !ok {
		return false
	}
	choose.V0, choose.V1, choose.E, choose.Gates = s.gate, s.up, s.down, s.score
	return m.few(b, upBytes+2*m.gate.bytes(), downBytes+m.down.bytes(), choose,
		kernels.ExpertsJoinArguments[operand]{W: down, V: choose.E, Experts: chosen, Scores: scores, X: whole(hidden),
			Extra: m.extra, Y: bytesOf(m.out), Step: at})
}

// bindSortedExperts binds a mixture for many tokens: token-expert pairs are sorted by expert, and the rows of one
// expert are multiplied together.
func bindSortedExperts(b *binder) bool {
	m := b.mixture()
	if m == nil || !m.chosen(b) {
		return false
	}
	exact := !b.x.exe.target().RoundsExperts(m.kernel, m.tokens)
	e := lower.ManyExperts(m.kernel, exact)
	e.Lanes = m.x.packed == kernels.InLanes
	variants := b.x.exe.target().ExpertTiles(e, m.tokens)
	if len(variants) == 0 {
		return false
	}
	tile := variants[0]
	parts, at := m.tokens*e.Parts(), b.stepAt(m.tokens, nil)
	common, ok := m.shared(b)
	if !ok || (m.x.format == f32) != exact {
		return false
	}
	order, tiles := b.scratch(4*parts), b.scratch(16*e.SortedTiles(tile, m.tokens))
	width := 2
	if exact {
		width = 4
	}
	hidden, results := b.scratch(width*parts*e.Inner), b.scratch(4*parts*e.Hidden)
	sort, err := e.LaunchSort(tile, m.tokens)
	b.launch("experts sort", sort, err, kernels.ExpertsSortArguments[operand]{Experts: bytesOf(m.indices),
		Order: whole(order), Tiles: whole(tiles), Step: at})
	ordered, tiled := whole(order), whole(tiles)
	ordered.synthetic, tiled.synthetic = sortedPairs(e, tile, m.tokens)
	read := min(m.tokens*e.Top, e.Count) + e.Parts() - e.Top
	lift, err := e.LaunchUp(tile, m.tokens)
	b.launch("experts up", lift, err, kernels.ExpertsMatMulUpArguments[operand]{W0: m.gate.arguments(),
		W1: m.up.arguments(), V0: common.gate, V1: common.up, Order: ordered, Tiles: tiled,
		X: bytesOf(m.x), H: whole(hidden)})
	tuned(b, variants, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchUp(t, m.tokens) })
	b.reading(read * 2 * m.gate.bytes())
	fall, err := e.LaunchDown(tile, m.tokens)
	b.launch("experts down", fall, err, kernels.ExpertsMatMulDownArguments[operand]{W: m.down.arguments(),
		V: common.down, Order: ordered, Tiles: tiled, H: whole(hidden),
		Y: whole(results)})
	tuned(b, variants, func(t kernels.Tile) (kernels.Launch, error) { return e.LaunchDown(t, m.tokens) })
	b.reading(read * m.down.bytes())
	e.Residual = b.Op.Input("extra") != nil
	combine, err := e.LaunchCombine(m.tokens)
	return b.launch("experts combine", combine, err,
		kernels.ExpertsCombineArguments[operand]{X: whole(results), Scores: bytesOf(m.scores), Extra: m.extra,
			Gates: common.score, Y: bytesOf(m.out), Step: at})
}
