package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// Layout describes where the elements of a value lie: View selects them in the memory of the value Base.
type Layout struct {
	// Base is the value whose memory it is. It is the value itself where its operation writes new memory.
	Base *ir.Value
	plan.View
}

// IsDense reports whether the elements are contiguous in row-major order.
func (l Layout) IsDense() bool {
	return slices.Equal(dims(l.Strides, l.Shape), dims(strided.RowMajor(l.Shape), l.Shape))
}

// isLoad reports whether the value is the content of a buffer.
func (l Layout) isLoad() bool { return l.Base.Def != nil && l.Base.Def.Def.Name == "load" }

// dims returns the strides of the dims that have more than one element. The strides of others have no meaning.
func dims(strides, shape []int) []int {
	var out []int
	for i, n := range shape {
		if n != 1 {
			out = append(out, strides[i])
		}
	}
	return out
}

// Same reports whether l and o have the same elements in the same order, and both are dense.
func (l Layout) Same(o Layout) bool {
	return l.Base == o.Base && l.Offset == o.Offset && strided.Elements(l.Shape) == strided.Elements(o.Shape) &&
		l.IsDense() && o.IsDense()
}

// Layout returns the layout of a tensor of the entry. It returns false where the shape is known only when the plan
// runs.
func (g *graph) Layout(v *ir.Value) (Layout, bool) {
	if l, known := g.layouts[v]; known {
		return l, l.Base != nil
	}
	l, ok := g.layoutOf(v)
	if !ok {
		l = Layout{}
	}
	g.layouts[v] = l
	return l, ok
}

func (g *graph) layoutOf(v *ir.Value) (Layout, bool) {
	shape := shape(v)
	if shape == nil {
		return Layout{}, false
	}
	own := Layout{v, plan.RowMajor(shape)}
	if v.Def == nil {
		return own, true
	}
	if v.Def.Def.IsView() {
		if x, ok := g.Layout(v.Def.Input("x")); ok && v.Def.Input("x").Constant == nil {
			if view, ok := plan.ViewOf(v.Def, plan.Sizes{}, x.View); ok {
				return Layout{x.Base, view}, true
			}
		}
		return own, true
	}
	if rule := order[v.Def.Def.Name]; rule != nil {
		if strides := rule(g, v.Def, shape); strides != nil {
			own.Strides = strides
		}
	}
	return own, true
}

// order has the operations whose kernels do not write results in row-major order. Its functions return the strides of
// the result; nil means row-major.
var order map[string]func(g *graph, op *ir.Op, shape []int) []int

func init() { // in init, since the functions refer to order through Layout
	order = map[string]func(g *graph, op *ir.Op, shape []int) []int{
		"rope_heads": tokenMajor, "rope_write": tokenMajor, "rope_rows_write": tokenMajor, "attention": attentionOrder,
		"rows_attention": attentionOrder, "rows_attention_step": attentionOrder, "sigmoid": inOrder, "take": takenRows,
	}
}

// tokenMajor returns the strides of heads [1, H, T, D] whose memory order is [T, H, D].
func tokenMajor(_ *graph, _ *ir.Op, shape []int) []int {
	if len(shape) != 4 {
		return nil
	}
	return []int{shape[2] * shape[1] * shape[3], shape[3], shape[1] * shape[3], 1}
}

// attentionOrder returns the strides of attention's result: token by token if it is heads, row-major if it was merged
// with a gate.
func attentionOrder(g *graph, op *ir.Op, shape []int) []int {
	if op.Input("gate") != nil {
		return nil
	}
	return tokenMajor(g, op, shape)
}

// takenRows returns the strides of a take along an axis that is not the first: the rows of that axis are contiguous.
func takenRows(g *graph, op *ir.Op, shape []int) []int {
	l, ok := g.Layout(op.Input("x"))
	if !ok || len(shape) != len(l.Shape) {
		return nil
	}
	axis := (ir.Attrs[ir.AxisAttrs](op).Axis + len(shape)) % len(shape)
	if strided.Elements(shape[:axis]) == 1 {
		return nil
	}
	strides, _ := strided.AxisFirst(shape, l.Strides, axis)
	return strides
}

// inOrder returns the strides of the first operand that has the result's shape.
func inOrder(g *graph, op *ir.Op, shape []int) (strides []int) {
	op.EachArg(func(a *ir.Arg) {
		if strides == nil && a.Kind == ir.ValueArg {
			if l, ok := g.Layout(a.Value); ok && slices.Equal(l.Shape, shape) {
				strides = strided.InOrder(l.Shape, l.Strides)
			}
		}
	})
	return strides
}

// insertCopy inserts an explicit copy before a reshape that cannot be a view of its operand.
func (g *graph) insertCopy(op *ir.Op) {
	x := op.Input("x")
	l, ok := g.Layout(x)
	if !ok || x.Constant != nil || !x.Type.DType.IsFloat() {
		return
	}
	if _, ok := plan.ViewOf(op, plan.Sizes{}, l.View); ok {
		return
	}
	if _, ok := plan.ViewOf(op, plan.Sizes{}, plan.RowMajor(l.Shape)); !ok {
		return
	}
	b, n := g.draft(), op.Like()
	n.Args[0] = []ir.Arg{ir.Use(b.Value("copy", nil, x))}
	b.Append(n)
	g.put(b, op)
}

// source follows views from v back to the value that has the same elements in the same order.
func (g *graph) source(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Def.IsView() {
		x := v.Def.Input("x")
		to, ok := g.Layout(v)
		from, ok2 := g.Layout(x)
		if !ok || !ok2 || !to.Same(from) {
			break
		}
		v = x
	}
	return v
}

// defined returns the operation of that name whose single result has the same elements as v in the same order, or nil.
func (g *graph) defined(v *ir.Value, name string) *ir.Op {
	if v = g.source(v); v.Def == nil || v.Def.Def.Name != name {
		return nil
	}
	return v.Def
}

// from returns the operation of that name whose result contains the elements of v, or nil.
func (g *graph) from(v *ir.Value, name string) *ir.Op {
	l, ok := g.Layout(v)
	if !ok || l.Base.Def == nil || l.Base.Def.Def.Name != name {
		return nil
	}
	return l.Base.Def
}
