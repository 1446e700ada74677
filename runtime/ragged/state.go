package ragged

import (
	"github.com/etc-ml/etc/ir"
)

// rope gives each row its own position.
func (x *maker) rope(op *ir.Op, fail func(string)) {
	v := x.get(op.Input("x"))
	offset, _ := op.Arg("offset")
	if !x.isStart(offset) {
		fail("it turns rows by something else than their positions")
	}
	if rank := v.Type.Rank(); !x.along(v, rank-2) {
		fail("it turns something else than rows")
	}
	var freqs any
	if f := op.Input("freqs"); f != nil {
		if x.rowAxis(f) != -1 || f.Constant == nil {
			fail("its frequencies are no constants")
		}
		freqs = f
	}
	x.values[op.Result()] = x.b.Value("rope_rows", op.Attrs, v, x.tables.input, freqs)
}

// blocksOf returns the table of blocks of a pool.
func (x *maker) blocksOf(p *pool) *ir.Value {
	if p.number == 0 {
		return x.tables.full
	}
	return x.tables.rings[p.number-1]
}

// cacheWrite writes rows into blocks.
func (x *maker) cacheWrite(op *ir.Op, fail func(string)) {
	p := x.pools[op.Buffer]
	if p == nil || int(p.number) > len(x.model.Rings) || op.Buffer.Type.Rank() != 4 {
		fail("it writes a buffer that is no cache of attention")
	}
	slots := op.Buffer.Type.Shape[2]
	begin, _ := op.Arg("start")
	at := x.expression(begin)
	axis := 0
	if op.Def.Name == "buffer_ring_update" {
		axis = ir.Attrs[ir.AxisAttrs](op).Axis
		if !at.Equal(ir.Sym(firstRow).Mod(slots)) {
			fail("its rows are written elsewhere than at their positions")
		}
	} else {
		a, _ := op.Arg("axis")
		end, _ := op.Arg("stop")
		axis = int(a.Int)
		if a.Kind != ir.IntArg || ir.Attrs[ir.StepAttrs](op).Step != 1 || !at.Equal(ir.Sym(firstRow)) ||
			!x.expression(end).Equal(ir.Sym(firstRow).Add(ir.Sym(rowCount))) {
			fail("its rows are written elsewhere than at their positions")
		}
	}
	update := x.get(op.Input("update"))
	if (axis+4)%4 != 2 || !x.along(update, 2) {
		fail("it writes something else than rows")
	}
	x.b.BufferOp("block_write", p.buffer, nil, update, x.tables.input, x.tables.sequences, x.blocksOf(p))
}

// attention reads blocks.
func (x *maker) attention(op *ir.Op, fail func(string)) {
	at, _ := op.Arg("position")
	q := x.get(op.Input("q"))
	k, v := loadOf(op.Input("k")), loadOf(op.Input("v"))
	if !x.isStart(at) || !x.along(q, 2) {
		fail("its queries are something else than rows at their positions")
	}
	kp, vp := x.pools[k.Buffer], x.pools[v.Buffer]
	if kp.number != vp.number {
		fail("its keys and values have different windows")
	}
	attrs := *ir.Attrs[ir.CachedAttentionAttrs](op)
	if x.drafts {
		attrs.First = firstOfDraft
	}
	keys, values := x.get(op.Input("k")), x.get(op.Input("v"))
	if x.o.Storage.Q8 { // codes cannot be cast
		keys, values = x.get(k.Result()), x.get(v.Result())
	}
	y := x.b.Value("block_attention", &attrs, q, keys, values, x.tables.input, x.tables.sequences, x.blocksOf(kp))
	if d := op.Result().Type.DType; y.Type.DType != d {
		y = x.b.Value("astype", &ir.DTypeAttrs{ScalarType: d}, y)
	}
	x.values[op.Result()] = y
}

// slots gives each sequence the state that it has.
func (x *maker) slots(op *ir.Op, fail func(string)) {
	if reset := op.Input("reset"); reset != nil && !x.isZero(reset) {
		fail("it forgets its state elsewhere than at position 0")
	}
	names, args := []string{"x", "w"}, []any(nil)
	made := "slot_conv"
	if op.Def.Name == "buffer_delta_rule" {
		made, names = "slot_delta_rule", []string{"q", "k", "v", "g", "beta"}
	}
	for _, name := range names {
		v := x.get(op.Input(name))
		if name == "w" && x.rowAxis(v) != -1 || name != "w" && (x.rowAxis(v) != 1 ||
			!v.Type.Shape[1].Equal(ir.Sym(x.rows))) {
			fail("it runs over something else than rows")
		}
		args = append(args, v)
	}
	attrs := op.Attrs
	x.values[op.Result()] = x.b.BufferOp(made, x.pools[op.Buffer].buffer, attrs, append(args, x.tables.entries,
		x.tables.writes)...).Result()
}

// isZero reports whether a flag says that the first row stands at position 0.
func (x *maker) isZero(flag *ir.Value) bool {
	if flag.Def == nil || flag.Def.Def.Name != "equal" {
		return false
	}
	a, b := flag.Def.Input("a"), flag.Def.Input("b")
	if x.isFirst(b) {
		a, b = b, a
	}
	return x.isFirst(a) && isZeroConstant(b)
}

// isZeroConstant reports whether v is the integer 0.
func isZeroConstant(v *ir.Value) bool {
	if v.Constant == nil || v.Constant.Data == nil || v.Type.Rank() != 0 || v.Type.DType.IsFloat() {
		return false
	}
	p, err := ir.ReadData(v.Constant.Data)
	if err != nil {
		return false
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
