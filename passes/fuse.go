package passes

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// fuseProjections merges linears that share an input, a fused name and a dtype of weights: one matrix
// product and slices instead of several products. The rows of the weights follow each other in the order
// of the operations.
func fuseProjections(m *ir.Module, _ *Options) error {
	return ir.Build(func() { fuseRegion(m, m.Entry.Body) })
}

func fuseRegion(m *ir.Module, r *ir.Region) {
	for _, op := range r.Ops {
		for _, n := range op.Regions {
			fuseRegion(m, n)
		}
	}
	members := map[family][]*ir.Op{}
	for _, op := range r.Ops {
		if f, ok := familyOf(op); ok {
			members[f] = append(members[f], op)
		}
	}
	replaced := map[*ir.Value]*ir.Value{}
	var ops []*ir.Op
	b := &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
	for _, op := range r.Ops {
		f, ok := familyOf(op)
		group := members[f]
		if !ok || len(group) < 2 {
			ops = append(ops, op)
			continue
		}
		if op != group[0] {
			continue // merged with the first
		}
		y := b.Value("linear", nil, op.Input("x"), joinWeights(m, b, f.name, group))
		start := int64(0)
		for _, g := range group {
			rows, _ := g.Input("weight").Type.Shape[0].Const()
			replaced[g.Result()] = b.Value("slice", nil, y, y.Type.Rank()-1, start, start+rows)
			start += rows
		}
	}
	r.Ops = ops
	ir.ReplaceUses(r, replaced)
}

// joinWeights makes one weight of those of a family: a constant, or three for weights that the checkpoint
// holds quantized.
func joinWeights(m *ir.Module, b *ir.Builder, name string, group []*ir.Op) *ir.Value {
	join := func(name string, of func(w *ir.Value) *ir.Constant) *ir.Value {
		var data []ir.Data
		for _, g := range group {
			data = append(data, of(g.Input("weight")).Data)
		}
		all := ir.Concat(data...)
		return insertConstant(m, of(group[0].Input("weight")), name, ir.StaticType(all.DType(), all.Shape()...), all)
	}
	first := group[0].Input("weight")
	if first.Constant != nil {
		return join(name, func(w *ir.Value) *ir.Constant { return w.Constant })
	}
	part := func(operand string) *ir.Value {
		return join(name+"."+operand, func(w *ir.Value) *ir.Constant { return w.Def.Input(operand).Constant })
	}
	return b.Value("quantized", first.Def.Attrs, part("packed"), part("scales"), part("biases"))
}

// family is what linears that merge have in common.
type family struct {
	x           *ir.Value
	name        string
	dtype       ir.DType
	bits, group int // 0 where the weight is not quantized
}

// familyOf gives the family of a linear that can be merged: its weight is a matrix of the checkpoint, as
// floats or quantized with biases, and it adds no bias.
func familyOf(op *ir.Op) (family, bool) {
	if op.Def.Name != "linear" {
		return family{}, false
	}
	w := op.Input("weight")
	f := family{op.Input("x"), ir.Attrs[ir.LinearAttrs](op).Fuse, w.Type.DType, w.Type.Bits, w.Type.Group}
	return f, f.name != "" && op.Input("bias") == nil && fromCheckpoint(w)
}

// fromCheckpoint reports whether a weight is a constant, or joined from three.
func fromCheckpoint(w *ir.Value) bool {
	stored := func(v *ir.Value) bool { return v != nil && v.Constant != nil && v.Constant.Data != nil }
	if w.Def == nil || w.Def.Def.Name != "quantized" {
		return stored(w)
	}
	return stored(w.Def.Input("packed")) && stored(w.Def.Input("scales")) && stored(w.Def.Input("biases"))
}

// insertConstant puts a constant before another one, so that files keep the order of the layers.
func insertConstant(m *ir.Module, before *ir.Constant, name string, t ir.Type, data ir.Data) *ir.Value {
	v := m.NewConstant(name, t, data)
	m.Constants = m.Constants[:len(m.Constants)-1]
	m.Constants = slices.Insert(m.Constants, slices.Index(m.Constants, before), v.Constant)
	return v
}
