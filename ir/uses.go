package ir

import "slices"

// EachUse calls f with a pointer to every value that operations of r and its nested regions use, in list order, and to
// every result of these regions, so that f can replace it. user is the operation that uses the value, nil for a result.
func EachUse(r *Region, f func(v **Value, user *Op)) {
	for _, op := range r.Ops {
		op.EachArg(func(a *Arg) {
			if a.Kind == ValueArg {
				f(&a.Value, op)
			}
		})
		for _, n := range op.Regions {
			EachUse(n, f)
		}
	}
	for i := range r.Results {
		f(&r.Results[i], nil)
	}
}

// CountUses counts the uses of every value in r, as [EachUse] finds them.
func CountUses(r *Region) map[*Value]int {
	n := make(map[*Value]int, 2*len(r.Ops))
	EachUse(r, func(v **Value, _ *Op) { n[*v]++ })
	return n
}

// CountUses counts the uses of every value in init and the entries, and those of derived constants and their cells.
func (m *Module) CountUses() map[*Value]int {
	n := CountUses(m.Entry.Body)
	add := func(r *Region) {
		for v, count := range CountUses(r) {
			n[v] += count
		}
	}
	for _, f := range m.More {
		add(f.Body)
	}
	if m.Init != nil {
		add(m.Init)
	}
	for _, d := range m.Derived {
		n[d.Cell.Value]++
		n[d.From]++
	}
	return n
}

// ReplaceUses replaces the uses of values in r, as [EachUse] finds them, by the values that with holds for them.
func ReplaceUses(r *Region, with map[*Value]*Value) {
	EachUse(r, func(v **Value, _ *Op) {
		if n := with[*v]; n != nil {
			*v = n
		}
	})
}

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

// UndefinedIf returns an If of the module that leaves a result undefined in one of its arms, nil where there is none.
// What reads such a result when that arm ran is an error, which only a run can find.
func (m *Module) UndefinedIf() (found *Op) {
	look := func(r *Region) {
		r.Walk(func(op *Op) {
			for _, arm := range op.Regions {
				if found == nil && slices.ContainsFunc(arm.Results, isUndef) {
					found = op
				}
			}
		})
	}
	for _, f := range m.Entries() {
		look(f.Body)
	}
	if m.Init != nil {
		look(m.Init)
	}
	return found
}
