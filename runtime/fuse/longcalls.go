package fuse

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// LongCalls bounds how far the pass long-calls goes beyond the number of rows that a program declares for a call.
type LongCalls struct {
	// Rows is the largest number of rows of a call.
	Rows int
	// Room is the number of bytes by which the state may grow.
	Room int64
	// Precision says how many bytes an element of the state has.
	Precision eval.Precision
}

// ringMultiple divides the number of rows of a ring that was made longer.
const ringMultiple = 64

// lengthenCalls makes a program of one sequence take up to o.Rows rows in a call, where it declares fewer. The program
// declares a bound for two reasons: the types of values follow from it, and the ring buffer of a sliding window must
// hold the rows of a call in addition to the window. So the pass raises the bound and gives the rings more rows.
//
// A program that may compute something else with longer calls stays as it is. These are programs with a buffer that is
// neither a cache of attention nor recurrent state, with control flow, or with a value whose type follows from the
// declared bound.
func lengthenCalls(m *ir.Module, o LongCalls) error {
	c := newCallBounds(m)
	if c == nil {
		return nil
	}
	for rows := min(o.Rows, c.context); rows > c.declared; rows /= 2 {
		if c.growth(rows, o.Precision) > o.Room {
			continue
		}
		if longer := c.lengthened(m, rows); longer != nil {
			*m = *longer
		}
		return nil
	}
	return nil
}

// CallRows returns the largest number of rows of a call of a language model's forward(tokens i64[1, S], input_pos
// i64[S], …): the bound of S, or 0 where the program does not have that form.
func CallRows(m *ir.Module) int {
	most := int64(ir.Unbounded)
	for _, s := range rowSymbols(m.Entry) {
		most = min(most, s.Hi)
	}
	if most < 1 || most >= 1<<31 {
		return 0
	}
	return int(most)
}

// rowSymbols returns the symbols of the number of rows of forward(tokens i64[1, S], input_pos i64[S], …): that of the
// first input and that of the second, which may be the same. There are none where an input has another dynamic dim.
func rowSymbols(f *ir.Func) []*ir.Symbol {
	if len(f.Params) < 2 || f.Params[0].Type.Rank() != 2 || f.Params[1].Type.Rank() != 1 {
		return nil
	}
	tokens, ok := f.Params[0].Type.Shape[1].Symbol()
	positions, ok2 := f.Params[1].Type.Shape[0].Symbol()
	if !ok || !ok2 || !f.Params[0].Type.Shape[0].IsConst(1) {
		return nil
	}
	for _, p := range f.Params[2:] {
		for _, d := range p.Type.Shape {
			if _, fixed := d.Const(); !fixed {
				return nil
			}
		}
	}
	return []*ir.Symbol{tokens, positions}
}

// callBounds is what bounds the number of rows of a call.
type callBounds struct {
	rows     []*ir.Symbol // the number of rows, as tokens and positions have it
	declared int          // the rows that a call may have: the bound of rows, or what the rings have room for
	context  int          // the rows of the smallest cache that holds all positions
	rings    map[*ir.Buffer]*callRing
}

// callRing is a ring buffer that attention with a sliding window reads.
type callRing struct {
	slots  int64  // its rows
	window int64  // the largest window
	start  *ir.Op // the remainder of a position by the number of rows, at which the ring is written
}

// newCallBounds finds what bounds the calls of a fused program; nil where that is not known.
func newCallBounds(m *ir.Module) *callBounds {
	c := &callBounds{rows: rowSymbols(m.Entry), declared: CallRows(m), context: 1 << 30,
		rings: map[*ir.Buffer]*callRing{}}
	if c.declared == 0 {
		return nil
	}
	for _, op := range m.Entry.Body.Ops {
		if op.Def.Name == "buffer_ring_update" && !c.noteRing(op) {
			return nil
		}
	}
	for _, op := range m.Entry.Body.Ops {
		if len(op.Regions) > 0 || !c.note(op) {
			return nil
		}
	}
	for _, v := range m.Entry.Body.Results {
		if def(v, "load") != nil {
			return nil
		}
	}
	uses := ir.CountUses(m.Entry.Body)
	writes := map[*ir.Value]int{}
	for _, r := range c.rings {
		if r.window == 0 {
			return nil
		}
		c.declared = min(c.declared, int(r.slots-r.window)+1)
		writes[r.start.Result()]++
	}
	for start, n := range writes {
		if uses[start] != n {
			return nil // the remainder has another use
		}
	}
	return c
}

// note takes an operation into account. It returns false where a call of more rows might compute something else.
func (c *callBounds) note(op *ir.Op) bool {
	known := true
	op.EachArg(func(a *ir.Arg) {
		if a.Kind == ir.ValueArg && def(a.Value, "load") != nil && op.Def.Name != "cached_attention" {
			known = false
		}
	})
	switch op.Def.Name {
	case "load", "buffer_conv", "buffer_delta_rule", "buffer_ring_update":
		return known
	case "buffer_slice_update":
		if !writesRows(op) {
			return false
		}
		slots, fixed := op.Buffer.Type.Shape[2].Const()
		c.context = min(c.context, int(slots))
		return known && fixed
	case "cached_attention":
		return c.noteAttention(op)
	}
	return known && op.Buffer == nil
}

// noteAttention takes the window of attention over a cache into account. It returns false where a ring is read without
// a window, or keys and values are no caches.
func (c *callBounds) noteAttention(op *ir.Op) bool {
	window := int64(ir.Attrs[ir.CachedAttentionAttrs](op).Window)
	for _, operand := range []string{"k", "v"} {
		load := def(op.Input(operand), "load")
		if load == nil {
			return false
		}
		if r := c.rings[load.Buffer]; r != nil {
			if window == 0 {
				return false
			}
			r.window = max(r.window, window)
		}
	}
	return def(op.Input("q"), "load") == nil
}

// noteRing takes the write of a ring into account. It returns false where the place of the write is not a position's
// remainder by the rows of the ring, or the ring is written twice.
func (c *callBounds) noteRing(op *ir.Op) bool {
	slots, fixed := op.Buffer.Type.Shape[2].Const()
	start, _ := op.Arg("start")
	mod := def(start.Value, "mod_int")
	if !fixed || mod == nil || c.rings[op.Buffer] != nil {
		return false
	}
	if size, ok := literal(mod, "b"); !ok || size != slots {
		return false
	}
	c.rings[op.Buffer] = &callRing{slots: slots, start: mod}
	return true
}

// ringRows returns the number of rows of each ring for calls of so many rows. Rings that are written at one remainder
// have the same number.
func (c *callBounds) ringRows(rows int) map[*ir.Op]int64 {
	out := map[*ir.Op]int64{}
	for _, r := range c.rings {
		n := (r.window + int64(rows) - 1 + ringMultiple - 1) / ringMultiple * ringMultiple
		out[r.start] = max(out[r.start], n, r.slots)
	}
	return out
}

// growth returns the number of bytes by which rings for calls of so many rows are larger.
func (c *callBounds) growth(rows int, p eval.Precision) int64 {
	sizes, more := c.ringRows(rows), int64(0)
	for b, r := range c.rings {
		row := int64(eval.StateDType(b.Type.DType, p).Size())
		for i, d := range b.Type.Shape {
			if n, _ := d.Const(); i != 2 {
				row *= n
			}
		}
		more += row * (sizes[r.start] - r.slots)
	}
	return more
}

// lengthened returns a copy of the program for calls of up to rows rows; nil where the type of a value would follow
// from the bound that the program declares.
func (c *callBounds) lengthened(m *ir.Module, rows int) *ir.Module {
	symbols := map[*ir.Symbol]*ir.Expr{}
	for _, s := range c.rows {
		if symbols[s] == nil {
			symbols[s] = ir.Sym(&ir.Symbol{Name: s.Name, Lo: s.Lo, Hi: int64(rows)})
		}
	}
	longer := m.Substitute(func(s *ir.Symbol) *ir.Expr { return symbols[s] })
	sizes, buffers := c.ringRows(rows), map[*ir.Buffer]*ir.Buffer{}
	longer.Buffers = nil
	for _, b := range m.Buffers {
		buffers[b] = b
		if r := c.rings[b]; r != nil {
			larger := *b
			larger.Type.Shape = append([]*ir.Expr{}, b.Type.Shape...)
			larger.Type.Shape[2] = ir.Const(sizes[r.start])
			buffers[b] = &larger
		}
		longer.Buffers = append(longer.Buffers, buffers[b])
	}
	for i, op := range longer.Entry.Body.Ops {
		if op.Buffer != nil {
			op.Buffer = buffers[op.Buffer]
		}
		changes := op.Def.Name == "load"
		if n, ok := sizes[m.Entry.Body.Ops[i]]; ok {
			op.Operand("b")[0].Int, changes = n, true
		}
		if !sameTypes(op, changes) {
			return nil
		}
	}
	return longer
}

// sameTypes infers the types of an operation's results again and reports whether they are as they were. changes says
// that they may differ, because the operation reads a ring.
func sameTypes(op *ir.Op, changes bool) bool {
	before := make([]ir.Type, len(op.Results))
	for i, v := range op.Results {
		before[i] = v.Type
	}
	if ir.Infer(op) != nil {
		return false
	}
	for i, v := range op.Results {
		if !changes && !v.Type.Equal(before[i]) {
			return false
		}
	}
	return true
}
