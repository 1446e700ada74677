package ir

import "slices"

// Clone returns a copy of m whose operations can be changed: its entries are new, with values of their own. Parameters,
// constants, buffers and init are shared.
func (m *Module) Clone() *Module {
	c := m.copyLists()
	c.Entry, c.More = cloneFunc(m.Entry), nil
	for _, f := range m.More {
		c.More = append(c.More, cloneFunc(f))
	}
	return c
}

func cloneFunc(f *Func) *Func {
	c := *f
	c.Body = cloneRegion(f.Body, map[*Value]*Value{}, func(t Type) Type { return t })
	return &c
}

// Specialize returns a copy of m for inputs of known sizes: with gives the number that takes the place of a symbol, and
// false for a symbol that stays. The entry has parameters of its own. Types of values follow; what the program computes
// does not change for inputs of these sizes. It is of the main entry alone.
func (m *Module) Specialize(with func(*Symbol) (int64, bool)) *Module {
	return m.Substitute(func(s *Symbol) *Expr {
		if n, ok := with(s); ok {
			return Const(n)
		}
		return nil
	})
}

// Substitute returns a copy of m in whose types replace gives the expression that takes the place of a symbol, and nil
// for a symbol that stays. The entry has parameters of its own. It is of the main entry alone. Types are not derived
// again: whoever changes the bounds of a symbol has to see whether the type rules still give these types.
func (m *Module) Substitute(replace func(*Symbol) *Expr) *Module {
	retype := func(t Type) Type {
		shared := true
		for i, d := range t.Shape {
			n := d.Substitute(replace)
			if n == d {
				continue
			}
			if shared {
				t.Shape, shared = slices.Clone(t.Shape), false
			}
			t.Shape[i] = n
		}
		if t.Int != nil {
			t.Int = t.Int.Substitute(replace)
		}
		return t
	}
	c := m.copyLists()
	entry := *m.Entry
	copies := make(map[*Value]*Value, 2*len(m.Entry.Body.Ops))
	entry.Params = nil
	for _, p := range m.Entry.Params {
		copies[p] = entry.NewParam(p.Param, retype(p.Type))
	}
	entry.Body = cloneRegion(m.Entry.Body, copies, retype)
	// The declared sizes are of all calls, and those of others may be another call's: this one has those that it
	// computes.
	entry.Outputs = slices.Clone(m.Entry.Outputs)
	for i, t := range entry.Outputs {
		if r := entry.Body.Results[i].Type; t.Kind == TensorKind && r.Rank() == t.Rank() {
			t.Shape = r.Shape
		}
		entry.Outputs[i] = retype(t)
	}
	c.Entry, c.More = &entry, nil
	return c
}

// copyLists copies a module with its lists: lists can be changed, what they hold is shared.
func (m *Module) copyLists() *Module {
	c := *m
	c.Constants, c.Derived = slices.Clone(m.Constants), slices.Clone(m.Derived)
	return &c
}

// cloneRegion copies a region; copies holds the copies of the values that it may use from outside, and gets its own.
// retype gives the type of a copy; it must not change the shape that it is given, which the original has, too.
func cloneRegion(r *Region, copies map[*Value]*Value, retype func(Type) Type) *Region {
	get := func(v *Value) *Value {
		if n := copies[v]; n != nil {
			return n
		}
		return v // a parameter or a constant
	}
	out := &Region{Ops: make([]*Op, 0, len(r.Ops))}
	memory := newCloneMemory(r)
	for _, a := range r.Args {
		copies[a] = out.NewArg(retype(a.Type))
	}
	for _, op := range r.Ops {
		n := memory.copy(op)
		for _, args := range n.Args {
			for i := range args {
				if args[i].Kind == ValueArg {
					args[i].Value = get(args[i].Value)
				}
			}
		}
		for _, region := range op.Regions {
			n.Regions = append(n.Regions, cloneRegion(region, copies, retype))
		}
		for i, v := range op.Results {
			*n.Results[i] = Value{Type: retype(v.Type), Def: n, Index: i}
			copies[v] = n.Results[i]
		}
		out.Ops = append(out.Ops, n)
	}
	for _, v := range r.Results {
		out.Results = append(out.Results, get(v))
	}
	return out
}

// cloneMemory is the memory of the copies of all operations of a region: a plan copies a program for every shape of its
// inputs, and few allocations are faster than many.
type cloneMemory struct {
	ops      []Op
	operands [][]Arg
	args     []Arg
	results  []*Value
	values   []Value
}

func newCloneMemory(r *Region) *cloneMemory {
	operands, args, results := 0, 0, 0
	for _, op := range r.Ops {
		operands += len(op.Args)
		results += len(op.Results)
		for _, list := range op.Args {
			args += len(list)
		}
	}
	return &cloneMemory{make([]Op, len(r.Ops)), make([][]Arg, operands), make([]Arg, args), make([]*Value, results),
		make([]Value, results)}
}

// copy returns an operation like op, with results of no type and without regions.
func (m *cloneMemory) copy(op *Op) *Op {
	n := &take(&m.ops, 1)[0]
	*n = Op{Def: op.Def, Attrs: op.Attrs, Buffer: op.Buffer, Second: op.Second, Args: take(&m.operands, len(op.Args)),
		Results: take(&m.results, len(op.Results))}
	for i, list := range op.Args {
		if len(list) > 0 {
			n.Args[i] = take(&m.args, len(list))
			copy(n.Args[i], list)
		}
	}
	values := take(&m.values, len(op.Results))
	for i := range values {
		n.Results[i] = &values[i]
	}
	return n
}

// take returns the first n elements, which are the caller's: appending to them copies them.
func take[T any](from *[]T, n int) []T {
	taken := (*from)[:n:n]
	*from = (*from)[n:]
	return taken
}
