package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// router merges the softmax over the k largest elements of each row, their search, and the multiplication of each score
// by a factor of its expert into one operation.
func (g *graph) router(op *ir.Op) {
	attrs, x := ir.Attrs[ir.SoftmaxAttrs](op), op.Input("x")
	v := g.source(x)
	l, ok := g.floats(x)
	if !ok || v.Def == nil || v.Def.Def.Name != "top_k" || v.Index != 0 || !g.only(x) {
		return
	}
	k, logits := ir.Attrs[ir.TopKAttrs](v.Def).K, v.Def.Input("x")
	of, ok := g.floats(logits)
	last := len(l.Shape) - 1
	if !ok || last < 0 || attrs.Axis != -1 && attrs.Axis != last || l.Shape[last] != k ||
		!slices.EqualFunc(x.Type.Shape, v.Type.Shape, (*ir.Expr).Equal) {
		return
	}
	experts := of.Shape[len(of.Shape)-1]
	rows := strided.Elements(of.Shape) / max(experts, 1)
	scaled, scale := g.scaledBy(op.Result(), v.Def.Results[1], experts)
	if scaled != nil && !g.Allowed(Router(experts, k, scale).Launch(rows)) {
		scaled, scale = nil, nil
	}
	if !g.Allowed(Router(experts, k, scale).Launch(rows)) {
		return
	}
	b, top := g.builder(v.Def), v.Def
	if !of.IsDense() {
		logits = b.Value("copy", nil, logits)
	}
	r := b.Op("router", &ir.RouterAttrs{K: k, Precise: attrs.Precise}, logits, scale)
	scores := op.Result()
	if scaled != nil {
		scores = scaled.Result()
	}
	g.stand(top, scores, r.Results[0])
	g.stand(top, top.Results[1], r.Results[1])
}

// scaledBy returns the only reader of scores, if it multiplies each score by the factor of its expert from a constant
// [experts, 1]; else nil.
func (g *graph) scaledBy(scores, indices *ir.Value, experts int) (product *ir.Op, scale *ir.Value) {
	readers := g.readers[scores]
	if len(readers) != 1 || readers[0] == nil || readers[0].Def.Name != "multiply" {
		return nil, nil
	}
	product = readers[0]
	factor := product.Input("b")
	if factor == scores {
		factor = product.Input("a")
	}
	of := g.defined(factor, "embedding")
	if of == nil || g.source(of.Input("indices")) != indices || !slices.Equal(shape(factor), shape(scores)) ||
		!slices.Equal(shape(product.Result()), shape(scores)) {
		return nil, nil
	}
	scale = of.Input("weight")
	if scale.Constant == nil || !slices.Equal(shape(scale), []int{experts, 1}) ||
		scale.Type.DType != ir.BF16 && scale.Type.DType != ir.F32 {
		return nil, nil
	}
	return product, scale
}

// Router returns the kernel part of router and of routed_experts. scale has a factor for each expert, or is nil.
func Router(experts, k int, scale *ir.Value) kernels.Router {
	r := kernels.Router{Experts: experts, Top: k, Normalize: true, Scale: 1}
	switch {
	case scale == nil:
	case scale.Type.DType == ir.BF16:
		r.Scales = kernels.BF16
	default:
		r.Scales = kernels.F32
	}
	return r
}

// Experts returns the kernel of experts and routed_experts; the kernel of sorted_experts has the same shape but no
// router. It returns false where kernels cannot read the weights or lack the activation.
func Experts(op *ir.Op) (k kernels.Experts, ok bool) {
	gate, ok := weightOf(op.Input("gate"))
	k = kernels.Experts{Format: gate.Format, Count: gate.count, Hidden: gate.cols, Inner: gate.rows,
		Residual: op.Input("extra") != nil}
	var name string
	var norm bool
	switch a := op.Attrs.(type) {
	case *ir.ExpertsAttrs:
		k.Top, name, norm, k.Eps = width(op.Input("indices")), a.Activation, a.Norm, a.Eps
		k.Shared = op.Def.Name == "sorted_experts" && op.Input("shared_down") != nil
	case *ir.RoutedExpertsAttrs:
		k.Top, name, norm, k.Eps = a.K, a.Activation, a.Norm, a.Eps
		k.Router, k.Ahead, k.Shared = Router(k.Count, a.K, op.Input("scale")), true, op.Input("shared_down") != nil
	}
	k.Norm = normOf(op, norm)
	var known bool
	k.Activation, known = activationOf(name)
	return k, ok && known
}

// ManyExperts returns the kernel of sorted_experts. exact keeps its inputs in float32.
func ManyExperts(k kernels.Experts, exact bool) kernels.ManyExperts {
	return kernels.ManyExperts{Format: k.Format, Count: k.Count, Top: k.Top, Hidden: k.Hidden, Inner: k.Inner,
		Activation: k.Activation, Shared: k.Shared, Exact: exact}
}

// mixturesOfExperts replaces mixtures of experts by the operation for few tokens, which reads the experts of each
// token, or the one that sorts tokens by expert. It merges in what is added to the result: a shared expert, and another
// term.
func mixturesOfExperts(g *graph) {
	found := false
	g.each(func(op *ir.Op) {
		if x := g.mixture(op); x != nil {
			found = true
			x.takeSums(g)
			x.replace(g)
		}
	}, "switch_mlp", "switch_geglu")
	if found {
		g.each(g.trimLinears, "linears")
	}
}

// trimLinears removes weights from the linears of op whose products are no longer read.
func (g *graph) trimLinears(op *ir.Op) {
	var weights, results []*ir.Value
	for i, v := range op.Results {
		if len(g.readers[v]) > 0 {
			weights, results = append(weights, op.Operand("weights")[i].Value), append(results, v)
		}
	}
	if len(results) == len(op.Results) {
		return
	}
	b := g.builder(op)
	if len(weights) == 1 {
		g.stand(op, results[0], b.Value("linear", nil, op.Input("x"), weights[0]))
		return
	}
	n := b.Op("linears", nil, op.Input("x"), weights)
	for i, v := range results {
		g.stand(op, v, n.Results[i])
	}
}

// mixture is a mixture of experts that is being merged into one operation.
type mixture struct {
	op             *ir.Op
	activation     string // of the gates
	gate, up, down weight
	x              Layout
	tokens, top    int
	router         *ir.Op // set if the experts' kernel also chooses the experts
	sorted         bool
	shared         *shared
	extra          *ir.Value
	gated          *ir.Op // the glu whose result extra is, or nil
	term           *ir.Value
	last           *ir.Op // the operation whose result the mixture replaces
}

// mixture returns op as a mixture, or nil where the device has no kernel for it.
func (g *graph) mixture(op *ir.Op) *mixture {
	m := &mixture{op: op, activation: ir.ActivationOfExperts(op.Def.Name), last: op}
	if !m.takeOperands(g) {
		return nil
	}
	if m.tokens <= FewTokens {
		m.takeRouter(g)
	}
	rounds := g.RoundsExperts(m.kernel(), m.tokens)
	few := g.fewExperts(m.kernel(), m.tokens)
	if !few && m.router != nil {
		m.router = nil
		few = g.fewExperts(m.kernel(), m.tokens)
	}
	sorts := !few || m.tokens > FewTokens || rounds
	if m.sorted = sorts && g.sortedExperts(m.many(rounds), m.tokens); !few && !m.sorted {
		return nil
	}
	if m.sorted {
		m.router = nil
	}
	return m
}

// mostByToken is the largest number of tokens of which each reads the weights of its experts by itself, where sorted
// experts may take rows in the order of lanes. On an H100, 4 tokens of Qwen3.5-35B-A3B are 4 % faster sorted and 8
// tokens 24 %; 3 tokens take the same time, and 2 tokens are a seventh slower.
const mostByToken = 3

// RoundsExperts reports whether the experts k of this number of tokens round their rows to bfloat16 if the tokens are
// sorted by expert. FewTokens tokens or fewer are sorted because of that.
func (t *Target) RoundsExperts(k kernels.Experts, tokens int) bool {
	return t.Tiled(tokens) ||
		tokens > mostByToken && t.rounds() && t.InLanes(ManyExperts(k, false), tokens).Lanes
}

// takeOperands collects weights, tokens and chosen experts. It returns false where their shapes do not fit.
func (m *mixture) takeOperands(g *graph) bool {
	op := m.op
	var ok, ok2, ok3, ok4, ok5 bool
	m.gate, ok = weightOf(op.Input("gate"))
	m.up, ok2 = weightOf(op.Input("up"))
	m.down, ok3 = weightOf(op.Input("down"))
	m.x, ok4 = g.floats(op.Input("x"))
	scores, ok5 := g.floats(op.Input("scores"))
	indices, ok6 := g.Layout(op.Input("indices"))
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || len(m.x.Shape) == 0 || len(indices.Shape) == 0 ||
		!indices.IsDense() || !isChoice(indices.Base) {
		return false
	}
	width := m.x.Shape[len(m.x.Shape)-1]
	m.tokens, m.top = strided.Elements(m.x.Shape)/max(width, 1), indices.Shape[len(indices.Shape)-1]
	alike := m.gate.Format == m.up.Format && m.gate.Format == m.down.Format && m.gate.count == m.up.count &&
		m.gate.count == m.down.count
	return alike && width == m.gate.cols && m.gate.rows == m.up.rows && m.gate.cols == m.up.cols &&
		m.down.cols == m.gate.rows && m.down.rows == m.gate.cols &&
		slices.Equal(indices.Shape, scores.Shape) && strided.Elements(indices.Shape) == m.tokens*m.top
}

// isChoice reports whether v is the list of experts that an operation with a kernel has chosen.
func isChoice(v *ir.Value) bool {
	return v.Def != nil && v.Index == 1 && (v.Def.Def.Name == "router" || v.Def.Def.Name == "top_k")
}

// takeRouter merges the router into the experts, if nothing else reads its results.
func (m *mixture) takeRouter(g *graph) {
	scores, indices := g.source(m.op.Input("scores")), g.source(m.op.Input("indices"))
	r := scores.Def
	if r == nil || r.Def.Name != "router" || indices.Def != r || scores.Index != 0 || indices.Index != 1 ||
		!g.only(m.op.Input("scores")) || !g.only(m.op.Input("indices")) {
		return
	}
	if l, ok := g.floats(r.Input("logits")); ok && l.Shape[len(l.Shape)-1] == m.gate.count &&
		strided.Elements(l.Shape) == m.tokens*m.gate.count {
		m.router = r
	}
}

// kernel returns the kernels for a few tokens.
func (m *mixture) kernel() kernels.Experts {
	k := kernels.Experts{Format: m.gate.Format, Count: m.gate.count, Top: m.top,
		Hidden: m.gate.cols, Inner: m.gate.rows}
	k.Activation, _ = kernels.ActivationNamed(m.activation)
	if m.router != nil {
		k.Router, k.Ahead = Router(m.gate.count, m.top, m.router.Input("scale")), true
	}
	return k
}

// many returns the kernels for many tokens.
func (m *mixture) many(rounds bool) kernels.ManyExperts {
	return ManyExperts(m.kernel(), !rounds)
}

// fewExperts reports whether the device has both kernels for a few tokens, whatever is added to their result.
func (t *Target) fewExperts(k kernels.Experts, tokens int) bool {
	return ask(t, "usable", k, tokens, func() bool {
		up, down := k.Tunings(t.Machine)
		ok := usable(t, up, func(w kernels.Tuning) (kernels.Launch, error) { return k.LaunchUp(w, tokens) })
		with := k
		for _, with.Residual = range []bool{false, true} {
			ok = ok && usable(t, down, func(w kernels.Tuning) (kernels.Launch,
				error) {
				return with.LaunchDown(w, tokens)
			})
		}
		return ok
	})
}

// OnceTunings returns the variants of the first product of a mixture that read the weights of a chosen expert once for
// all tokens. It returns none if they are not worthwhile, or may not be used: they round vectors to bfloat16.
func (t *Target) OnceTunings(k kernels.Experts, tokens int) []kernels.Tuning {
	up := k.OnceTunings(t.Machine, tokens)
	if !t.rounds() || !ask(t, "reads once", k, tokens, func() bool {
		return usable(t, up, func(w kernels.Tuning) (kernels.Launch, error) { return k.LaunchUp(w, tokens) })
	}) {
		return nil
	}
	return up
}

// ExpertTiles returns the variants of the products of sorted_experts: the first that may be used, then the others that
// work with the same order of tokens. It returns none where there is no kernel.
func (t *Target) ExpertTiles(k kernels.ManyExperts, tokens int) []kernels.Tile {
	variants := k.Tiles(t.Machine, tokens)
	first := slices.IndexFunc(variants[:min(len(variants), MaxRefused)], func(w kernels.Tile) bool {
		return t.Allowed(k.LaunchSort(w, tokens)) && t.Allowed(k.LaunchUp(w, tokens)) &&
			t.Allowed(k.LaunchDown(w, tokens))
	})
	if first < 0 {
		return nil
	}
	rows := variants[first].BM
	return slices.DeleteFunc(variants[first:], func(w kernels.Tile) bool { return w.BM != rows })
}

// InLanes returns k with vectors in the order of lanes if there are kernels for it that may be used, else k as it is.
func (t *Target) InLanes(k kernels.ManyExperts, tokens int) kernels.ManyExperts {
	k.Lanes = true
	k.Lanes = ask(t, "in lanes", k, tokens, func() bool { return len(t.ExpertTiles(k, tokens)) > 0 })
	return k
}

func (t *Target) sortedExperts(k kernels.ManyExperts, tokens int) bool {
	k = t.InLanes(k, tokens)
	return ask(t, "usable", k, tokens, func() bool {
		return len(t.ExpertTiles(k, tokens)) > 0 && t.Allowed(k.LaunchCombine(tokens))
	})
}

// takeSums merges additions to the result into the mixture, if nothing else reads it.
func (m *mixture) takeSums(g *graph) {
	for {
		sum, other := g.sumWith(m.last.Result())
		if sum == nil {
			return
		}
		l, ok := g.floats(other)
		if !ok || !l.IsDense() || strided.Elements(l.Shape) != strided.Elements(m.x.Shape) ||
			!slices.EqualFunc(sum.Result().Type.Shape, other.Type.Shape, (*ir.Expr).Equal) {
			return
		}
		if s := m.sharedBy(g, other); s != nil && m.shared == nil {
			m.shared = s
		} else if m.extra == nil {
			m.extra, m.gated = other, g.gatedRows(other)
		} else if m.gated != nil {
			m.term, m.gated = other, nil
		} else {
			return
		}
		m.last = sum
	}
}

// sumWith returns the addition that is the only reader of v, directly or through reshapes, and its other term; nil
// where there is none.
func (g *graph) sumWith(v *ir.Value) (sum *ir.Op, other *ir.Value) {
	all := v
	for {
		readers := g.readers[v]
		if len(readers) != 1 || readers[0] == nil {
			return nil, nil
		}
		op := readers[0]
		switch {
		case op.Def.IsView():
			v = op.Result()
			continue
		case op.Def.Name != "add" || g.source(v) != g.source(all):
			return nil, nil
		case op.Input("a") == v:
			return op, op.Input("b")
		}
		return op, op.Input("a")
	}
}

// gatedRows returns the glu whose whole result v is, if it multiplies each row by the sigmoid of one number; else nil.
func (g *graph) gatedRows(v *ir.Value) *ir.Op {
	op := g.defined(v, "glu")
	if op == nil || ir.Attrs[ir.GLUAttrs](op).Activation != "sigmoid" {
		return nil
	}
	gate, ok := g.floats(op.Input("gate"))
	x, ok2 := g.floats(op.Input("x"))
	last := len(x.Shape) - 1
	if !ok || !ok2 || last < 0 || len(gate.Shape) != last+1 || gate.Shape[last] != 1 ||
		!slices.Equal(gate.Shape[:last], x.Shape[:last]) || !x.IsDense() || last >= 4 {
		return nil
	}
	if _, _, stride, ok := strided.Rows(gate.Shape, gate.Strides); !ok || stride <= 0 {
		return nil
	}
	return op
}

// replace puts the merged operation where its last addition was.
func (m *mixture) replace(g *graph) {
	g.replace(m.last, func(b *ir.Builder) []*ir.Value { return []*ir.Value{m.build(b, g)} })
}

// lead returns the shape of x with n as its last dim.
func (m *mixture) lead(n int) []int {
	return append(slices.Clone(m.x.Shape[:len(m.x.Shape)-1]), n)
}

func (m *mixture) build(b *ir.Builder, g *graph) *ir.Value {
	op := m.op
	extra := m.extra
	if m.term != nil {
		term := g.defined(m.extra, "glu")
		rows := []int{m.tokens, m.gate.cols}
		extra = b.Value("gated_add", nil, reshaped(b, term.Input("gate"), []int{m.tokens, 1}),
			reshaped(b, term.Input("x"), rows), reshaped(b, m.term, rows))
	}
	if extra != nil {
		extra = reshaped(b, extra, m.x.Shape)
	}
	x, s := op.Input("x"), shared{}
	if m.shared != nil {
		s = *m.shared
		s.score = reshaped(b, s.score, m.lead(1))
	}
	if m.router != nil {
		attrs := ir.Attrs[ir.RouterAttrs](m.router)
		logits := reshaped(b, m.router.Input("logits"), m.lead(m.gate.count))
		return b.Value("routed_experts", &ir.RoutedExpertsAttrs{K: attrs.K, Precise: attrs.Precise,
			Activation: m.activation}, x,
			op.Input("gate"), op.Input("up"), op.Input("down"), logits, nil, s.gate, s.up, s.down, s.score, extra,
			m.router.Input("scale"))
	}
	scores, attrs := op.Input("scores"), &ir.ExpertsAttrs{Activation: m.activation}
	if l, _ := g.Layout(scores); !l.IsDense() {
		scores = b.Value("copy", nil, scores)
	}
	if m.sorted {
		return b.Value("sorted_experts", attrs, x, op.Input("gate"), op.Input("up"), op.Input("down"),
			op.Input("indices"), scores, nil, s.gate, s.up, s.down, s.score, extra)
	}
	return b.Value("experts", attrs, x, op.Input("gate"), op.Input("up"), op.Input("down"), op.Input("indices"), scores,
		nil, extra)
}
