package passes

import "github.com/etc-ml/etc/ir"

// rewrite walks the operations of r and of its nested regions in order and lets f replace each. f gets a
// builder that inserts before the operation; it returns the values that stand for the operation's
// results from there on and true, or false to keep the operation.
func rewrite(m *ir.Module, r *ir.Region, f func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool)) {
	replaced := map[*ir.Value]*ir.Value{}
	var walk func(r *ir.Region)
	walk = func(r *ir.Region) {
		inner := &ir.Region{}
		b := &ir.Builder{Module: m, Region: inner}
		get := func(v *ir.Value) *ir.Value {
			if n := replaced[v]; n != nil {
				return n
			}
			return v
		}
		for _, op := range r.Ops {
			op.EachArg(func(a *ir.Arg) { a.Value = get(a.Value) })
			for _, n := range op.Regions {
				walk(n)
			}
			results, ok := f(b, op)
			if !ok {
				inner.Ops = append(inner.Ops, op)
				continue
			}
			for i, v := range op.Results {
				replaced[v] = results[i]
			}
		}
		for i, v := range r.Results {
			r.Results[i] = get(v)
		}
		r.Ops = inner.Ops
	}
	walk(r)
}

// rewriteEntries is rewrite of every entry, in order.
func rewriteEntries(m *ir.Module, f func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool)) {
	for _, entry := range m.Entries() {
		rewrite(m, entry.Body, f)
	}
}

// retype derives every type of a region again, after a constant or an operation has changed its type.
func retype(r *ir.Region) error {
	for _, op := range r.Ops {
		if op.Def.Name == "scan" {
			originals, body := len(op.Args[0]), op.Regions[0]
			for i, a := range op.Args[0] {
				body.Args[i].Type.DType = a.Value.Type.DType
			}
			for i, a := range op.Args[1] {
				body.Args[originals+i].Type = a.Value.Type
			}
		}
		for _, n := range op.Regions {
			if err := retype(n); err != nil {
				return err
			}
		}
		if err := ir.Infer(op); err != nil {
			return err
		}
	}
	return nil
}
