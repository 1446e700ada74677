package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// takenLate moves the choice of the rows that a call wants behind the last layer, where a call wants as many rows as it
// has. The runtime's table of passes has moved it the other way, to the rows of the last layer's queries, which saves
// work where a call wants few of many rows. With as many rows it saves none. Then the last layer should look like the
// others, whose rotations and writes are one kernel.
func takenLate(g *graph) {
	t := &laterTakes{graph: g, rows: map[*ir.Value]takenRowsOf{}, end: map[*ir.Op]bool{}}
	for _, v := range g.m.Entry.Body.Results {
		t.findEnd(v)
	}
	var takes []*ir.Op
	g.each(func(op *ir.Op) {
		if t.takes(op) {
			takes = append(takes, op)
			t.rows[op.Result()] = takenRowsOf{op.Input("x"), axisOfTake(op), op}
		}
	})
	switch {
	case len(takes) == 0:
	case elements(takes[0].Input("index")) == 1:
		// The only row is what is taken of it. The last take stays, since an engine checks its index.
		last := takes[len(takes)-1]
		for _, op := range takes {
			if op != last && op.Input("index") == last.Input("index") {
				g.use(op.Result(), op.Input("x"))
			}
		}
	default:
		t.moveAll()
	}
}

// laterTakes moves takes behind the operations that read their results.
type laterTakes struct {
	*graph
	// rows says of a value what it is the taken rows of.
	rows map[*ir.Value]takenRowsOf
	// end are the operations from the last normalization on, which stay behind the takes.
	end map[*ir.Op]bool
}

// takenRowsOf says that a value has the rows of another one that an operation takes, along an axis.
type takenRowsOf struct {
	of   *ir.Value
	axis int
	take *ir.Op
}

// findEnd finds the operations that lead from the last normalization to a result.
func (t *laterTakes) findEnd(v *ir.Value) {
	if op := v.Def; op != nil && !t.end[op] {
		t.end[op] = true
		if op.Def.Name != "rms_norm" {
			eachUse(op, func(v **ir.Value) { t.findEnd(*v) })
		}
	}
}

// takes reports whether op takes as many rows as there are, by an input of the call.
func (t *laterTakes) takes(op *ir.Op) bool {
	if op.Def.Name != "take" {
		return false
	}
	index, _ := op.Arg("index")
	x := shape(op.Input("x"))
	return index.Kind == ir.ValueArg && index.Value.Param != "" && index.Value.Type.Rank() == 1 && len(x) > 0 &&
		slices.Equal(shape(op.Result()), x)
}

func axisOfTake(op *ir.Op) int {
	rank := op.Input("x").Type.Rank()
	return (ir.Attrs[ir.AxisAttrs](op).Axis + rank) % rank
}

// moveAll makes operations on taken rows ones on all rows, and takes of their results what others read.
func (t *laterTakes) moveAll() {
	moved := map[*ir.Op]bool{}
	t.each(func(op *ir.Op) {
		if !t.end[op] && t.move(op) {
			moved[op] = true
		}
	})
	t.each(func(op *ir.Op) {
		if !moved[op] {
			return
		}
		for _, v := range op.Results {
			if slices.ContainsFunc(t.readers[v], func(r *ir.Op) bool { return !moved[r] }) {
				of := t.rows[v]
				b := t.builder(op)
				t.use(v, b.Value("take", &ir.AxisAttrs{Axis: of.axis}, of.of, of.take.Input("index")))
			}
		}
	})
}

// move makes op of all rows, if all of its operands that have rows are taken. It reports whether it did.
func (t *laterTakes) move(op *ir.Op) bool {
	if len(op.Results) == 0 || op.Def.Effect != ir.Pure || op.Results[0].Type.Kind != ir.TensorKind {
		return false
	}
	for axis := range op.Results[0].Type.Rank() {
		rows := ir.RowsOf(op, axis)
		if rows == nil || len(rows.Operands) == 0 || rows.Position >= 0 {
			continue
		}
		take := t.rows[op.Args[rows.Operands[0].Operand][rows.Operands[0].Arg].Value].take
		if take == nil || slices.ContainsFunc(rows.Operands, func(o ir.RowOperand) bool {
			of := t.rows[op.Args[o.Operand][o.Arg].Value]
			return of.take == nil || of.axis != o.Axis || of.take.Input("index") != take.Input("index")
		}) {
			continue
		}
		n := op.Like()
		for _, o := range rows.Operands {
			n.Args[o.Operand][o.Arg].Value = t.rows[op.Args[o.Operand][o.Arg].Value].of
		}
		for i, v := range t.builder(op).Append(n).Results {
			t.rows[op.Results[i]] = takenRowsOf{v, axis, take}
		}
		return true
	}
	return false
}
