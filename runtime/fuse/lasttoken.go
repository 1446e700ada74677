package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// sinkLastToken computes only the last row of what is used for nothing but its last row: the end of the
// last layer, where a language model takes the last token. Exporters take it as late as before lm_head.
func sinkLastToken(m *ir.Module) error {
	return ir.Build(func() {
		s := &sinker{axis: lastRows(m.Entry.Body), rows: map[*ir.Value]*ir.Value{}}
		if len(s.axis) == 0 {
			return
		}
		var ops []*ir.Op
		s.b = &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
		for _, op := range m.Entry.Body.Ops {
			switch {
			case isLastTake(op):
				op.Args[0][0].Value = s.last(op.Input("x"), takeAxis(op))
				ops = append(ops, op)
			case len(op.Results) > 0 && s.sinks(op):
				s.sink(op)
			default:
				ops = append(ops, op)
			}
		}
		m.Entry.Body.Ops = ops
	})
}

// isLastTake reports whether op takes the last index of an axis of unknown size.
func isLastTake(op *ir.Op) bool {
	if op.Def.Name != "take" {
		return false
	}
	x := op.Input("x")
	if a, _ := op.Arg("index"); a.Kind == ir.ValueArg && a.Value.Type.Kind != ir.IntKind {
		return false
	}
	dim := x.Type.Shape[takeAxis(op)]
	if _, fixed := dim.Const(); fixed {
		return false
	}
	at := expr(op, "index")
	return at.IsConst(-1) || at.Add(ir.Const(1)).Equal(dim)
}

func takeAxis(op *ir.Op) int { return axisOf(ir.Attrs[ir.AxisAttrs](op).Axis, op.Input("x").Type) }

// lastRows finds the values of r of which every use needs the last row along an axis only, with the axis.
func lastRows(r *ir.Region) map[*ir.Value]int {
	const none = -1
	axis := map[*ir.Value]int{}
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
		if isLastTake(op) {
			need(op.Input("x"), takeAxis(op))
			continue
		}
		var rows *ir.RowSource
		if a, ok := resultAxis(op, axis); ok {
			rows = sinkable(op, a)
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
	out := map[*ir.Value]int{}
	for v, a := range axis {
		if a == none || v.Def == nil || sinkable(v.Def, a) == nil {
			continue
		}
		if _, all := resultAxis(v.Def, axis); all {
			out[v] = a
		}
	}
	return out
}

// resultAxis is the axis along which the last row of all used results of op is all that is needed.
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

// sinkable tells what the last row along an axis of op's results is computed from; nil where op cannot be built for
// that row alone.
func sinkable(op *ir.Op, axis int) *ir.RowSource {
	rows := ir.RowsOf(op, axis)
	if rows == nil || len(rows.Operands) == 0 {
		return nil
	}
	if op.Def.View == ir.ReshapeView && !canReshape(oneRow(op.Result().Type, axis)) {
		return nil
	}
	return rows
}

// oneRow is t with one row along an axis.
func oneRow(t ir.Type, axis int) ir.Type {
	t.Shape = slices.Clone(t.Shape)
	t.Shape[axis] = ir.Const(1)
	return t
}

// sinker rebuilds operations on last rows.
type sinker struct {
	b    *ir.Builder
	axis map[*ir.Value]int
	rows map[*ir.Value]*ir.Value // the last row of a value, its axis kept
}

// sinks reports whether only last rows of op's results are needed.
func (s *sinker) sinks(op *ir.Op) bool {
	for _, v := range op.Results {
		if _, ok := s.axis[v]; ok {
			return true
		}
	}
	return false
}

// last is the last row of v along an axis.
func (s *sinker) last(v *ir.Value, axis int) *ir.Value {
	if n := s.rows[v]; n != nil && s.axis[v] == axis {
		return n
	}
	one := s.b.Value("take", &ir.AxisAttrs{Axis: axis}, v, -1)
	return s.b.Value("expand_dims", &ir.AxisAttrs{Axis: axis}, one)
}

// sink builds op for the last row.
func (s *sinker) sink(op *ir.Op) {
	a := -1
	for _, v := range op.Results {
		if at, ok := s.axis[v]; ok {
			a = at
		}
	}
	rows, n := sinkable(op, a), op.Like()
	for _, r := range rows.Operands {
		v := op.Args[r.Operand][r.Arg].Value
		n.Args[r.Operand][r.Arg].Value = s.last(v, r.Axis)
		if p := rows.Position; p >= 0 {
			n.Args[p] = []ir.Arg{s.lastPosition(op.Args[p][0], v, r.Axis)}
		}
	}
	if op.Def.View == ir.ReshapeView {
		s.rows[op.Result()] = likeType(s.b, n.Args[0][0].Value, oneRow(op.Result().Type, a))
		return
	}
	for i, v := range s.b.Append(n).Results {
		s.rows[op.Results[i]] = v
	}
}

// lastPosition is that of the last of the rows along an axis of v, the first of which stands at a position. The rows
// are counted where they are still computed.
func (s *sinker) lastPosition(position ir.Arg, v *ir.Value, axis int) ir.Arg {
	for _, sunk := s.axis[v]; sunk; _, sunk = s.axis[v] {
		o := sinkable(v.Def, axis).Operands[0]
		v, axis = v.Def.Args[o.Operand][o.Arg].Value, o.Axis
	}
	count := s.b.Value("sym_size", &ir.SymSizeAttrs{Dim: axis}, v)
	return ir.Use(s.b.Value("subtract_int", nil, s.b.Value("add_int", nil, position, count), 1))
}
