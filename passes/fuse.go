package passes

import (
	"slices"
	"strconv"

	"github.com/etc-ml/etc/ir"
)

// fuseProjections merges linears that share an input, a fused name and a dtype of weights: one matrix
// product and slices instead of several products. The rows of the weights follow each other in the order
// of the operations. Weights that several entries use merge where all of them use them so: else they would be
// stored twice.
func fuseProjections(m *ir.Module, _ *Options) error {
	p := &projections{module: m, joined: map[string]map[string]*ir.Constant{}}
	for _, f := range m.Entries() {
		p.uses = append(p.uses, usesOf(f.Body))
	}
	return ir.Build(func() {
		for i, f := range m.Entries() {
			p.entry = i
			p.fuse(f.Body)
		}
	})
}

// projections is the state of the pass.
type projections struct {
	module *ir.Module
	entry  int                                // the number of the entry whose regions merge
	uses   []*weightUses                      // by entry
	joined map[string]map[string]*ir.Constant // what groups became, by the group's key and the constant's name
}

// weightUses tells how an entry uses weights that can merge.
type weightUses struct {
	weights map[*ir.Constant]int // how often a weight is used
	groups  map[string]int       // how often a group of weights would merge, by its key
}

// membersOf returns the linears of a region that would merge, those in regions of it aside.
func membersOf(r *ir.Region) map[family][]*ir.Op {
	members := map[family][]*ir.Op{}
	for _, op := range r.Ops {
		if f, ok := familyOf(op); ok {
			members[f] = append(members[f], op)
		}
	}
	return members
}

func usesOf(r *ir.Region) *weightUses {
	u := &weightUses{map[*ir.Constant]int{}, map[string]int{}}
	var walk func(r *ir.Region)
	walk = func(r *ir.Region) {
		for _, op := range r.Ops {
			for i, o := range op.Def.Operands {
				if o.Kind == ir.WeightOperand && len(op.Args[i]) > 0 {
					u.weights[storedIn(op.Args[i][0].Value)]++
				}
			}
			for _, n := range op.Regions {
				walk(n)
			}
		}
		for f, group := range membersOf(r) {
			u.groups[groupKey(f.name, group)]++
		}
	}
	walk(r)
	return u
}

// storedIn returns the constant of a weight, of its codes where it is quantized; nil where there is none.
func storedIn(w *ir.Value) *ir.Constant {
	if w.Def != nil && w.Def.Def.Name == "quantized" {
		w = w.Def.Input("packed")
	}
	return w.Constant
}

// groupKey is equal for groups that become the same weight.
func groupKey(name string, group []*ir.Op) string {
	key := strconv.Quote(name)
	for _, op := range group {
		key += " " + strconv.Quote(storedIn(op.Input("weight")).Name)
	}
	return key
}

// mergesEverywhere reports whether every other entry that uses a weight of the group merges the same group.
func (p *projections) mergesEverywhere(key string, group []*ir.Op) bool {
	for i, u := range p.uses {
		for _, op := range group {
			if n := u.weights[storedIn(op.Input("weight"))]; i != p.entry && n != u.groups[key] {
				return false
			}
		}
	}
	return true
}

func (p *projections) fuse(r *ir.Region) {
	m := p.module
	for _, op := range r.Ops {
		for _, n := range op.Regions {
			p.fuse(n)
		}
	}
	members := membersOf(r)
	for f, group := range members {
		if !p.mergesEverywhere(groupKey(f.name, group), group) {
			delete(members, f)
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
		y := b.Value("linear", nil, op.Input("x"), p.join(b, f.name, group))
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

// join makes one weight from the weights of a group: a constant, or three for weights that the checkpoint stores
// quantized. Another entry may have made them already.
func (p *projections) join(b *ir.Builder, name string, group []*ir.Op) *ir.Value {
	key := groupKey(name, group)
	made := p.joined[key]
	if made == nil {
		made = map[string]*ir.Constant{}
		p.joined[key] = made
	}
	join := func(name string, of func(w *ir.Value) *ir.Constant) *ir.Value {
		if c := made[name]; c != nil {
			return c.Value
		}
		var data []ir.Data
		for _, g := range group {
			data = append(data, of(g.Input("weight")).Data)
		}
		all := ir.Concat(data...)
		v := insertConstant(p.module, of(group[0].Input("weight")), name, ir.StaticType(all.DType(), all.Shape()...),
			all)
		made[name] = v.Constant
		return v
	}
	first := group[0].Input("weight")
	if first.Constant != nil {
		return join(name, func(w *ir.Value) *ir.Constant { return w.Constant })
	}
	part := func(operand string) *ir.Value {
		return join(name+"."+operand, func(w *ir.Value) *ir.Constant { return w.Def.Input(operand).Constant })
	}
	parts := []any{part("packed"), part("scales")}
	if first.Def.Input("biases") != nil {
		parts = append(parts, part("biases"))
	}
	return b.Value("quantized", first.Def.Attrs, parts...)
}

// family has the properties that linears must share to be merged.
type family struct {
	x     *ir.Value
	name  string
	dtype ir.DType
	form  ir.WeightForm // zero where the weight is not quantized
}

// familyOf returns the family of a linear that can be merged: its weight is a matrix of the checkpoint, as
// floats or quantized, in mode affine with biases, and it adds no bias.
func familyOf(op *ir.Op) (family, bool) {
	if op.Def.Name != "linear" {
		return family{}, false
	}
	w := op.Input("weight")
	f := family{op.Input("x"), ir.Attrs[ir.LinearAttrs](op).Fuse, w.Type.DType, w.Type.WeightForm}
	return f, f.name != "" && op.Input("bias") == nil && fromCheckpoint(w)
}

// fromCheckpoint reports whether a weight is a constant, or joined from three.
func fromCheckpoint(w *ir.Value) bool {
	stored := func(v *ir.Value) bool { return v != nil && v.Constant != nil && v.Constant.Data != nil }
	if w.Def == nil || w.Def.Def.Name != "quantized" {
		return stored(w)
	}
	return stored(w.Def.Input("packed")) && stored(w.Def.Input("scales")) &&
		(stored(w.Def.Input("biases")) || w.Type.Mode != ir.Affine)
}

// insertConstant puts a constant before another one, so that files keep the order of the layers.
func insertConstant(m *ir.Module, before *ir.Constant, name string, t ir.Type, data ir.Data) *ir.Value {
	v := m.NewConstant(name, t, data)
	m.Constants = m.Constants[:len(m.Constants)-1]
	m.Constants = slices.Insert(m.Constants, slices.Index(m.Constants, before), v.Constant)
	return v
}
