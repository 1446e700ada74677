package ir

// Operations with an expansion belong to one engine. A pass of its table makes them from the operations that every
// engine knows, because the engine has one kernel for several of these. The expansion says what such an operation
// computes, in terms of the operations that it replaces. Its type rule and its reference semantics are derived from the
// expansion, so neither is written twice. A function expandX builds the expansion of the operation x and returns its
// results; its comment says what they are.

// Expanded returns m with every operation that has an expansion replaced by it: m itself where there is none.
// Parameters, constants and buffers are shared.
func Expanded(m *Module) (*Module, error) {
	found := false
	for _, f := range m.Entries() { // a module of init alone has none
		f.Body.Walk(func(op *Op) { found = found || op.Def.Expand != nil })
	}
	if !found {
		return m, nil
	}
	m = m.Clone()
	err := Build(func() {
		for _, f := range m.Entries() {
			f.Body = expandRegion(m, f.Body, map[*Value]*Value{})
		}
	})
	return m, err
}

func expandRegion(m *Module, r *Region, replaced map[*Value]*Value) *Region {
	get := func(v *Value) *Value {
		if n := replaced[v]; n != nil {
			return n
		}
		return v
	}
	out := &Region{Args: r.Args}
	b := &Builder{Module: m, Region: out}
	for _, op := range r.Ops {
		op.EachArg(func(a *Arg) {
			if a.Kind == ValueArg {
				a.Value = get(a.Value)
			}
		})
		for i, n := range op.Regions {
			op.Regions[i] = expandRegion(m, n, replaced)
		}
		if op.Def.Expand == nil {
			out.Ops = append(out.Ops, op)
			continue
		}
		for i, v := range op.Def.Expand(b, op) {
			replaced[op.Results[i]] = v
		}
	}
	for _, v := range r.Results {
		out.Results = append(out.Results, get(v))
	}
	for _, a := range r.Args {
		a.Region = out
	}
	return out
}
