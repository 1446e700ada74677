package ir

// LastUses lists, for each operation of r, the values defined in r (its arguments too) that nothing
// uses after that operation, in the order of their definition. A use inside of a nested region counts
// as a use by the operation that holds the region. A value that is never used ends where it is
// defined, an argument at the first operation. Values in keep, the region's results as a rule, do not end.
func LastUses(r *Region, keep []*Value) [][]*Value {
	last := map[*Value]int{}
	var order []*Value
	define := func(v *Value, at int) {
		last[v] = at
		order = append(order, v)
	}
	for _, a := range r.Args {
		define(a, 0)
	}
	for i, op := range r.Ops {
		for _, v := range op.Results {
			define(v, i)
		}
		use := func(v *Value) {
			if _, here := last[v]; here {
				last[v] = i
			}
		}
		uses := func(op *Op) {
			op.EachArg(func(a *Arg) { use(a.Value) })
			for _, n := range op.Regions {
				for _, v := range n.Results {
					use(v)
				}
			}
		}
		uses(op)
		for _, n := range op.Regions {
			n.Walk(uses)
		}
	}
	for _, v := range keep {
		delete(last, v)
	}
	out := make([][]*Value, len(r.Ops))
	for _, v := range order {
		if i, ends := last[v]; ends && i < len(out) {
			out[i] = append(out[i], v)
		}
	}
	return out
}
