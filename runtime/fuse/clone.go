package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// clone copies the entry of m; constants, buffers, parameters and init are shared.
func clone(m *ir.Module) *ir.Module {
	c := *m
	c.Constants, c.Derived = slices.Clone(m.Constants), slices.Clone(m.Derived)
	entry := *m.Entry
	entry.Body = cloneRegion(m.Entry.Body, map[*ir.Value]*ir.Value{})
	c.Entry = &entry
	return &c
}

// cloneRegion copies a region; copies holds the copies of the values that it may use from outside.
func cloneRegion(r *ir.Region, copies map[*ir.Value]*ir.Value) *ir.Region {
	get := func(v *ir.Value) *ir.Value {
		if n := copies[v]; n != nil {
			return n
		}
		return v // a parameter or a constant
	}
	out := &ir.Region{}
	for _, a := range r.Args {
		copies[a] = out.NewArg(a.Type)
	}
	for _, op := range r.Ops {
		n := &ir.Op{Def: op.Def, Attrs: op.Attrs, Buffer: op.Buffer, Args: make([][]ir.Arg, len(op.Args))}
		for i, args := range op.Args {
			n.Args[i] = slices.Clone(args)
		}
		n.EachArg(func(a *ir.Arg) {
			if a.Kind == ir.ValueArg {
				a.Value = get(a.Value)
			}
		})
		for _, region := range op.Regions {
			n.Regions = append(n.Regions, cloneRegion(region, copies))
		}
		for i, v := range op.Results {
			t := v.Type
			t.Shape = slices.Clone(t.Shape)
			n.Results = append(n.Results, &ir.Value{Type: t, Def: n, Index: i})
			copies[v] = n.Results[i]
		}
		out.Ops = append(out.Ops, n)
	}
	for _, v := range r.Results {
		out.Results = append(out.Results, get(v))
	}
	return out
}
