package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// fuseSwitchMLP finds a mixture of experts in a module and replaces it by one operation, switch_mlp or switch_geglu. It
// looks for gathered products whose rows are multiplied by the experts' scores and summed. Files compute them in two
// ways, chosen by an if: with many tokens the token-expert pairs are sorted by expert, with few they are not. Both arms
// of the if are matched and must compute the same.
func fuseSwitchMLP(m *ir.Module) error {
	return apply(m, "sum", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		e := matchExperts(op)
		if e == nil {
			return nil, false
		}
		three := func(v *ir.Value, n *ir.Expr) *ir.Value {
			return likeType(b, v, ir.TensorType(v.Type.DType, ir.Const(1), e.tokens, n))
		}
		k := e.scores.Type.Shape[e.scores.Type.Rank()-1]
		y := b.Value(e.name, nil, three(e.x, e.hidden), e.weights[0].value(b),
			e.weights[1].value(b), e.weights[2].value(b),
			three(e.indices, k), three(e.scores, k))
		return []*ir.Value{likeType(b, y, op.Result().Type)}, true
	})
}

// experts has the operations and weights of a mixture of experts.
type experts struct {
	name           string // switch_mlp or switch_geglu, by the activation function of the gates
	tokens, hidden *ir.Expr
	x              *ir.Value // [tokens, hidden] in some shape
	indices        *ir.Value // [tokens, k] in some shape
	scores         *ir.Value // [tokens, k]
	weights        [3]expertWeight
}

// expertWeight is a matrix for each expert, stacked, as a gathered product of the file reads them: dense, or quantized
// in three values (packed, scales, biases).
type expertWeight struct {
	dense, packed, scales, biases *ir.Value
	columns                       bool // dense is [E, in, out], else [E, out, in]
	form                          ir.WeightForm
	dtype                         ir.DType // of the rows that it multiplies
}

func (w expertWeight) value(b *ir.Builder) *ir.Value {
	switch {
	case w.columns:
		return b.Value("transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, w.dense)
	case w.dense != nil:
		return w.dense
	}
	return joinWeight(b, w.packed, w.scales, w.biases, w.form, w.dtype, nil)
}

// matchExperts matches a sum of rows · scores over the experts of a token. It returns nil for any other operation.
func matchExperts(sum *ir.Op) *experts {
	a := ir.Attrs[ir.ReduceAttrs](sum)
	x := sum.Input("x")
	if len(a.Axes) != 1 || a.Keepdims || x.Type.Rank() != 3 || axisOf(a.Axes[0], x.Type) != 1 ||
		!canReshape(sum.Result().Type) {
		return nil
	}
	product := is(x, "multiply")
	if product == nil {
		return nil
	}
	e := &experts{tokens: x.Type.Shape[0], hidden: x.Type.Shape[2]}
	k := x.Type.Shape[1]
	if _, ok := k.Const(); !ok {
		return nil
	}
	ok := eitherWay(product, func(rows, scores *ir.Value) bool {
		if !isDims(rows.Type, e.tokens, k, e.hidden) || !isDims(scores.Type, e.tokens, k, ir.Const(1)) {
			return false
		}
		e.scores = flat(scores)
		if n := e.scores.Type.Rank(); n == 0 || !e.scores.Type.Shape[n-1].Equal(k) {
			return false
		}
		for i, w := range branches(rows) {
			f := expertRows{world: w, k: k, tokens: e.tokens, hidden: e.hidden}
			if !f.match(rows) || i > 0 && (f.x != e.x || f.indices != e.indices ||
				f.weights != e.weights || f.name != e.name) {
				return false
			}
			e.x, e.indices, e.weights, e.name = f.x, f.indices, f.weights, f.name
		}
		return true
	})
	if !ok {
		return nil
	}
	return e
}

// world is an assumption about a condition: that cond is true (then) or false. Under it every if with this condition
// has one arm that runs. An if whose condition cannot be zero has one in every world.
type world struct {
	cond *ir.Expr // nil: nothing is assumed
	then bool
}

// resolve returns the value that v is in this world: where v is the result of an if, the result of the arm that runs.
func (w world) resolve(v *ir.Value) *ir.Value {
	for {
		v = plain(v)
		op := def(v, "if")
		if op == nil {
			return v
		}
		arm := -1
		cond := expr(op, "cond")
		switch lo, hi := cond.Bounds(); {
		case lo > 0 || hi < 0:
			arm = 0
		case w.cond != nil && cond.Equal(w.cond) && w.then:
			arm = 0
		case w.cond != nil && cond.Equal(w.cond):
			arm = 1
		default:
			return v
		}
		v = op.Regions[arm].Results[v.Index]
	}
}

// flat is the function flat, which also looks into the arms of ifs that run in this world.
func (w world) flat(v *ir.Value) *ir.Value {
	for {
		n := w.resolve(flat(v))
		if n == v {
			return v
		}
		v = n
	}
}

// ints is flatInts, which also looks into the arms of ifs that run in this world.
func (w world) ints(v *ir.Value) *ir.Value {
	for {
		n := flatInts(w.flat(v))
		if n == v {
			return v
		}
		v = n
	}
}

// branches walks from the rows that experts give back to their inputs, to the first if. It returns the worlds in which
// the condition of that if is true and false; where there is no if, one world without an assumption.
func branches(rows *ir.Value) []world {
	var w world
	for v := w.flat(rows); v.Def != nil; v = w.flat(v.Def.Args[0][0].Value) {
		switch v.Def.Def.Name {
		case "if":
			c := expr(v.Def, "cond")
			return []world{{c, true}, {c, false}}
		case "take", "multiply", "silu", "gelu", "gather_mm", "gather_qmm": // the first operand is a value
		default:
			return []world{w}
		}
	}
	return []world{w}
}

// expertRows is what was found of a mixture of experts in one world, from the rows [tokens·k, hidden] that the experts
// give.
type expertRows struct {
	world
	tokens, hidden, k *ir.Expr

	order      *ir.Value // the sorting permutation of the pairs, where they are sorted
	x, indices *ir.Value
	weights    [3]expertWeight
	name       string // as in experts
}

func (f *expertRows) match(rows *ir.Value) bool {
	v := f.flat(rows)
	if take := def(v, "take"); take != nil {
		if ir.Attrs[ir.AxisAttrs](take).Axis != 0 || take.Input("index") == nil {
			return false
		}
		v = f.flat(take.Input("x"))
		back := f.ints(take.Input("index"))
		if inverse := f.argsort(back); inverse != nil {
			if f.order = f.ints(inverse); f.argsort(f.order) == nil {
				return false
			}
		} else if !f.isCount(back, f.tokens.Mul(f.k)) {
			return false
		}
	}
	down := f.gathered(v, 2)
	if down == nil || !down.pairwise() {
		return false
	}
	hidden := f.flat(down.x)
	product := def(hidden, "multiply")
	if product == nil {
		return false
	}
	var gate, up *gatheredProduct
	if !eitherWay(product, func(a, b *ir.Value) bool {
		act := f.activation(f.flat(a))
		if act == nil {
			return false
		}
		gate, up = f.gathered(f.flat(act.Input("x")), 0), f.gathered(f.flat(b), 1)
		return gate != nil && up != nil
	}) {
		return false
	}
	if f.flat(gate.x) != f.flat(up.x) || f.ints(gate.ids) != f.ints(up.ids) || f.ints(gate.ids) != f.ints(down.ids) {
		return false
	}
	return f.matchIndices(gate.ids) && f.matchInput(gate) && sameShape(gate.x.Type, up.x.Type) &&
		sameShape(gate.ids.Type, up.ids.Type)
}

// activation matches the activation function of the gates, which decides what the fused operation is called.
func (f *expertRows) activation(v *ir.Value) *ir.Op {
	if op := def(v, "silu"); op != nil {
		f.name = "switch_mlp"
		return op
	}
	if op := def(v, "gelu"); op != nil && ir.Attrs[ir.GeluAttrs](op).Approximate == "tanh" {
		f.name = "switch_geglu"
		return op
	}
	return nil
}

// matchIndices finds the numbers of the experts as top_k gave them. ids are the numbers that a product reads, which are
// sorted in one arm.
func (f *expertRows) matchIndices(ids *ir.Value) bool {
	v := f.ints(ids)
	if f.order != nil {
		take := def(v, "take")
		if take == nil || take.Input("index") == nil || f.ints(take.Input("index")) != f.order {
			return false
		}
		v = f.ints(take.Input("x"))
		if sort := f.argsort(f.order); f.ints(sort) != v {
			return false
		}
	}
	// Only numbers that top_k has made are known to be no less than 0 and in the order of the pairs.
	if top := def(v, "top_k"); top == nil || v.Index != 1 {
		return false
	}
	f.indices = v
	n := v.Type.Rank()
	return n > 0 && v.Type.Shape[n-1].Equal(f.k) && v.Type.ElementsBefore(n-1).Equal(f.tokens)
}

// matchInput finds the input of the experts, x [tokens, hidden], and makes sure that every token-expert pair reads the
// row of its token.
func (f *expertRows) matchInput(p *gatheredProduct) bool {
	v := f.flat(p.x)
	switch {
	case f.order != nil:
		take := def(v, "take")
		if take == nil || ir.Attrs[ir.AxisAttrs](take).Axis != 0 || take.Input("index") == nil ||
			!f.isTokenOf(f.ints(take.Input("index"))) {
			return false
		}
		v = take.Input("x")
	case def(v, "repeat") != nil:
		if ir.Attrs[ir.AxisAttrs](v.Def).Axis != 0 || !expr(v.Def, "repeats").Equal(f.k) {
			return false
		}
		v = v.Def.Input("x")
	default: // x is broadcast against the indices: one matrix of one row for each token
		f.x = v
		one, n := ir.Const(1), v.Type.Rank()
		return isDims(p.x.Type, f.tokens, one, one, f.hidden) && isDims(p.ids.Type, f.tokens, f.k) &&
			n > 0 && v.Type.Shape[n-1].Equal(f.hidden) && v.Type.ElementsBefore(n-1).Equal(f.tokens)
	}
	if !p.pairwise() {
		return false
	}
	if !isDims(v.Type, f.tokens, f.hidden) {
		return false
	}
	f.x = f.flat(v)
	return true
}

// isTokenOf matches the number of the token that each sorted pair belongs to. Files compute it as order / k, or take
// it from repeat(0, 1, …; k) at order.
func (f *expertRows) isTokenOf(v *ir.Value) bool {
	if op := def(v, "astype"); op != nil { // back to integers: floor_divide gives the quotient as a float
		v = f.ints(op.Input("x"))
	}
	if op := def(v, "floor_divide"); op != nil {
		k, ok := f.k.Const()
		return ok && f.ints(op.Input("a")) == f.order && isScalar(op.Input("b"), float64(k))
	}
	take := def(v, "take")
	if take == nil || take.Input("index") == nil || f.ints(take.Input("index")) != f.order {
		return false
	}
	repeat := def(f.ints(take.Input("x")), "repeat")
	return repeat != nil && ir.Attrs[ir.AxisAttrs](repeat).Axis == 0 && expr(repeat, "repeats").Equal(f.k) &&
		f.isCount(f.ints(repeat.Input("x")), f.tokens)
}

// isCount matches 0, 1, …, n-1.
func (f *expertRows) isCount(v *ir.Value, n *ir.Expr) bool {
	op := def(v, "arange")
	return op != nil && expr(op, "start").IsConst(0) && expr(op, "step").IsConst(1) && expr(op, "stop").Equal(n)
}

// argsort returns the vector whose argsort v is, or nil where v is not an argsort of a vector.
func (f *expertRows) argsort(v *ir.Value) *ir.Value {
	if op := def(v, "argsort"); op != nil && isLast(op) && op.Input("x").Type.Rank() == 1 {
		return op.Input("x")
	}
	return nil
}

// gatheredProduct is a product found in the file: of matrices with one row, x [..., 1, K], by the experts' matrices
// whose numbers are ids.
type gatheredProduct struct{ x, ids *ir.Value }

// pairwise reports whether every number in ids has a row of x of its own.
func (p *gatheredProduct) pairwise() bool {
	n := p.x.Type.Rank()
	return isDims(p.ids.Type, p.x.Type.Shape[:n-2]...)
}

// gathered matches a product with the experts' matrices and stores those as weight i (gate, up, down). It returns nil
// for any other value.
func (f *expertRows) gathered(v *ir.Value, i int) *gatheredProduct {
	if v == nil || v.Def == nil {
		return nil
	}
	op := v.Def
	var p gatheredProduct
	switch op.Def.Name {
	case "gather_qmm":
		form, ok := ir.FormOf(op)
		w := op.Input("w")
		if !ok || !ir.Attrs[ir.GatherQmmAttrs](op).Transpose || w.Type.Rank() != 3 ||
			(op.Input("biases") == nil) != (form.Mode != ir.Affine) {
			return nil
		}
		f.weights[i] = expertWeight{packed: w, scales: op.Input("scales"), biases: op.Input("biases"), form: form,
			dtype: op.Input("x").Type.DType}
		p = gatheredProduct{op.Input("x"), op.Input("rhs_indices")}
	case "gather_mm":
		w, perm := permutation(op.Input("b"))
		if w == nil {
			w = op.Input("b")
		}
		if perm != nil && !slices.Equal(perm, []int{0, 2, 1}) || constant(w) == nil || w.Type.Rank() != 3 ||
			!w.Type.DType.IsFloat() {
			return nil
		}
		f.weights[i] = expertWeight{dense: plain(w), columns: perm == nil}
		p = gatheredProduct{op.Input("a"), op.Input("rhs_indices")}
	default:
		return nil
	}
	// The last but one dim of x is 1: each pair multiplies one row.
	if n := p.x.Type.Rank(); p.ids == nil || op.Input("lhs_indices") != nil || n < 3 ||
		!p.x.Type.Shape[n-2].IsConst(1) {
		return nil
	}
	return &p
}
