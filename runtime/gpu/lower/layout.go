package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/strided"
)

// Layout tells where the elements of a value lie: those of View in the memory of Base.
type Layout struct {
	// Base is the value whose memory it is: the value itself where its operation makes it.
	Base *ir.Value
	bind.View
}

// IsDense reports whether the elements lie one after the other.
func (l Layout) IsDense() bool {
	return slices.Equal(dims(l.Strides, l.Shape), dims(strided.RowMajor(l.Shape), l.Shape))
}

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
	return l.Base == o.Base && l.Offset == o.Offset && strided.Elements(l.Shape) == strided.Elements(o.Shape) && l.IsDense() && o.IsDense()
}

// Layout gives the layout of a tensor of the entry; false where its shape is known only when the plan runs.
func (t *Target) Layout(v *ir.Value) (Layout, bool) {
	if l, known := t.layouts[v]; known {
		return l, l.Base != nil
	}
	l, ok := t.layoutOf(v)
	if !ok {
		l = Layout{}
	}
	t.layouts[v] = l
	return l, ok
}

func (t *Target) layoutOf(v *ir.Value) (Layout, bool) {
	shape, ok := bind.Sizes{}.Dims(v.Type)
	if !ok || v.Type.Kind != ir.TensorKind {
		return Layout{}, false
	}
	own := Layout{v, bind.RowMajor(shape)}
	if v.Def == nil {
		return own, true
	}
	if v.Def.Def.IsView() {
		if x, ok := t.Layout(v.Def.Input("x")); ok && v.Def.Input("x").Constant == nil {
			if view, ok := bind.ViewOf(v.Def, bind.Sizes{}, x.View); ok {
				return Layout{x.Base, view}, true
			}
		}
		return own, true
	}
	if rule := order[v.Def.Def.Name]; rule != nil {
		if strides := rule(t, v.Def, shape); strides != nil {
			own.Strides = strides
		}
	}
	return own, true
}

// order has the operations whose kernels do not write their results in row-major order, with the strides that they give;
// nil stands for row-major.
var order map[string]func(t *Target, op *ir.Op, shape []int) []int

func init() { // rules ask for the layouts of operands
	order = map[string]func(t *Target, op *ir.Op, shape []int) []int{
		"rope_heads": tokenMajor, "rope_write": tokenMajor, "attention": attentionOrder, "sigmoid": inOrder,
	}
}

// tokenMajor: heads [1, H, T, D] lie token by token.
func tokenMajor(_ *Target, _ *ir.Op, shape []int) []int {
	if len(shape) != 4 {
		return nil
	}
	return []int{shape[2] * shape[1] * shape[3], shape[3], shape[1] * shape[3], 1}
}

// attentionOrder: without a gate the result is heads, which lie token by token.
func attentionOrder(t *Target, op *ir.Op, shape []int) []int {
	if op.Input("gate") != nil {
		return nil
	}
	return tokenMajor(t, op, shape)
}

// inOrder: results lie in the order of the first operand of their shape.
func inOrder(t *Target, op *ir.Op, shape []int) (strides []int) {
	op.EachArg(func(a *ir.Arg) {
		if strides == nil && a.Kind == ir.ValueArg {
			if l, ok := t.Layout(a.Value); ok && slices.Equal(l.Shape, shape) {
				strides = strided.InOrder(l.Shape, l.Strides)
			}
		}
	})
	return strides
}

// insertCopies makes the copy explicit that a reshape needs whose elements are not spaced as it must have them.
func insertCopies(m *ir.Module, t *Target) error {
	return rewrite(m, "reshape", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		x := op.Input("x")
		l, ok := t.Layout(x)
		if !ok || x.Constant != nil || !x.Type.DType.IsFloat() {
			return nil, false
		}
		if _, ok := bind.ViewOf(op, bind.Sizes{}, l.View); ok {
			return nil, false
		}
		if _, ok := bind.ViewOf(op, bind.Sizes{}, bind.RowMajor(l.Shape)); !ok {
			return nil, false
		}
		n := &ir.Op{Def: op.Def, Attrs: op.Attrs, Args: slices.Clone(op.Args)}
		n.Args[0] = []ir.Arg{ir.Use(b.Value("copy", nil, x))}
		return b.Append(n).Results, true
	})
}

// source is the value that v has all elements of in their order, through views.
func (t *Target) source(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Def.IsView() {
		x := v.Def.Input("x")
		to, ok := t.Layout(v)
		from, ok2 := t.Layout(x)
		if !ok || !ok2 || !to.Same(from) {
			break
		}
		v = x
	}
	return v
}

// defined is the operation of that name whose only result v has all elements of, or nil.
func (t *Target) defined(v *ir.Value, name string) *ir.Op {
	if v = t.source(v); v.Def == nil || v.Def.Def.Name != name {
		return nil
	}
	return v.Def
}
