package session

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// AllRows is the reverse of [LastRow]: it gives a program whose forward has logits for every position, [1, S, vocab]
// or [S, vocab]. That is m itself, or m without the take of the last position, where what computes logits of that
// treats every row by itself. It is false where m is of neither kind. m is not changed; the result shares operations
// with it.
func AllRows(m *ir.Module) (*ir.Module, bool) {
	f := m.Entry
	if len(f.Body.Results) != 1 || len(f.Outputs) != 1 {
		return nil, false
	}
	logits := f.Body.Results[0]
	rank := logits.Type.Rank()
	if logits.Type.Kind != ir.TensorKind || !logits.Type.DType.IsFloat() {
		return nil, false
	}
	if rank > 1 && hasRows(logits.Type, rank-2) {
		return m, true
	}
	entry, body := *f, *f.Body
	body.Ops = nil
	all := map[*ir.Value]*ir.Value{} // with every row, by the value with the last one
	axis := 0
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Insert: func(op *ir.Op) { body.Ops = append(body.Ops, op) }}
		used := beforeResult(f.Body)
		for _, op := range f.Body.Ops {
			switch {
			case used[op] && isLastRow(op) && len(all) == 0:
				axis = op.Input("x").Type.Rank() - 2
				all[op.Result()] = op.Input("x")
			case used[op] && len(op.Results) == 1 && eachRow(op, all):
				n := op.Like()
				n.EachArg(func(a *ir.Arg) {
					if v := all[a.Value]; v != nil {
						a.Value = v
					}
				})
				all[op.Result()] = b.Append(n).Result()
			default:
				body.Ops = append(body.Ops, op)
			}
		}
	})
	rows := all[logits]
	if err != nil || rows == nil || !isRowsOf(rows.Type, logits.Type, axis) {
		return nil, false
	}
	body.Results, entry.Outputs = []*ir.Value{rows}, []ir.Type{rows.Type}
	entry.Body = &body
	out := *m
	out.Entry = &entry
	if ir.Verify(&out) != nil { // a row on its own is used for something else than logits
		return nil, false
	}
	return &out, true
}

// hasRows reports whether an axis is as long as the prompt.
func hasRows(t ir.Type, axis int) bool {
	_, fixed := t.Shape[axis].Const()
	return !fixed
}

// isRowsOf reports whether t is row with an axis of the prompt's length put in.
func isRowsOf(t, row ir.Type, axis int) bool {
	if t.Rank() != row.Rank()+1 || axis != t.Rank()-2 || t.DType != row.DType || !hasRows(t, axis) {
		return false
	}
	shape := slices.Delete(slices.Clone(t.Shape), axis, axis+1)
	return slices.EqualFunc(shape, row.Shape, func(a, b *ir.Expr) bool { return a.Equal(b) })
}

// beforeResult finds the operations that the results of r are computed of, its regions aside.
func beforeResult(r *ir.Region) map[*ir.Op]bool {
	used := map[*ir.Op]bool{}
	need := map[*ir.Value]bool{}
	for _, v := range r.Results {
		need[v] = true
	}
	for _, op := range slices.Backward(r.Ops) {
		if !slices.ContainsFunc(op.Results, func(v *ir.Value) bool { return need[v] }) {
			continue
		}
		used[op] = true
		op.EachArg(func(a *ir.Arg) { need[a.Value] = true })
	}
	return used
}

// isLastRow reports whether op takes the last row of a prompt's: x[..., -1, :].
func isLastRow(op *ir.Op) bool {
	if op.Def.Name != "take" {
		return false
	}
	index, _ := op.Arg("index")
	x := op.Input("x").Type
	axis := x.Rank() - 2
	at := ir.Attrs[ir.AxisAttrs](op).Axis
	return index.Kind == ir.IntArg && index.Int == -1 && axis >= 0 && (at == axis || at == -2) && hasRows(x, axis)
}

// eachRow reports whether op computes the row of its result of rows in all, and of what broadcasts along them.
func eachRow(op *ir.Op, all map[*ir.Value]*ir.Value) bool {
	_, ok := ir.CarriesRows(op, func(v *ir.Value) bool { return all[v] != nil })
	return ok
}
