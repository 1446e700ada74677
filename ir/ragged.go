package ir

import (
	"fmt"
	"slices"
)

// The operations in this file are those of ragged calls (runtime/ragged): R rows, each of some sequence and at some
// position. Caches are pools of blocks [heads, units, rows of a block, width], so that blocks with numbers one
// after the other are one run of rows; states are pools of slots [units, ...].
// These operands say where the state of a row lies:
//
//   - positions i64[R]: the position of each row; a negative one is that of a row which belongs to no sequence.
//   - sequences i32[R]: the number of each row's sequence among those of the call. Calls of a runner have the rows of a
//     sequence one after another, at positions that follow one another. Kernels of a few rows rely on this. The GPU's
//     engine checks it before a call.
//   - blocks i32[N, B]: for each sequence the numbers of its blocks. Position p lies in row p mod b of block
//     blocks[n, p/b mod B], for blocks of b rows; so a window needs only as many columns as it has blocks.
//   - entries i32[N, 3]: for each sequence its first row, its number of rows, which lie one after another, and the
//     slot of the state before them, -1 for the state of no positions. A sequence without rows is none.
//   - writes i32[R]: the slot that gets the state after each row, -1 for none. What is read is read before it is
//     written.

// inferRopeRows infers the types of the results of rope in a shared call. The rows of x [1, ..., R, D] stand at
// positions [R].
func inferRopeRows(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 3)
	if err != nil {
		return nil, err
	}
	if err := needFloat("x", x.DType); err != nil {
		return nil, err
	}
	if err := c.rowTable("positions", I64, x.Shape[x.Rank()-2]); err != nil {
		return nil, err
	}
	attrs := Attrs[RopeAttrs](c.Op)
	if d := x.Shape[x.Rank()-1]; attrs.Dims <= 0 || attrs.Dims%2 != 0 || less(d, Const(int64(attrs.Dims))) {
		return nil, fmt.Errorf("dims is %d, want an even number from 2 to the last dim of x %s", attrs.Dims, x)
	}
	if c.Has("freqs") {
		if f := c.Type("freqs"); f.Rank() != 1 || !f.Shape[0].IsConst(int64(attrs.Dims/2)) {
			return nil, fmt.Errorf("freqs must be [%d], half of dims, found %s", attrs.Dims/2, f)
		}
	}
	return single(x)
}

// rowTable checks the type of an operand that has a number for each row of the call: d[R].
func (c *Inference) rowTable(operand string, d DType, rows *Expr) error {
	t, err := c.rank(operand, 1)
	if err != nil {
		return err
	}
	if t.DType != d {
		return fmt.Errorf("%s must be %s, found %s", operand, d, t)
	}
	return checkDims(dimCheck{"rows of the call and " + operand, rows, t.Shape[0]})
}

// table checks the type of an operand that is a table i32[N, width]; with a width of 0 it may have any.
func (c *Inference) table(operand string, width int64) error {
	t, err := c.rank(operand, 2)
	if err != nil {
		return err
	}
	if t.DType != I32 || width > 0 && !t.Shape[1].IsConst(width) {
		return fmt.Errorf("%s must be i32[N,%s], found %s", operand, widthText(width), t)
	}
	return nil
}

func widthText(width int64) string {
	if width == 0 {
		return "B"
	}
	return fmt.Sprint(width)
}

// rowsInBlocks checks the types of the operands that say in which blocks the rows of a call lie: positions, sequences
// and blocks.
func (c *Inference) rowsInBlocks(rows *Expr) error {
	if err := c.rowTable("positions", I64, rows); err != nil {
		return err
	}
	if err := c.rowTable("sequences", I32, rows); err != nil {
		return err
	}
	return c.table("blocks", 0)
}

// inferBlockWrite infers the type of block_write. update [1, H, R, D] goes row by row into the blocks of the buffer [H,
// units, b, D].
func inferBlockWrite(c *Inference) ([]Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	update, err := c.rank("update", 4)
	if err != nil {
		return nil, err
	}
	if t.Rank() != 4 || t.Shape[2].IsConst(0) {
		return nil, fmt.Errorf("the buffer must have four dims and blocks of at least one row, found %s", t)
	}
	if err := needFloat("update", update.DType); err != nil {
		return nil, err
	}
	if t, err = floatRows("buffer", t); err != nil {
		return nil, err
	}
	if err := checkDims(
		dimCheck{"first dim of update and 1", update.Shape[0], Const(1)},
		dimCheck{"heads of update and the buffer", update.Shape[1], t.Shape[0]},
		dimCheck{"width of update and the buffer", update.Shape[3], t.Shape[3]},
	); err != nil {
		return nil, err
	}
	return nil, c.rowsInBlocks(update.Shape[2])
}

// inferBlockAttention infers the type of block_attention. Queries q [1, H, R, D] over the blocks of k [Hkv, units, b,
// D] and v [Hkv, units, b, Dv] give [1, H, R, Dv]; Hkv divides H. A row before the first position that is seen gives
// zeros.
func inferBlockAttention(c *Inference) ([]Type, error) {
	var types [3]Type
	for i, operand := range []string{"q", "k", "v"} {
		t, err := c.rank(operand, 4)
		if err != nil {
			return nil, err
		}
		if operand == "q" {
			err = needFloat(operand, t.DType)
		} else {
			t, err = floatRows(operand, t)
		}
		if err != nil {
			return nil, err
		}
		types[i] = t
	}
	q, k, v := types[0], types[1], types[2]
	if err := checkDims(
		dimCheck{"first dim of q and 1", q.Shape[0], Const(1)},
		dimCheck{"blocks of k and v", k.Shape[1], v.Shape[1]},
		dimCheck{"heads of k and v", k.Shape[0], v.Shape[0]},
		dimCheck{"rows of a block of k and v", k.Shape[2], v.Shape[2]},
		dimCheck{"width of q and k", q.Shape[3], k.Shape[3]},
	); err != nil {
		return nil, err
	}
	if k.Shape[0].IsConst(0) || k.Shape[2].IsConst(0) {
		return nil, fmt.Errorf("k %s has no heads or no rows", k)
	}
	if r, ok := q.Shape[1].Mod(k.Shape[0]).Const(); ok && r != 0 {
		return nil, fmt.Errorf("the %s heads of k must divide the %s heads of q", k.Shape[0], q.Shape[1])
	}
	if w := Attrs[CachedAttentionAttrs](c.Op).Window; w < 0 {
		return nil, fmt.Errorf("window %d is negative", w)
	}
	if first := Attrs[CachedAttentionAttrs](c.Op).First; first < 0 {
		return nil, fmt.Errorf("first %d is negative", first)
	}
	if err := c.rowsInBlocks(q.Shape[2]); err != nil {
		return nil, err
	}
	shape := slices.Clone(q.Shape)
	shape[3] = v.Shape[3]
	return single(TensorType(Promote(Promote(q.DType, k.DType), v.DType), shape...))
}

// slots checks the tables of an operation on slots and gives the type of one slot, with a first dim of 1.
func (c *Inference) slots(rows *Expr) (Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return Type{}, err
	}
	if t.Rank() < 2 {
		return Type{}, fmt.Errorf("the buffer must have slots, found %s", t)
	}
	if err := c.table("entries", 3); err != nil {
		return Type{}, err
	}
	if err := c.rowTable("writes", I32, rows); err != nil {
		return Type{}, err
	}
	t.Shape = slices.Clone(t.Shape)
	t.Shape[0] = Const(1)
	return t, nil
}

// one makes an operation on one slot, with the type of its state, of the first n operands.
func (c *Inference) one(name string, n int, state Type) *Inference {
	def := LookupOp(name)
	op := &Op{Def: def, Attrs: c.Op.Attrs, Buffer: &Buffer{Type: state}, Args: make([][]Arg, len(def.Operands))}
	copy(op.Args, c.Op.Args[:n])
	return &Inference{op}
}

// inferSlotConv infers the type of slot_conv, buffer_conv of x [1, R, C] with a state for each sequence.
func inferSlotConv(c *Inference) ([]Type, error) {
	x, err := c.rank("x", 3)
	if err != nil {
		return nil, err
	}
	state, err := c.slots(x.Shape[1])
	if err != nil {
		return nil, err
	}
	return inferBufferConv(c.one("buffer_conv", 2, state))
}

// inferSlotDeltaRule infers the type of slot_delta_rule, buffer_delta_rule of q, k [1, R, Hk, Dk] and v [1, R, Hv, Dv]
// with a state for each sequence.
func inferSlotDeltaRule(c *Inference) ([]Type, error) {
	v, err := c.rank("v", 4)
	if err != nil {
		return nil, err
	}
	state, err := c.slots(v.Shape[1])
	if err != nil {
		return nil, err
	}
	return inferBufferDeltaRule(c.one("buffer_delta_rule", 5, state))
}

// inferUnitCopy infers the type of unit_copy. Index pairs[i, 1] of an axis of the buffer becomes a copy of index
// pairs[i, 0], one pair after the other. A pair with a negative number is skipped.
func inferUnitCopy(c *Inference) ([]Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	if _, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, t.Rank()); err != nil {
		return nil, err
	}
	return nil, c.table("pairs", 2)
}
