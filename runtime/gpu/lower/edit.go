package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/strided"
)

// edit changes the list of an entry: rows note what to replace, and finish does it.
type edit struct {
	m *ir.Module
	t *Target
	// at has, by operation, those that stand in its place; none where it goes.
	at map[*ir.Op][]*ir.Op
	// values are those that stand for others.
	values map[*ir.Value]*ir.Value
	uses   map[*ir.Value]int
}

func newEdit(m *ir.Module, t *Target) *edit {
	return &edit{m: m, t: t, at: map[*ir.Op][]*ir.Op{}, values: map[*ir.Value]*ir.Value{}, uses: countUses(m.Entry.Body)}
}

// countUses counts the uses of the values of a region, in nested ones too.
func countUses(r *ir.Region) map[*ir.Value]int {
	n := map[*ir.Value]int{}
	for _, op := range r.Ops {
		uses(op, func(v *ir.Value) { n[v]++ })
	}
	for _, v := range r.Results {
		n[v]++
	}
	return n
}

// only reports whether v, through the views that it is one of, is used by nothing else: so what computes it can become a part
// of what uses it.
func (e *edit) only(v *ir.Value) bool {
	for e.uses[v] == 1 {
		if v.Def == nil || !v.Def.Def.IsView() {
			return true
		}
		v = v.Def.Input("x")
	}
	return false
}

// replace puts what build makes in the place of op. The values that it gives stand for op's results.
func (e *edit) replace(op *ir.Op, build func(b *ir.Builder) []*ir.Value) {
	e.insert(op, func(b *ir.Builder) {
		for i, v := range build(b) {
			e.stand(b, op.Results[i], v)
		}
	})
}

// insert puts what build makes in the place of op.
func (e *edit) insert(op *ir.Op, build func(b *ir.Builder)) {
	list := []*ir.Op{}
	build(&ir.Builder{Module: e.m, Insert: func(n *ir.Op) { list = append(list, n) }})
	e.at[op] = list
}

// stand makes v, in the dtype of old, what is used in its place.
func (e *edit) stand(b *ir.Builder, old, v *ir.Value) {
	if d := old.Type.DType; d != v.Type.DType {
		v = b.Value("astype", &ir.DTypeAttrs{ScalarType: d}, v)
	}
	e.values[old] = v
}

// trial is a builder of operations that are asked whether there is a kernel for them.
func (e *edit) trial() *ir.Builder { return &ir.Builder{Module: e.m, Insert: func(*ir.Op) {}} }

// drop removes an operation, for whose results the caller has others.
func (e *edit) drop(op *ir.Op) { e.at[op] = nil }

// changed reports whether op was replaced or dropped.
func (e *edit) changed(op *ir.Op) bool {
	_, ok := e.at[op]
	return ok
}

// finish makes the changes, and drops what nothing uses then.
func (e *edit) finish() error {
	if len(e.at) == 0 {
		return nil
	}
	r := e.m.Entry.Body
	var ops []*ir.Op
	for _, op := range r.Ops {
		if list, ok := e.at[op]; ok {
			ops = append(ops, list...)
		} else {
			ops = append(ops, op)
		}
	}
	r.Ops = ops
	for old, v := range e.values {
		for e.values[v] != nil {
			v = e.values[v]
		}
		e.values[old] = v
	}
	ir.ReplaceUses(r, e.values)
	settle(r)
	clear(e.t.layouts)
	return passes.EliminateDead(e.m)
}

// index tells where an operation stands in the entry.
func (e *edit) index(op *ir.Op) int { return slices.Index(e.m.Entry.Body.Ops, op) }

// works reports whether an operation from number first on and before last works on a buffer.
func (e *edit) works(first, last int, on *ir.Buffer) bool {
	return slices.ContainsFunc(e.m.Entry.Body.Ops[first:max(first, last)], func(op *ir.Op) bool { return worksOn(op, on) })
}

// written reports whether an operation from number first on and before last writes a buffer.
func (e *edit) written(first, last int, b *ir.Buffer) bool {
	return slices.ContainsFunc(e.m.Entry.Body.Ops[first:max(first, last)], func(op *ir.Op) bool { return op.Def.Effect != ir.Reads && worksOn(op, b) })
}

// worksOn reports whether op, or one inside of it, works on a buffer.
func worksOn(op *ir.Op, on *ir.Buffer) bool {
	if slices.Contains(op.Buffers(), on) {
		return true
	}
	found := false
	for _, r := range op.Regions {
		r.Walk(func(o *ir.Op) { found = found || slices.Contains(o.Buffers(), on) })
	}
	return found
}

// floats gives the layout of a value that lies on the device as float32; false for others.
func (t *Target) floats(v *ir.Value) (Layout, bool) {
	if v == nil || v.Type.Kind != ir.TensorKind || !v.Type.DType.IsFloat() {
		return Layout{}, false
	}
	l, ok := t.Layout(v)
	if !ok || l.Base.Def != nil && l.Base.Def.Def.Name == "load" {
		return Layout{}, false
	}
	return l, true
}

// isVector reports whether v is a constant vector of n floats, such as the weight of a norm.
func isVector(v *ir.Value, n int) bool {
	return v.Constant != nil && v.Type.DType.IsFloat() && v.Type.Rank() == 1 && v.Type.Shape[0].IsConst(int64(n))
}

// maxHost is the number of elements up to which the host computes with integers before a call.
const maxHost = 1 << 16

// known reports whether the host knows an argument before the first kernel of a call runs: it follows from the inputs by
// operations on a few numbers.
func (t *Target) known(a ir.Arg) bool {
	if a.Kind != ir.ValueArg {
		return true
	}
	v := a.Value
	if v == nil {
		return false
	}
	if v.Type.Kind == ir.TensorKind {
		shape, ok := bind.Sizes{}.Dims(v.Type)
		if !ok || strided.Elements(shape) > maxHost {
			return false
		}
	}
	if v.Def == nil {
		return v.Region == nil
	}
	if v.Def.Buffer != nil || v.Def.Def.Effect != ir.Pure || len(v.Def.Regions) > 0 {
		return false
	}
	ok := true
	v.Def.EachArg(func(a *ir.Arg) { ok = ok && t.known(*a) })
	return ok
}

// from is the operation of that name in whose result the elements of v lie, or nil.
func (t *Target) from(v *ir.Value, name string) *ir.Op {
	l, ok := t.Layout(v)
	if !ok || l.Base.Def == nil || l.Base.Def.Def.Name != name {
		return nil
	}
	return l.Base.Def
}
