package ragged

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// same builds an operation as it is, on the rows of the call, and checks that its rows are independent.
func (x *maker) same(op *ir.Op, fail func(string)) {
	n, cached := op.Like(), false
	n.EachArg(func(a *ir.Arg) {
		if a.Kind == ir.ValueArg {
			cached = cached || loadOf(a.Value) != nil
			a.Value = x.get(a.Value)
		}
	})
	if cached && op.Def.View != ir.CastView {
		fail("it reads a whole cache")
	}
	n = x.b.Append(n)
	for i, v := range n.Results {
		if !x.gathered && !cached && !x.lone() && !x.sameType(op.Results[i].Type, v.Type) {
			fail("its shape depends on the most tokens of a call")
		}
		x.values[op.Results[i]] = v
	}
	if why := x.checkRows(n); why != "" {
		fail(why)
	}
}

// sameType reports whether two types are equal except for the number of rows.
func (x *maker) sameType(old, made ir.Type) bool {
	rows := func(e *ir.Expr) *ir.Expr { return x.withRows(x.canonical(e), rowCount, ir.Sym(x.rows)) }
	if old.Kind != made.Kind || old.DType != made.DType {
		return false
	}
	if old.Kind == ir.IntKind {
		return rows(old.Int).Equal(made.Int)
	}
	return slices.EqualFunc(old.Shape, made.Shape, func(a, b *ir.Expr) bool { return rows(a).Equal(b) })
}

func (x *maker) withRows(e *ir.Expr, s *ir.Symbol, by *ir.Expr) *ir.Expr {
	return e.Substitute(func(o *ir.Symbol) *ir.Expr {
		if o == s {
			return by
		}
		return nil
	})
}

// rowAxis returns the axis of a tensor that has the rows: -1 where there is none, -2 where its shape mixes rows with
// others. An axis may have several indices for each row, which are then neighbours.
func (x *maker) rowAxis(v *ir.Value) int {
	axis := -1
	if v.Type.Kind != ir.TensorKind {
		return axis
	}
	for i, d := range v.Type.Shape {
		if _, fixed := d.Const(); fixed {
			continue
		}
		if axis >= 0 || !x.countsRows(d) {
			return -2
		}
		axis = i
	}
	return axis
}

// countsRows reports whether a dim is a multiple of the number of rows, or of wanted rows.
func (x *maker) countsRows(d *ir.Expr) bool {
	for _, s := range []*ir.Symbol{x.rows, x.wanted} {
		each, ok := x.withRows(d, s, ir.Const(1)).Const()
		if ok && each > 0 && d.Equal(ir.Sym(s).Mul(ir.Const(each))) {
			return true
		}
	}
	return false
}

// checkRows tells why the rows of an operation of the new program are not independent, "" where they are.
func (x *maker) checkRows(op *ir.Op) string {
	if op.Def.Name == "sym_size" || len(op.Results) == 0 {
		return ""
	}
	rowed := false
	op.EachArg(func(a *ir.Arg) {
		rowed = rowed || a.Kind == ir.ValueArg && x.rowAxis(a.Value) != -1
	})
	for _, v := range op.Results {
		axis := x.rowAxis(v)
		switch {
		case axis == -2 || rowed && axis == -1:
			return "it mixes rows"
		case !rowed && axis >= 0 && op.Def.Name != "full":
			return "it tells rows apart by their number"
		case axis >= 0 && rowed && !x.rowsFollow(op, v, axis):
			return "it is not known which rows it mixes"
		}
	}
	return ""
}

// rowsFollow reports whether the rows of a result along an axis correspond to the rows of the operands that have rows.
func (x *maker) rowsFollow(op *ir.Op, v *ir.Value, axis int) bool {
	if op.Def.Rows == ir.RegroupedRows {
		from := op.Args[0][0].Value
		a := x.rowAxis(from)
		return a >= 0 && from.Type.ElementsBefore(a).Equal(v.Type.ElementsBefore(axis))
	}
	if op.Def.Name == "concatenate" {
		return x.joinsRows(op, v, axis)
	}
	rows := ir.RowsOf(op, axis)
	if rows == nil {
		return false
	}
	ok := true
	for i, args := range op.Args {
		for j, arg := range args {
			if arg.Kind != ir.ValueArg {
				continue
			}
			have := x.rowAxis(arg.Value)
			want, listed := rows.Axis(i, j)
			if !listed {
				want = -1
			}
			ok = ok && have == want && (have < 0 || arg.Value.Type.Shape[have].Equal(v.Type.Shape[axis]))
		}
	}
	return ok
}

// joinsRows reports whether a concatenation joins what its operands have of each row.
func (x *maker) joinsRows(op *ir.Op, v *ir.Value, axis int) bool {
	at, rank := ir.Attrs[ir.AxisAttrs](op).Axis, v.Type.Rank()
	return (at+rank)%rank != axis && !slices.ContainsFunc(op.Args[0], func(a ir.Arg) bool {
		return a.Kind != ir.ValueArg || x.rowAxis(a.Value) != axis ||
			!a.Value.Type.Shape[axis].Equal(v.Type.Shape[axis])
	})
}

// isLastRow reports whether op takes the last row of what has a row for each of the call.
func (x *maker) isLastRow(op *ir.Op) bool {
	if op.Def.Name != "take" && op.Def.Name != "slice" {
		return false
	}
	v := x.values[op.Input("x")]
	if v == nil || x.gathered {
		return false
	}
	axis := x.rowAxis(v)
	if axis < 0 || !v.Type.Shape[axis].Equal(ir.Sym(x.rows)) {
		return false
	}
	last := func(e *ir.Expr) bool {
		return e.IsConst(-1) || e.Add(ir.Const(1)).Equal(ir.Sym(rowCount))
	}
	rank := v.Type.Rank()
	if op.Def.Name == "take" {
		index, _ := op.Arg("index")
		return (ir.Attrs[ir.AxisAttrs](op).Axis+rank)%rank == axis && last(x.expression(index))
	}
	at, _ := op.Arg("axis")
	from, _ := op.Arg("start")
	return at.Kind == ir.IntArg && (int(at.Int)+rank)%rank == axis && last(x.expression(from)) &&
		op.Result().Type.Shape[axis].IsConst(1)
}

// takeWanted builds the rows that the call wants in the place of the last one.
func (x *maker) takeWanted(op *ir.Op, fail func(string)) {
	v := x.values[op.Input("x")]
	axis := x.rowAxis(v)
	if !v.Type.ElementsBefore(axis).IsConst(1) {
		fail("the last row is taken of something else than rows")
	}
	x.gathered = true
	taken := x.take(v, axis)
	if op.Def.Name == "take" {
		taken = x.flat(taken, axis)
	}
	x.values[op.Result()] = taken
}

// take takes the wanted rows along an axis. A draft gives what all of its rows give.
func (x *maker) take(v *ir.Value, axis int) *ir.Value {
	if x.drafts {
		return v
	}
	return x.b.Value("take", &ir.AxisAttrs{Axis: axis}, v, x.tables.wanted)
}

// flat drops the axes of one index before the axis of rows.
func (x *maker) flat(v *ir.Value, axis int) *ir.Value {
	if axis == 0 {
		return v
	}
	shape := []any{-1}
	for _, d := range v.Type.Shape[axis+1:] {
		n, _ := d.Const()
		shape = append(shape, n)
	}
	return x.b.Value("reshape", nil, v, shape)
}

// finish returns logits [wanted, vocab], made from the program's logits.
func (x *maker) finish(v *ir.Value) *ir.Value {
	axis := x.rowAxis(v)
	t := v.Type
	if axis < 0 || axis != t.Rank()-2 || !t.DType.IsFloat() || !t.ElementsBefore(axis).IsConst(1) {
		x.b.Fail("the result %s has no logits for each row", t)
	}
	if !x.gathered {
		v = x.take(v, axis)
	}
	v = x.flat(v, axis)
	if !v.Type.Shape[0].Equal(ir.Sym(x.wanted)) {
		x.b.Fail("the result %s has several logits for each row", t)
	}
	vocab, _ := v.Type.Shape[1].Const()
	x.model.Vocab = int(vocab)
	return v
}
