package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// Layout tells where the elements of a value lie: those of View in the memory of Base.
type Layout struct {
	// Base is the value whose memory it is: the value itself where its operation makes it.
	Base *ir.Value
	plan.View
}

// IsDense reports whether the elements lie one after the other.
func (l Layout) IsDense() bool {
	return slices.Equal(dims(l.Strides, l.Shape), dims(strided.RowMajor(l.Shape), l.Shape))
}

// isLoad reports whether it is the content of a buffer.
func (l Layout) isLoad() bool { return l.Base.Def != nil && l.Base.Def.Def.Name == "load" }

// dims are the strides of dims of more than one element: others mean nothing.
func dims(strides, shape []int) []int {
	var out []int
	for i, n := range shape {
		if n != 1 {
			out = append(out, strides[i])
		}
	}
	return out
}

// Same reports whether l has all elements of o in their order, and both are dense.
func (l Layout) Same(o Layout) bool {
	return l.Base == o.Base && l.Offset == o.Offset && strided.Elements(l.Shape) == strided.Elements(o.Shape) &&
		l.IsDense() && o.IsDense()
}

// Layout gives the layout of a tensor of the entry; false where its shape is known only when the plan runs.
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

// order has the operations whose kernels do not write their results in row-major order, with the strides that they
// give; nil stands for row-major.
var order map[string]func(g *graph, op *ir.Op, shape []int) []int

func init() { // rules ask for the layouts of operands
	order = map[string]func(g *graph, op *ir.Op, shape []int) []int{
		"rope_heads": tokenMajor, "rope_write": tokenMajor, "rope_rows_write": tokenMajor, "attention": attentionOrder,
		"rows_attention": attentionOrder, "sigmoid": inOrder, "take": takenRows,
	}
}

// tokenMajor: heads [1, H, T, D] lie token by token.
func tokenMajor(_ *graph, _ *ir.Op, shape []int) []int {
	if len(shape) != 4 {
		return nil
	}
	return []int{shape[2] * shape[1] * shape[3], shape[3], shape[1] * shape[3], 1}
}

// attentionOrder: without a gate the result is heads, which lie token by token.
func attentionOrder(g *graph, op *ir.Op, shape []int) []int {
	if op.Input("gate") != nil {
		return nil
	}
	return tokenMajor(g, op, shape)
}

// takenRows: rows of an axis that has others before it lie one behind the other.
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

// inOrder: results lie in the order of the first operand of their shape.
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

// insertCopy makes the copy explicit that a reshape needs whose elements are not spaced as it must have them.
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

// source is the value that v has all elements of in their order, through views.
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

// defined is the operation of that name whose only result v has all elements of, or nil.
func (g *graph) defined(v *ir.Value, name string) *ir.Op {
	if v = g.source(v); v.Def == nil || v.Def.Def.Name != name {
		return nil
	}
	return v.Def
}

// from is the operation of that name in whose result the elements of v lie, or nil.
func (g *graph) from(v *ir.Value, name string) *ir.Op {
	l, ok := g.Layout(v)
	if !ok || l.Base.Def == nil || l.Base.Def.Def.Name != name {
		return nil
	}
	return l.Base.Def
}
