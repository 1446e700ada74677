package fuse

import (
	"math"

	"github.com/etc-ml/etc/ir"
)

// fuseAttention makes cached_attention of sdpa over caches that hold every position, or the last ones in
// a ring; and buffer_ring_update of the two updates that a write around the end of a ring consists of.
func fuseAttention(m *ir.Module) error {
	return ir.Build(func() {
		r, e := m.Entry.Body, newEdit(m)
		dropSelfStores(r, e)
		buffers := buffersOf(r)
		rings := map[*ir.Buffer]*ring{}
		for b, u := range buffers {
			if w := matchRing(b, u, e); w != nil {
				rings[b] = w
			}
		}
		masks := map[*ir.Value]*windowMask{}
		for _, op := range r.Ops {
			if op.Def.Name != "sdpa" {
				continue
			}
			if a := matchLinear(op, buffers, e); a != nil {
				e.at[op] = a.build(op)
			} else if a := matchWindow(op, rings, masks); a != nil {
				e.at[op] = a.build(op)
			}
		}
		for _, w := range rings {
			w.replace(e)
		}
		e.run(r)
	})
}

// attention are the operands of cached_attention.
type attention struct {
	k, v     *ir.Value
	position any // *ir.Value or a literal
	window   int
}

func (a *attention) build(op *ir.Op) func(b *ir.Builder) []*ir.Value {
	return func(b *ir.Builder) []*ir.Value {
		attrs := &ir.CachedAttentionAttrs{Scale: ir.Attrs[ir.SdpaAttrs](op).Scale, Window: a.window}
		y := b.Value("cached_attention", attrs, op.Input("q"), a.k, a.v, a.position)
		return []*ir.Value{cast(b, y, op.Result().Type.DType)}
	}
}

// matchLinear matches causal attention over the slots up to the last position that an update has written.
func matchLinear(op *ir.Op, buffers map[*ir.Buffer]*bufferUses, e *edit) *attention {
	q := op.Input("q")
	if a := ir.Attrs[ir.SdpaAttrs](op); !a.Causal || op.Input("mask") != nil || q.Type.Rank() != 4 {
		return nil
	}
	var out attention
	var position *ir.Value
	for i, operand := range []string{"k", "v"} {
		x, axis, start, stop, ok := sliced(op.Input(operand))
		if !ok || axis != 2 || !start.IsConst(0) {
			return nil
		}
		load := is(x, "load")
		if load == nil {
			return nil
		}
		update := onlyUpdate(buffers[load.Buffer], e)
		if update == nil {
			return nil
		}
		from, _ := update.Arg("start")
		if from.Kind != ir.ValueArg || i > 0 && !from.Value.Type.Int.Equal(position.Type.Int) {
			return nil
		}
		// The keys end where the queries end.
		if position = from.Value; !stop.Equal(position.Type.Int.Add(q.Type.Shape[2])) ||
			!expr(update, "stop").Equal(stop) || !update.Input("update").Type.Shape[2].Equal(q.Type.Shape[2]) {
			return nil
		}
		if out.position = position; i == 0 {
			out.k = load.Result()
		} else {
			out.v = load.Result()
		}
	}
	return &out
}

// onlyUpdate returns the only write of a cache, along axis 2.
func onlyUpdate(u *bufferUses, e *edit) *ir.Op {
	var found *ir.Op
	for _, op := range u.writes {
		if e.dropped[op] {
			continue
		}
		if found != nil || op.Def.Name != "buffer_slice_update" || ir.Attrs[ir.StepAttrs](op).Step != 1 {
			return nil
		}
		found = op
	}
	if found == nil || u.other || found.Buffer.Type.Rank() != 4 || found.Input("update").Type.Rank() != 4 {
		return nil
	}
	if axis, ok := literal(found, "axis"); !ok || axisOf(int(axis), found.Buffer.Type) != 2 {
		return nil
	}
	return found
}

// ring is a buffer whose rows are written at positions modulo its size, by two updates: up to the end,
// and on from the beginning.
type ring struct {
	first, second *ir.Op
	update        *ir.Value // what both write parts of
	position      *ir.Expr
	mod           *ir.Value // position mod size
	slots, count  *ir.Expr
}

// replace writes everything in the place of the second update.
func (w *ring) replace(e *edit) {
	e.dropped[w.first] = true
	e.at[w.second] = func(b *ir.Builder) []*ir.Value {
		b.BufferOp("buffer_ring_update", w.first.Buffer, &ir.AxisAttrs{Axis: 2}, w.update, w.mod)
		return nil
	}
}

func matchRing(b *ir.Buffer, u *bufferUses, e *edit) *ring {
	var writes []*ir.Op
	for _, op := range u.writes {
		if !e.dropped[op] {
			writes = append(writes, op)
		}
	}
	if u.other || len(writes) != 2 || b.Type.Rank() != 4 || !writesRows(writes[0]) || !writesRows(writes[1]) {
		return nil
	}
	w := &ring{first: writes[0], second: writes[1], slots: b.Type.Shape[2]}
	x, axis, start, stop, ok := sliced(w.first.Input("update"))
	x2, axis2, start2, stop2, ok2 := sliced(w.second.Input("update"))
	if !ok || !ok2 || plain(x) != plain(x2) || axis != 2 || axis2 != 2 || !start.IsConst(0) {
		return nil
	}
	w.update, w.count = x, x.Type.Shape[2]
	at, _ := w.first.Arg("start")
	mod := def(at.Value, "mod_int")
	if mod == nil || !expr(mod, "b").Equal(w.slots) {
		return nil
	}
	w.mod, w.position = at.Value, expr(mod, "a")
	// The first update takes what fits: min(slots − position mod slots, count).
	room := w.slots.Sub(w.mod.Type.Int)
	fits := room.Min(w.count)
	if !stop.Equal(room) && !stop.Equal(fits) || !start2.Equal(fits) && !start2.Equal(room) ||
		!stop2.Equal(w.count) && !atLeast(stop2, w.count) ||
		!expr(w.first, "stop").Equal(w.mod.Type.Int.Add(fits)) ||
		!expr(w.second, "start").IsConst(0) || !expr(w.second, "stop").Equal(w.count.Sub(fits)) {
		return nil
	}
	// More rows than slots are an error of the updates, and of the ring's.
	return w
}

// writesRows reports whether an operation writes rows of a buffer [batch, heads, rows, width], one after the other.
func writesRows(op *ir.Op) bool {
	if op.Def.Name != "buffer_slice_update" || ir.Attrs[ir.StepAttrs](op).Step != 1 ||
		op.Input("update").Type.Rank() != 4 {
		return false
	}
	axis, ok := literal(op, "axis")
	return ok && axisOf(int(axis), op.Buffer.Type) == 2
}

// matchWindow matches attention over all slots of rings under a mask that hides what is not in the window.
func matchWindow(op *ir.Op, rings map[*ir.Buffer]*ring, masks map[*ir.Value]*windowMask) *attention {
	q, mask := op.Input("q"), op.Input("mask")
	if mask == nil || ir.Attrs[ir.SdpaAttrs](op).Causal || q.Type.Rank() != 4 {
		return nil
	}
	k, v := is(op.Input("k"), "load"), is(op.Input("v"), "load")
	if k == nil || v == nil || rings[k.Buffer] == nil || rings[v.Buffer] == nil {
		return nil
	}
	w := masks[mask]
	if w == nil {
		w = matchMask(mask)
		masks[mask] = w
	}
	kr, vr := rings[k.Buffer], rings[v.Buffer]
	if !w.ok || !w.slots.Equal(kr.slots) || !w.slots.Equal(vr.slots) || !w.position.Equal(kr.position) ||
		!w.position.Equal(vr.position) ||
		!w.count.Equal(q.Type.Shape[2]) || !w.count.Equal(kr.count) || !w.count.Equal(vr.count) {
		return nil
	}
	// The operand itself: the value that the ring's mod_int is of.
	a := &attention{k: k.Result(), v: v.Result(), window: w.window}
	arg, _ := def(kr.mod, "mod_int").Arg("a")
	if a.position = arg.Value; arg.Kind != ir.ValueArg {
		a.position = arg.Int
	}
	return a
}

// windowMask is a mask [count, slots] in some shape: query i sees the slot of a position t with
// 0 ≤ position+i−t < window.
type windowMask struct {
	ok                     bool
	position, count, slots *ir.Expr
	window                 int
}

// matchMask matches the two ways to write it. Both compute the position in every slot from that of the
// last one written, last = position+count−1: as the age last−j, modulo the size of the ring where slot j
// has been written; or as j plus the multiple of the size that is right before or after last mod slots.
func matchMask(mask *ir.Value) *windowMask {
	w := &windowMask{}
	seen := flat(mask)
	if op := def(seen, "where"); op != nil && isFilled(op.Input("x"), 0) && isFilled(op.Input("y"), math.Inf(-1)) {
		seen = plain(op.Input("condition"))
	}
	if seen.Type.DType != ir.Bool || seen.Type.Rank() != 2 {
		return w
	}
	w.count, w.slots = seen.Type.Shape[0], seen.Type.Shape[1]
	for _, v := range []*ir.Value{mask, seen} { // [.., count, slots]
		if n := v.Type.Rank(); n < 2 || !v.Type.Shape[n-2].Equal(w.count) || !v.Type.Shape[n-1].Equal(w.slots) ||
			!v.Type.ElementsBefore(n-2).IsConst(1) {
			return w
		}
	}
	terms := conjunction(seen)
	var ages []*ir.Value // the age of a slot, of which some terms speak
	limits, nonNegative := 0, map[*ir.Value]bool{}
	for _, t := range terms {
		switch {
		case is(t, "greater_equal") != nil && isScalar(t.Def.Input("b"), 0):
			nonNegative[flat(t.Def.Input("a"))] = true
		case is(t, "less") != nil:
			limit, ok := scalarOf(t.Def.Input("b"))
			if !ok || limit != math.Trunc(limit) || limit < 1 || limit > math.MaxInt32 {
				return w
			}
			w.window = int(limit)
			ages = append(ages, flat(t.Def.Input("a")))
			limits++
		default:
			return w
		}
	}
	if limits != 1 || !nonNegative[ages[0]] {
		return w
	}
	delete(nonNegative, ages[0])
	w.ok = w.matchAge(ages[0], nonNegative) && len(nonNegative) == 0
	return w
}

// isFilled matches a number, in any shape.
func isFilled(v *ir.Value, want float64) bool {
	if op := is(v, "full"); op != nil {
		a, _ := op.Arg("v")
		return a.Kind == ir.FloatArg && a.Float == want
	}
	return isScalar(v, want)
}

// conjunction lists the terms of nested ands.
func conjunction(v *ir.Value) []*ir.Value {
	v = plain(v)
	for _, name := range []string{"logical_and", "bitwise_and"} {
		if op := def(v, name); op != nil {
			return append(conjunction(op.Input("a")), conjunction(op.Input("b"))...)
		}
	}
	return []*ir.Value{v}
}

// matchAge matches position+i minus the position in slot j, in integers: bf16 has no position 257, and its remainder is
// another one.
func (w *windowMask) matchAge(v *ir.Value, nonNegative map[*ir.Value]bool) bool {
	op := is(v, "subtract")
	if op == nil || !isWideInt(v.Type.DType) {
		return false
	}
	a, b := flat(op.Input("a")), flat(op.Input("b"))
	if column(op.Input("b")) { // (age of slot j at the last query) − (count−1−i)
		return row(op.Input("a")) && w.countsDown(b) && w.lastAge(a)
	}
	if !column(op.Input("a")) || !row(op.Input("b")) || !nonNegative[b] {
		return false // a negative position is that of a slot not yet written
	}
	delete(nonNegative, b)
	return w.queryPosition(a) && w.slotPosition(b)
}

// column reports whether v is [n, 1]; row, whether it is [n] or [1, n].
func column(v *ir.Value) bool {
	return v.Type.Rank() == 2 && v.Type.Shape[1].IsConst(1)
}

func row(v *ir.Value) bool {
	return v.Type.Rank() == 1 || v.Type.Rank() == 2 && v.Type.Shape[0].IsConst(1)
}

// countsDown matches count−1, …, 0.
func (w *windowMask) countsDown(v *ir.Value) bool {
	op := def(v, "arange")
	return op != nil && expr(op, "start").Equal(w.count.Sub(ir.Const(1))) && expr(op, "stop").IsConst(-1) &&
		expr(op, "step").IsConst(-1)
}

// lastAge matches where(d < 0, d, d mod slots) for d = last − j.
func (w *windowMask) lastAge(v *ir.Value) bool {
	op := is(v, "where")
	if op == nil {
		return false
	}
	d, mod, negative := plain(op.Input("x")), is(op.Input("y"), "remainder"), is(op.Input("condition"), "less")
	if mod == nil || negative == nil || plain(mod.Input("a")) != d || plain(negative.Input("a")) != d ||
		!isScalar(negative.Input("b"), 0) {
		return false
	}
	slots, ok := w.slots.Const()
	if !ok || !isScalar(mod.Input("b"), float64(slots)) {
		return false
	}
	sub := is(d, "subtract")
	if sub == nil || !isWideInt(d.Type.DType) || !w.countsSlots(flat(sub.Input("b"))) {
		return false
	}
	last := filledWith(sub.Input("a"))
	return last != nil && w.setPosition(last.Sub(w.count).Add(ir.Const(1)))
}

// setPosition notes the position, which every part must agree on.
func (w *windowMask) setPosition(e *ir.Expr) bool {
	if w.position == nil {
		w.position = e
	}
	return w.position.Equal(e)
}

// countsSlots matches 0, …, slots−1.
func (w *windowMask) countsSlots(v *ir.Value) bool {
	op := def(flatInts(v), "arange")
	return op != nil && expr(op, "start").IsConst(0) && expr(op, "step").IsConst(1) && expr(op, "stop").Equal(w.slots)
}

// filledWith returns the int that a tensor of one element is made of.
func filledWith(v *ir.Value) *ir.Expr {
	op := def(flatInts(v), "full")
	if op == nil || !op.Result().Type.ElementsBefore(op.Result().Type.Rank()).IsConst(1) ||
		!isWideInt(op.Result().Type.DType) {
		return nil
	}
	a, _ := op.Arg("v")
	if a.Kind != ir.ValueArg {
		return nil
	}
	return a.Value.Type.Int
}

// queryPosition matches position + i.
func (w *windowMask) queryPosition(v *ir.Value) bool {
	op := def(flatInts(v), "add")
	return op != nil && eitherWay(op, func(i, p *ir.Value) bool {
		count := def(flatInts(i), "arange")
		at := filledWith(p)
		return count != nil && at != nil && expr(count, "start").IsConst(0) && expr(count, "step").IsConst(1) &&
			expr(count, "stop").Equal(w.count) && w.setPosition(at)
	})
}

// slotPosition matches where(j ≤ last mod slots, j + last − last mod slots, the same − slots).
func (w *windowMask) slotPosition(v *ir.Value) bool {
	op := def(flatInts(v), "where")
	if op == nil {
		return false
	}
	upTo := is(op.Input("condition"), "less_equal")
	if upTo == nil || !w.countsSlots(upTo.Input("a")) || w.position == nil {
		return false
	}
	last := w.position.Add(w.count).Sub(ir.Const(1))
	mod := filledWith(upTo.Input("b"))
	if mod == nil || !mod.Equal(last.Mod(w.slots)) {
		return false
	}
	plus := func(v *ir.Value, base *ir.Expr) bool {
		add := def(flatInts(v), "add")
		return add != nil && eitherWay(add, func(j, x *ir.Value) bool {
			e := filledWith(x)
			return w.countsSlots(j) && e != nil && e.Equal(base)
		})
	}
	return plus(op.Input("x"), last.Sub(mod)) && plus(op.Input("y"), last.Sub(mod).Sub(w.slots))
}
