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
		var parts []ir.Data
		for _, g := range group {
			parts = append(parts, g.Input("weight").Constant.Data)
		}
		data := ir.Concat(parts...)
		weight := insertConstant(m, group[0].Input("weight").Constant, f.name, ir.StaticType(data.DType(), data.Shape()...), data)
		y := b.Value("linear", nil, op.Input("x"), weight)
		start := int64(0)
		for _, g := range group {
			rows := g.Input("weight").Constant.Data.Shape()[0]
			replaced[g.Result()] = b.Value("slice", nil, y, y.Type.Rank()-1, start, start+rows)
			start += rows
		}
	}
	r.Ops = ops
	replaceUses(r, func(v *ir.Value, _ *ir.Op) *ir.Value {
		if n := replaced[v]; n != nil {
			return n
		}
		return v
	})
}

// family is what linears that merge have in common.
type family struct {
	x     *ir.Value
	name  string
	dtype ir.DType
}

// familyOf gives the family of a linear that can be merged: its weight is a matrix of the checkpoint and
// it adds no bias.
func familyOf(op *ir.Op) (family, bool) {
	if op.Def.Name != "linear" {
		return family{}, false
	}
	w := op.Input("weight")
	f := family{op.Input("x"), ir.Attrs[ir.LinearAttrs](op).Fuse, w.Type.DType}
	return f, f.name != "" && op.Input("bias") == nil && w.Constant != nil && w.Constant.Data != nil
}

// insertConstant puts a constant before another one, so that files keep the order of the layers.
func insertConstant(m *ir.Module, before *ir.Constant, name string, t ir.Type, data ir.Data) *ir.Value {
	v := m.NewConstant(name, t, data)
	m.Constants = m.Constants[:len(m.Constants)-1]
	m.Constants = slices.Insert(m.Constants, slices.Index(m.Constants, before), v.Constant)
	return v
}
