package passes

import (
	"slices"
	"strconv"

	"github.com/etc-ml/etc/ir"
)

// eliminateDead removes operations whose results nothing uses and that write no buffer, results of ifs and
// carries of scans that nothing uses, and constants that nothing uses.
func eliminateDead(m *ir.Module, _ *Options) error {
	for _, f := range m.Entries() {
		for sweep(f.Body, ir.CountUses(f.Body)) {
		}
	}
	uses := m.CountUses()
	m.Constants = slices.DeleteFunc(m.Constants, func(c *ir.Constant) bool { return uses[c.Value] == 0 })
	return nil
}

// sweep removes what is dead and reports whether there was anything.
func sweep(r *ir.Region, uses map[*ir.Value]int) bool {
	changed := false
	r.Ops = slices.DeleteFunc(r.Ops, func(op *ir.Op) bool {
		for _, n := range op.Regions {
			changed = sweep(n, uses) || changed
		}
		switch op.Def.Name {
		case "if":
			changed = dropResults(op, uses) || changed
		case "scan":
			changed = dropCarries(op, uses) || changed
		}
		if op.Writes() || slices.ContainsFunc(op.Results, func(v *ir.Value) bool { return uses[v] > 0 }) {
			return false
		}
		changed = true
		return true
	})
	return changed
}

// dropResults removes the results of an if that nothing uses.
func dropResults(op *ir.Op, uses map[*ir.Value]int) bool {
	changed := false
	for i := len(op.Results) - 1; i >= 0; i-- {
		if uses[op.Results[i]] > 0 {
			continue
		}
		op.Results = slices.Delete(op.Results, i, i+1)
		for _, n := range op.Regions {
			n.Results = slices.Delete(n.Results, i, i+1)
		}
		changed = true
	}
	renumber(op.Results)
	return changed
}

func renumber(values []*ir.Value) {
	for i, v := range values {
		v.Index = i
	}
}

// dropCarries removes the carries of a scan whose last value nothing uses and that no step reads.
func dropCarries(op *ir.Op, uses map[*ir.Value]int) bool {
	body, carry := op.Regions[0], op.Args[1]
	outputs, originals := len(op.Results)-len(carry), len(op.Args[0])
	changed := false
	for i := len(carry) - 1; i >= 0; i-- {
		result, arg, next := outputs+i, originals+i, body.Results[outputs+i]
		if uses[op.Results[result]] > 0 || next != body.Args[arg] && uses[body.Args[arg]] > 0 ||
			next == body.Args[arg] && read(body, next, result) {
			continue
		}
		op.Args[1] = slices.Delete(op.Args[1], i, i+1)
		op.Results = slices.Delete(op.Results, result, result+1)
		body.Results = slices.Delete(body.Results, result, result+1)
		body.Args = slices.Delete(body.Args, arg, arg+1)
		changed = true
	}
	renumber(op.Results)
	renumber(body.Args)
	return changed
}

// read reports whether an operation of r uses v, or another of its results than number but is v.
func read(r *ir.Region, v *ir.Value, but int) bool {
	for i, result := range r.Results {
		if result == v && i != but {
			return true
		}
	}
	return ir.CountUses(&ir.Region{Ops: r.Ops})[v] > 0
}

// eliminateCommon merges pure operations with equal arguments and attributes, and ints with equal
// expressions: the size of a dim is the same whatever it is read from. An operation in a region is merged
// with one before it in that region or in one around it; an int that is constant becomes a literal.
func eliminateCommon(m *ir.Module, _ *Options) error {
	ids := map[*ir.Value]int{}
	id := func(v *ir.Value) int {
		n, ok := ids[v]
		if !ok {
			n = len(ids)
			ids[v] = n
		}
		return n
	}
	replaced := map[*ir.Value]*ir.Value{}
	var walk func(r *ir.Region, outer *scope)
	walk = func(r *ir.Region, outer *scope) {
		known := &scope{map[string]*ir.Op{}, outer}
		replace := func(v *ir.Value) *ir.Value {
			if n := replaced[v]; n != nil {
				return n
			}
			return v
		}
		r.Ops = slices.DeleteFunc(r.Ops, func(op *ir.Op) bool {
			op.EachArg(func(a *ir.Arg) { a.Value = replace(a.Value) })
			literalInts(op)
			for _, n := range op.Regions {
				walk(n, known)
			}
			if op.Def.Effect != ir.Pure || len(op.Results) == 0 {
				return false
			}
			key := opKey(op, id)
			if t := op.Results[0].Type; t.Kind == ir.IntKind {
				key = "int " + t.Int.Key()
			}
			if first := known.find(key); first != nil {
				for i, v := range op.Results {
					replaced[v] = first.Results[i]
				}
				return true
			}
			known.ops[key] = op
			return false
		})
		for i, v := range r.Results {
			r.Results[i] = replace(v)
		}
	}
	for _, f := range m.Entries() {
		walk(f.Body, nil)
		// Symbols of merged operations (item_int) live on in types until they are derived again.
		if err := retype(f.Body); err != nil {
			return err
		}
	}
	return nil
}

// literalInts replaces int arguments whose value is a constant by literals, where the operand takes them.
func literalInts(op *ir.Op) {
	for i, o := range op.Def.Operands {
		if o.Kind != ir.IntOperand && o.Kind != ir.IntsOperand && o.Kind != ir.AnyOperand {
			continue
		}
		for j, a := range op.Args[i] {
			if a.Value == nil || a.Value.Type.Kind != ir.IntKind {
				continue
			}
			if v, ok := a.Value.Type.Int.Const(); ok {
				op.Args[i][j] = ir.Int(v)
			}
		}
	}
}

// scope has the operations of a region by key, and those that its operations may refer to outside of it.
type scope struct {
	ops   map[string]*ir.Op
	outer *scope
}

// find gives the operation of a key in the region or in one around it, or nil.
func (s *scope) find(key string) *ir.Op {
	for ; s != nil; s = s.outer {
		if op := s.ops[key]; op != nil {
			return op
		}
	}
	return nil
}

// opKey is equal for operations that compute the same.
func opKey(op *ir.Op, id func(*ir.Value) int) string {
	b := append(make([]byte, 0, 128), op.Def.Name...)
	for _, args := range op.Args {
		b = append(b, '|')
		for _, a := range args {
			switch a.Kind {
			case ir.IntArg:
				b = strconv.AppendInt(append(b, 'i'), a.Int, 10)
			case ir.FloatArg:
				b = strconv.AppendFloat(append(b, 'f'), a.Float, 'x', -1, 64)
			default:
				b = strconv.AppendInt(append(b, 'v'), int64(id(a.Value)), 10)
			}
			b = append(b, ',')
		}
	}
	if op.Attrs != nil {
		b = append(b, ir.FormatAttrs(op)...)
	}
	return string(b)
}
