package ir

import (
	"reflect"
	"slices"
)

// RowSource says which rows of the operands a row of an operation's results is computed from: index i of the axis of
// the results needs index i of the operands listed. All other operands are the same for every row.
type RowSource struct {
	Operands []RowOperand
	// Position is the number of the int operand that is the position of the first row, or -1 where there is none.
	// Where rows in front are left out, it grows by their number; rows at the end may not be left out.
	Position int
}

// RowOperand is an argument that has the rows: argument Arg of operand Operand, along Axis.
type RowOperand struct{ Operand, Arg, Axis int }

// Axis returns the axis of an argument that has the rows; false where it is the same for all rows.
func (r *RowSource) Axis(operand, arg int) (int, bool) {
	for _, o := range r.Operands {
		if o.Operand == operand && o.Arg == arg {
			return o.Axis, true
		}
	}
	return 0, false
}

// RowsOf tells which rows of the operands the rows along an axis of op's results are computed from, by the fact Rows of
// the op table. It gives nil where the rows are not independent, or not known to be. All results of op have the axis.
func RowsOf(op *Op, axis int) *RowSource {
	t := op.Results[0].Type
	if t.Kind != TensorKind || axis < 0 || axis >= t.Rank() {
		return nil
	}
	out := &RowSource{Position: -1}
	from := 0 // the axis of the first operand
	switch op.Def.Rows {
	case Elementwise:
		return out.aligned(op, axis)
	case LastAxis:
		if axis == t.Rank()-1 || !sharesMatrices(op) {
			return nil
		}
		return out.aligned(op, axis)
	case BesideAxis:
		at, known := workAxis(op)
		if !known || at == axis {
			return nil
		}
		from = axis
	case PermutedRows:
		from = nonNegative(Attrs[TransposeAttrs](op).Perm[axis], t.Rank())
	case RegroupedRows:
		if from = sameRows(t, axis, op.Args[0][0].Value.Type); from < 0 {
			return nil
		}
	case LookedUpRows:
		if from = axis; axis >= op.Args[0][0].Value.Type.Rank() {
			return nil
		}
	case QueryRows:
		if axis != 2 {
			return nil
		}
		from = axis
		out.Position = slices.IndexFunc(op.Def.Operands, func(o Operand) bool { return o.Name == "position" })
	case TabledRows:
		if axis != t.Rank()-2 {
			return nil
		}
		out.Operands = []RowOperand{{Axis: axis}}
		for i, o := range op.Def.Operands {
			if o.Name == "positions" || o.Name == "sequences" {
				out.Operands = append(out.Operands, RowOperand{Operand: i})
			}
		}
		return out
	default:
		return nil
	}
	out.Operands = []RowOperand{{Axis: from}}
	return out
}

// aligned adds the operands that have rows along an axis of the result which all operands but shared ones are
// broadcast to.
func (r *RowSource) aligned(op *Op, axis int) *RowSource {
	rank := op.Results[0].Type.Rank()
	for i, o := range op.Def.Operands {
		if o.Shared {
			continue
		}
		for j, a := range op.Args[i] {
			if a.Value == nil || a.Value.Type.Kind != TensorKind {
				continue
			}
			t := a.Value.Type
			if at := axis - (rank - t.Rank()); at >= 0 && !t.Shape[at].IsConst(1) {
				r.Operands = append(r.Operands, RowOperand{i, j, at})
			}
		}
	}
	return r
}

// sharesMatrices reports whether what op multiplies all rows with is one matrix, not one for each index of leading
// axes, and the rows are in the same place in the first operand as in the results.
func sharesMatrices(op *Op) bool {
	if op.Args[0][0].Value.Type.Rank() != op.Results[0].Type.Rank() {
		return false
	}
	for i, o := range op.Def.Operands {
		if o.isMatrix() && len(op.Args[i]) > 0 && op.Args[i][0].Value.Type.Rank() > 2 {
			return false
		}
	}
	return true
}

// isMatrix tells a shared operand that may have leading axes, which rows would be broadcast with.
func (o *Operand) isMatrix() bool { return o.Shared && o.Kind == TensorOperand }

// CarriesRows reports whether op computes its result row by row, whatever leading axes there are, when exactly the
// operands that rowed tells have the axis of rows: its second last, [..., rows, n]. Such an operation can be had for
// values with that axis or without it, for all its rows or one. It tells how many operands have rows.
func CarriesRows(op *Op, rowed func(*Value) bool) (count int, ok bool) {
	if op.Def.Rows != Elementwise && op.Def.Rows != LastAxis {
		return 0, false
	}
	for i, o := range op.Def.Operands {
		for _, a := range op.Args[i] {
			switch {
			case a.Value == nil:
			case rowed(a.Value):
				if o.Shared {
					return 0, false
				}
				count++
			case o.Shared:
				if o.isMatrix() && a.Value.Type.Rank() > 2 {
					return 0, false
				}
			case i == 0 && op.Def.Rows == LastAxis || a.Value.Type.Rank() > 1:
				return 0, false // its axes would no longer stand below those of the rows
			}
		}
	}
	return count, count > 0
}

// workAxis returns the axis that an operation works along: an int operand or an attribute of that name.
func workAxis(op *Op) (axis int, known bool) {
	rank := op.Args[0][0].Value.Type.Rank()
	for i, o := range op.Def.Operands {
		if o.Name != "axis" {
			continue
		}
		a := op.Args[i][0]
		if a.Kind == IntArg {
			return nonNegative(int(a.Int), rank), true
		}
		v, known := a.Value.Type.Int.Const()
		return nonNegative(int(v), rank), known
	}
	return nonNegative(int(reflect.ValueOf(op.Attrs).Elem().FieldByName("Axis").Int()), rank), true
}

func nonNegative(axis, rank int) int {
	if axis < 0 {
		axis += rank
	}
	return axis
}

// sameRows returns the axis of from that has the same rows as axis of to, where both types have the same elements in
// the same order; -1 where there is none.
func sameRows(to Type, axis int, from Type) int {
	before := to.ElementsBefore(axis)
	for i, d := range from.Shape {
		if d.Equal(to.Shape[axis]) && from.ElementsBefore(i).Equal(before) {
			return i
		}
	}
	return -1
}
