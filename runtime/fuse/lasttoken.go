package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// sinkLastToken computes only the last row of what is used for nothing but its last row: the end of the last layer,
// where a language model takes the last token. Exporters take it as late as before lm_head. In a program for calls of
// many sequences these are the rows that the call wants.
func sinkLastToken(m *ir.Module) error {
	return ir.Build(func() {
		s := &sinker{rows: map[*ir.Value]*ir.Value{}, same: map[*ir.Value]*ir.Value{}}
		if s.choose(m.Entry.Body); len(s.axis) == 0 {
			return
		}
		var ops []*ir.Op
		s.b = &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
		for _, op := range m.Entry.Body.Ops {
			op.EachArg(func(a *ir.Arg) { a.Value = s.get(a.Value) })
			switch {
			case s.takes(op) && s.pick.index != nil:
				s.same[op.Result()] = s.last(op.Input("x"), takeAxis(op))
			case s.takes(op):
				op.Args[0][0].Value = s.last(op.Input("x"), takeAxis(op))
				ops = append(ops, op)
			case len(op.Results) > 0 && s.sinks(op):
				s.sink(op)
			default:
				ops = append(ops, op)
			}
		}
		m.Entry.Body.Ops = ops
		for i, v := range m.Entry.Body.Results {
			m.Entry.Body.Results[i] = s.get(v)
		}
	})
}

// pick says which rows are taken: those that an input of the program lists, or the last one where index is nil.
type pick struct{ index *ir.Value }

// pickOf tells which rows of an axis of unknown size op takes; false where it does something else.
func pickOf(op *ir.Op) (pick, bool) {
	if op.Def.Name != "take" {
		return pick{}, false
	}
	x := op.Input("x")
	dim := x.Type.Shape[takeAxis(op)]
	if _, fixed := dim.Const(); fixed {
		return pick{}, false
	}
	if a, _ := op.Arg("index"); a.Kind == ir.ValueArg && a.Value.Type.Kind != ir.IntKind {
		return pick{a.Value}, a.Value.Param != "" && a.Value.Type.Rank() == 1
	}
	at := expr(op, "index")
	return pick{}, at.IsConst(-1) || at.Add(ir.Const(1)).Equal(dim)
}

// count returns the number of rows that are taken.
func (p pick) count() *ir.Expr {
	if p.index == nil {
		return ir.Const(1)
	}
	return p.index.Type.Shape[0]
}

func takeAxis(op *ir.Op) int { return axisOf(ir.Attrs[ir.AxisAttrs](op).Axis, op.Input("x").Type) }

// choose finds the last-row selections in r, and the values whose every use needs only these rows of one axis, with
// that axis.
func (s *sinker) choose(r *ir.Region) {
	const none = -1
	s.axis = map[*ir.Value]int{}
	axis, found := map[*ir.Value]int{}, false
	need := func(v *ir.Value, a int) {
		if have, ok := axis[v]; ok && have != a {
			a = none
		}
		axis[v] = a
	}
	for _, v := range r.Results {
		need(v, none)
	}
	for i := len(r.Ops) - 1; i >= 0; i-- {
		op := r.Ops[i]
		if p, ok := pickOf(op); ok && !found {
			s.pick, found = p, true
		}
		if found && s.takes(op) {
			need(op.Input("x"), takeAxis(op))
			if s.pick.index != nil {
				need(s.pick.index, none)
			}
			continue
		}
		var rows *ir.RowSource
		if a, ok := resultAxis(op, axis); ok {
			rows = s.sinkable(op, a)
		}
		for i, args := range op.Args {
			for j, arg := range args {
				if arg.Kind != ir.ValueArg {
					continue
				}
				a := none
				if rows != nil {
					if at, ok := rows.Axis(i, j); ok {
						a = at
					}
				}
				need(arg.Value, a)
			}
		}
		for _, n := range op.Regions {
			ir.EachUse(n, func(v **ir.Value, _ *ir.Op) { need(*v, none) })
		}
	}
	for v, a := range axis {
		if a == none || v.Def == nil || s.sinkable(v.Def, a) == nil {
			continue
		}
		if _, all := resultAxis(v.Def, axis); all {
			s.axis[v] = a
		}
	}
}

// resultAxis returns the axis along which the last row of all used results of op is all that is needed.
func resultAxis(op *ir.Op, axis map[*ir.Value]int) (int, bool) {
	at := -1
	for _, v := range op.Results {
		a, used := axis[v]
		switch {
		case !used:
		case a < 0 || at >= 0 && a != at:
			return 0, false
		default:
			at = a
		}
	}
	return at, at >= 0
}

// sinkable tells what the rows that are taken along an axis of op's results are computed from; nil where op cannot be
// built for these alone.
func (s *sinker) sinkable(op *ir.Op, axis int) *ir.RowSource {
	rows := ir.RowsOf(op, axis)
	if rows == nil || len(rows.Operands) == 0 || rows.Position >= 0 && s.pick.index != nil {
		return nil
	}
	if op.Def.View == ir.ReshapeView && !canReshape(s.few(op.Result().Type, axis)) {
		return nil
	}
	// An operand that has as many rows in some calls only is refused in the others; its last row would not be.
	for _, o := range rows.Operands {
		v := op.Args[o.Operand][o.Arg].Value
		if !v.Type.Shape[o.Axis].Equal(op.Results[0].Type.Shape[axis]) {
			return nil
		}
	}
	return rows
}

// few returns the type that a value of type t has when only the rows that are taken are left along an axis.
func (s *sinker) few(t ir.Type, axis int) ir.Type {
	t.Shape = slices.Clone(t.Shape)
	t.Shape[axis] = s.pick.count()
	return t
}

// sinker rebuilds a module so that operations before a take compute only the rows that it takes.
type sinker struct {
	pick pick
	b    *ir.Builder
	axis map[*ir.Value]int
	rows map[*ir.Value]*ir.Value // for a value, its rows that are taken, with the same number of dims
	same map[*ir.Value]*ir.Value // for the result of a take that has become needless, the value in its place
}

// takes reports whether op takes these rows.
func (s *sinker) takes(op *ir.Op) bool {
	p, ok := pickOf(op)
	return ok && p == s.pick
}

func (s *sinker) get(v *ir.Value) *ir.Value {
	if n := s.same[v]; n != nil {
		return n
	}
	return v
}

// sinks reports whether nothing needs other rows of op's results than those that are taken.
func (s *sinker) sinks(op *ir.Op) bool {
	for _, v := range op.Results {
		if _, ok := s.axis[v]; ok {
			return true
		}
	}
	return false
}

// last returns the rows of v that are taken along an axis: the last one, or those of an index.
func (s *sinker) last(v *ir.Value, axis int) *ir.Value {
	if n := s.rows[v]; n != nil && s.axis[v] == axis {
		return n
	}
	if s.pick.index != nil {
		return s.b.Value("take", &ir.AxisAttrs{Axis: axis}, v, s.pick.index)
	}
	one := s.b.Value("take", &ir.AxisAttrs{Axis: axis}, v, -1)
	return s.b.Value("expand_dims", &ir.AxisAttrs{Axis: axis}, one)
}

// sink appends op, for the rows that are taken alone.
func (s *sinker) sink(op *ir.Op) {
	a := -1
	for _, v := range op.Results {
		if at, ok := s.axis[v]; ok {
			a = at
		}
	}
	rows, n := s.sinkable(op, a), op.Like()
	for _, r := range rows.Operands {
		v := op.Args[r.Operand][r.Arg].Value
		n.Args[r.Operand][r.Arg].Value = s.last(v, r.Axis)
		if p := rows.Position; p >= 0 {
			n.Args[p] = []ir.Arg{s.lastPosition(op.Args[p][0], v, r.Axis)}
		}
	}
	if op.Def.View == ir.ReshapeView {
		s.rows[op.Result()] = likeType(s.b, n.Args[0][0].Value, s.few(op.Result().Type, a))
		return
	}
	for i, v := range s.b.Append(n).Results {
		s.rows[op.Results[i]] = v
	}
}

// lastPosition returns the position of the last row along an axis of v, where position is that of the first row. The
// number of rows is taken from a value that has them all.
func (s *sinker) lastPosition(position ir.Arg, v *ir.Value, axis int) ir.Arg {
	for _, sunk := s.axis[v]; sunk; _, sunk = s.axis[v] {
		o := s.sinkable(v.Def, axis).Operands[0]
		v, axis = v.Def.Args[o.Operand][o.Arg].Value, o.Axis
	}
	count := s.b.Value("sym_size", &ir.SymSizeAttrs{Dim: axis}, v)
	return ir.Use(s.b.Value("subtract_int", nil, s.b.Value("add_int", nil, position, count), 1))
}
