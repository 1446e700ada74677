package ragged

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cache"
)

// This file makes the method that drafts tokens an entry of a ragged program. Each of its rows is of a sequence of its
// own: a token that is not fed yet, and the hidden state after the token before. It gets
//
//	tokens i64[1, R], input_pos i64[R], sequences, blocks, ring0, …, hidden f32[1, R, H]
//
// and gives logits [R, vocab] and hidden states [R, H], from which the next token of each row is drafted.
//
// A draft that has caches of its own is given hidden state h[t] and token x[t+1] for its position t. Here it has the
// position t+1, that of the token: RoPE is relative, so nothing else changes, and what it keeps of a position follows
// from the tokens up to that one, as all that blocks hold. So blocks are shared, forked and taken back with it. The
// main entry fills these caches for all rows: the hidden state of the row before comes out of a convolution with two
// taps, the second of which is 0, whose state is a part of the sequence's slot. Position 0 has no hidden state before
// it, and nothing sees it.
//
// A draft that reads the program's caches stands at the position of its token, which they do not hold yet, and sees
// those before it; input seen i64[R] is the last of them.

// firstOfDraft is the first position that a draft's own caches hold.
const firstOfDraft = 1

// hiddenBuffer is the name of the state that holds the last hidden state of a sequence.
const hiddenBuffer = "draft.hidden"

// readDraft finds the inputs of the draft.
func (x *maker) readDraft() error {
	f := x.in.More[0]
	if len(x.in.More) > 1 || f.Name != DraftEntry {
		return fmt.Errorf("the program has %d entries, want one, or one and %s", 1+len(x.in.More), DraftEntry)
	}
	x.draft = newMaker(x.in, f, x.o)
	x.draft.drafts, x.draft.pools, x.draft.model = true, x.pools, x.model
	if err := x.draft.readForm(); err != nil {
		return err
	}
	hidden := x.given.Body.Results[1].Type
	width, ok := int64(0), false
	if hidden.Kind == ir.TensorKind && hidden.Rank() > 0 {
		width, ok = hidden.Shape[hidden.Rank()-1].Const()
	}
	if !ok || len(f.Params) != 3 || f.Params[2].Type.Rank() != 3 || !f.Params[2].Type.Shape[2].IsConst(width) ||
		f.Params[2].Type.DType != ir.F32 || hidden.DType != ir.F32 {
		return fmt.Errorf("%s does not start from the hidden states of %s, %s", f.Name, x.given.Name, hidden)
	}
	x.model.Draft = &Draft{Hidden: int(width)}
	f.Body.Walk(func(op *ir.Op) { x.model.Draft.Own = x.model.Draft.Own || op.Writes() })
	return nil
}

// isHidden reports whether a symbol is the number of hidden states of a draft.
func isHidden(f *ir.Func, s *ir.Symbol) bool {
	rows, ok := f.Params[2].Type.Shape[1].Symbol()
	return ok && rows == s
}

// draftState adds the state that the draft needs for a sequence. windows has the window of the attention over each
// buffer.
func (x *maker) draftState(windows map[*ir.Buffer]int) error {
	d := x.model.Draft
	if !d.Own {
		return x.pastState()
	}
	written := map[*ir.Buffer]bool{}
	x.draft.given.Body.Walk(func(op *ir.Op) { written[op.Buffer] = written[op.Buffer] || op.Writes() })
	for b := range written {
		if w, ok := windows[b]; b != nil && (!ok || w != 0) {
			return fmt.Errorf("%s writes buffer @%s, which is no cache of full attention", DraftEntry, b.Name)
		}
	}
	b := &ir.Buffer{Name: hiddenBuffer, Type: ir.StaticType(ir.F32, 1, 2, int64(d.Hidden))}
	x.in.Buffers = append(slices.Clip(x.in.Buffers), b)
	x.pools[b] = &pool{number: cache.Pool(1 + len(x.model.Rings)), stored: b}
	x.model.Slots = append(x.model.Slots, b)
	return nil
}

// draftInputs makes the parameters that only a draft has.
func (x *maker) draftInputs(f *ir.Func) {
	x.values[x.given.Params[2]] = f.NewParam("hidden", ir.TensorType(ir.F32, ir.Const(1), x.count(),
		ir.Const(int64(x.model.Draft.Hidden))))
	if !x.model.Draft.Own {
		x.tables.seen = f.NewParam("seen", ir.TensorType(ir.I64, x.count()))
	}
}

// buildDraft builds the entry of the draft, and extends the main entry by what the draft needs.
func (x *maker) buildDraft() {
	hidden := x.get(x.given.Body.Results[1])
	if x.rowAxis(hidden) != 1 || hidden.Type.Rank() != 3 {
		x.b.Fail("the hidden states %s have no row for each of the call", hidden.Type)
	}
	x.results(x.out.Entry, x.out.Entry.Body.Results[0], x.flat(x.take(hidden, 1), 1))
	if x.model.Draft.Own {
		x.fill(hidden)
	}
	if !x.draftEntry(false) {
		x.draftEntry(true)
	}
}

// draftEntry builds the entry, for one row or any number of them; false where rows of more than one are not
// independent.
func (x *maker) draftEntry(single bool) bool {
	x.model.Draft.Single = single
	f := &ir.Func{Name: DraftEntry, Body: &ir.Region{}}
	y := newMaker(x.in, x.draft.given, x.o)
	y.drafts, y.pools, y.model, y.out = true, x.pools, x.model, x.out
	y.tokens, y.positions = x.draft.tokens, x.draft.positions
	y.b = &ir.Builder{Module: x.out, Region: f.Body}
	build := func() {
		y.makeInputs(f)
		y.ops(nil)
		logits, hidden := y.get(y.given.Body.Results[0]), y.get(y.given.Body.Results[1])
		if !single {
			logits = y.finish(logits)
		}
		if !y.along(hidden, 1) {
			y.b.Fail("the hidden states %s have no row for each of the call", hidden.Type)
		}
		y.results(f, logits, y.flat(hidden, 1))
	}
	if single {
		build()
	} else if err := ir.Build(build); err != nil {
		return false
	}
	x.out.More = append(x.out.More, f)
	return true
}

// fill has the main entry write the draft's caches, from the hidden states [1, R, H] of its rows.
func (x *maker) fill(hidden *ir.Value) {
	width := int64(x.model.Draft.Hidden)
	taps := make([]byte, 8*width)
	for i := range width {
		binary.LittleEndian.PutUint32(taps[8*i:], 0x3f800000) // 1: the row before; 0: the row itself
	}
	w := x.out.NewConstant("draft.taps", ir.StaticType(ir.F32, width, 2, 1),
		ir.Bytes(ir.F32, []int64{width, 2, 1}, taps))
	before := x.b.BufferOp("slot_conv", x.pools[x.in.Buffers[len(x.in.Buffers)-1]].buffer,
		&ir.BufferConvAttrs{}, hidden, w,
		x.tables.entries, x.tables.writes).Result()
	y := newMaker(x.in, x.draft.given, x.o)
	y.pools, y.model, y.out, y.b, y.rows, y.wanted, y.tables = x.pools, x.model, x.out, x.b, x.rows, x.wanted, x.tables
	y.tokens, y.positions = x.draft.tokens, x.draft.positions
	y.values[y.tokens], y.values[y.positions] = x.values[x.tokens], x.values[x.positions]
	y.values[y.given.Params[2]] = before
	y.ops(writersOf(y.given.Body))
}

// writersOf returns the operations of a region that write buffers and those that compute what is written.
func writersOf(r *ir.Region) map[*ir.Op]bool {
	out, need := map[*ir.Op]bool{}, map[*ir.Value]bool{}
	for _, op := range slices.Backward(r.Ops) {
		wanted := op.Writes() || slices.ContainsFunc(op.Results, func(v *ir.Value) bool { return need[v] })
		if !wanted {
			continue
		}
		out[op] = true
		op.EachArg(func(a *ir.Arg) { need[a.Value] = true })
	}
	return out
}

// lone reports whether the given entry takes one row and the new one takes several: then shapes differ.
func (x *maker) lone() bool { return x.drafts && x.tokens.Type.Shape[1].IsConst(1) }

// plain reports whether a value has no rows and no state: a constant, or numbers counted from 0.
func (x *maker) plain(v *ir.Value) bool {
	if load := loadOf(v); load != nil || v.Constant != nil {
		return true
	}
	n := x.values[v]
	return n != nil && n.Def != nil && n.Def.Def.Name == "arange"
}

// past is attention over the positions before that of the row, in the program's caches.
func (x *maker) past(op *ir.Op, fail func(string)) {
	if !x.drafts || x.tables.seen == nil {
		x.same(op, fail)
		return
	}
	count, k, v := x.pastOf(op)
	q := x.get(op.Input("q"))
	if k == nil || !x.along(q, 2) {
		fail("it is not known which positions it sees")
	}
	kp, vp := x.pools[k.Buffer], x.pools[v.Buffer]
	if kp == nil || vp == nil || kp.number != vp.number || (count == 0) != (kp.number == cache.BlockPool) {
		fail("its keys and values have different windows")
	}
	attrs := &ir.CachedAttentionAttrs{Scale: ir.Attrs[ir.SdpaAttrs](op).Scale, Window: count}
	y := x.b.Value("block_attention", attrs, q, x.get(k.Result()), x.get(v.Result()), x.tables.seen,
		x.tables.sequences, x.blocksOf(kp))
	if d := op.Result().Type.DType; y.Type.DType != d {
		y = x.b.Value("astype", &ir.DTypeAttrs{ScalarType: d}, y)
	}
	x.values[op.Result()] = y
}

// pastOf matches attention of one row over the positions before its own: all of them, or the last count of a ring. It
// gives the loads of the caches, or nil.
func (x *maker) pastOf(op *ir.Op) (count int, k, v *ir.Op) {
	if !op.Input("q").Type.Shape[2].IsConst(1) {
		return 0, nil, nil
	}
	if mask := op.Input("mask"); mask != nil {
		k, v = loadOf(op.Input("k")), loadOf(op.Input("v"))
		if k == nil || v == nil {
			return 0, nil, nil
		}
		slots, _ := k.Buffer.Type.Shape[2].Const()
		if count = x.maskOf(mask, slots); count == 0 || !k.Buffer.Type.Shape[2].Equal(v.Buffer.Type.Shape[2]) {
			return 0, nil, nil
		}
		return count, k, v
	}
	for _, operand := range []string{"k", "v"} {
		s := op.Input(operand).Def
		if s == nil || s.Def.Name != "slice" {
			return 0, nil, nil
		}
		axis, _ := s.Arg("axis")
		from, _ := s.Arg("start")
		to, _ := s.Arg("stop")
		load := loadOf(s.Input("x"))
		if load == nil || axis.Kind != ir.IntArg || (axis.Int+4)%4 != 2 || !x.expression(from).IsConst(0) ||
			!x.expression(to).Equal(ir.Sym(firstRow)) {
			return 0, nil, nil
		}
		if k == nil {
			k = load
		} else {
			v = load
		}
	}
	return 0, k, v
}

// maskOf matches the mask of a ring of slots slots that shows the last count positions before the row's own, and
// returns count, or 0 where the mask is another. With d = position − 1 − j for slot j, the mask is d ≥ 0 and d mod
// slots < count.
func (x *maker) maskOf(mask *ir.Value, slots int64) int {
	for mask.Def != nil && mask.Def.Def.Name == "expand_dims" {
		mask = mask.Def.Input("x")
	}
	both := defOf(mask, "logical_and")
	if both == nil {
		return 0
	}
	notAfter, within := defOf(both.Input("a"), "greater_equal"), defOf(both.Input("b"), "less")
	if notAfter == nil || within == nil {
		notAfter, within = defOf(both.Input("b"), "greater_equal"), defOf(both.Input("a"), "less")
	}
	if notAfter == nil || within == nil {
		return 0
	}
	wrapped := defOf(within.Input("a"), "remainder")
	if wrapped == nil || wrapped.Input("a") != notAfter.Input("a") {
		return 0
	}
	distance := defOf(wrapped.Input("a"), "subtract")
	zero, ok := integer(notAfter.Input("b"))
	size, ok2 := integer(wrapped.Input("b"))
	count, ok3 := integer(within.Input("b"))
	if distance == nil || !ok || !ok2 || !ok3 || zero != 0 || size != slots || count <= 0 || count > slots {
		return 0
	}
	last, slot := defOf(distance.Input("a"), "full"), defOf(distance.Input("b"), "arange")
	if last == nil || slot == nil {
		return 0
	}
	at, _ := last.Arg("v")
	begin, _ := slot.Arg("start")
	end, _ := slot.Arg("stop")
	step, _ := slot.Arg("step")
	if !x.expression(at).Equal(ir.Sym(firstRow).Add(ir.Const(-1))) || !x.expression(begin).IsConst(0) ||
		!x.expression(end).IsConst(slots) || !x.expression(step).IsConst(1) {
		return 0
	}
	return int(count)
}

// defOf returns the operation of a name that gives a value, or nil.
func defOf(v *ir.Value, name string) *ir.Op {
	if v.Def == nil || v.Def.Def.Name != name {
		return nil
	}
	return v.Def
}

// integer returns the number that a constant scalar holds.
func integer(v *ir.Value) (int64, bool) {
	if v.Constant == nil || v.Constant.Data == nil || v.Type.ElementsBefore(v.Type.Rank()) == nil ||
		!v.Type.ElementsBefore(v.Type.Rank()).IsConst(1) {
		return 0, false
	}
	p, err := ir.ReadData(v.Constant.Data)
	switch {
	case err != nil:
	case v.Type.DType == ir.I32:
		return int64(int32(binary.LittleEndian.Uint32(p))), true
	case v.Type.DType == ir.I64:
		return int64(binary.LittleEndian.Uint64(p)), true
	}
	return 0, false
}

// pastState extends the rings so that they keep what a draft attends to: it is one position further than the last
// position that they have.
func (x *maker) pastState() error {
	y := x.draft
	var failed error
	y.given.Body.Walk(func(op *ir.Op) {
		y.startOfRows(op)
		if op.Def.Name != "sdpa" || failed != nil {
			return
		}
		count, k, _ := y.pastOf(op)
		if k == nil {
			failed = fmt.Errorf("it is not known which positions it sees: %s", ir.Describe(x.in, op))
			return
		}
		if p := x.pools[k.Buffer]; count > 0 && p != nil && p.number > cache.BlockPool &&
			int(p.number) <= len(x.model.Rings) {
			r := &x.model.Rings[p.number-1]
			r.Window = max(r.Window, count+1)
		}
	})
	return failed
}
