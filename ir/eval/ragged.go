package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// The reference semantics of calls of many sequences (ir/ragged.go): a row gives what the operation for one sequence
// gives in a call of that row alone. So no answer depends on how rows are cut into calls or on what else is in a
// call.

func init() {
	register(map[string]Kernel{"rope_rows": ropeRows, "block_attention": blockAttention})
}

func init() { // the kernels run operations themselves, which are updates
	updates["block_write"] = blockWrite
	updates["slot_conv"] = slotConv
	updates["slot_delta_rule"] = slotDeltaRule
	updates["unit_copy"] = unitCopy
}

// ropeRows is rope for rows that each have a position of their own.
func ropeRows(c *Call) ([]Value, error) {
	attrs, x, positions := ir.Attrs[ir.RopeAttrs](c.Op), c.Tensor("x"), c.Tensor("positions").I
	rank := len(x.Shape)
	if rank < 3 || len(positions) != x.Shape[rank-2] {
		return nil, fmt.Errorf("x %v with %d positions, want [1, …, R, D] and R", x.Shape, len(positions))
	}
	rows, width, dims, half := x.Shape[rank-2], x.Shape[rank-1], attrs.Dims, attrs.Dims/2
	inverse, err := c.inverseFreqs(half, attrs.Base)
	if err != nil {
		return nil, err
	}
	d := x.DType
	sin, cos := make([]float32, rows*half), make([]float32, rows*half)
	for r, p := range positions {
		position := float32(p) * attrs.Scale
		for i, f := range inverse {
			s, k := numeric.Sincos32(position * f)
			sin[r*half+i], cos[r*half+i] = c.Round(d, s), c.Round(d, k)
		}
	}
	first, second, stride := 0, half, 1
	if attrs.Traditional {
		first, second, stride = 0, 1, 2
	}
	out := append([]float32(nil), x.F...)
	parallel(len(out)/max(width, 1), 2*dims, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			at := r % rows
			c.rotate(d, out[r*width:(r+1)*width], sin[at*half:(at+1)*half], cos[at*half:(at+1)*half], first, second,
				stride)
		}
	})
	return one(c.floatResult(0, x.Shape, out))
}

// blocks are the tables that say where the positions of rows lie.
type blocks struct {
	positions, sequences []int64
	table                *Tensor
	units, rows          int // of the pool: blocks, and rows of one
}

func (c *Call) blocks(pool *Tensor) blocks {
	return blocks{c.Tensor("positions").I, c.Tensor("sequences").I, c.Tensor("blocks"), pool.Shape[1], pool.Shape[2]}
}

// at returns the block and the row in it of a position of the sequence of row r.
func (b *blocks) at(r int, position int64) (block, row int, err error) {
	n := b.sequences[r]
	if n < 0 || int(n) >= b.table.Shape[0] {
		return 0, 0, fmt.Errorf("row %d is of sequence %d, the table of blocks has %d", r, n, b.table.Shape[0])
	}
	columns := int64(b.table.Shape[1])
	id := b.table.I[n*columns+position/int64(b.rows)%columns]
	if id < 0 || int(id) >= b.units {
		return 0, 0, fmt.Errorf("row %d: position %d of sequence %d is in block %d of %d", r, position, n, id, b.units)
	}
	return int(id), int(position % int64(b.rows)), nil
}

// blockWrite writes each row that belongs to a sequence to its place.
func blockWrite(c *Call, state *Tensor) ([]Value, error) {
	update, words := c.Tensor("update"), 0
	if state.DType == ir.U32 {
		words = state.Shape[3]
	} else {
		update = convert(update, state.DType, c.bufferPrecision())
	}
	b := c.blocks(state)
	heads, rows, width := update.Shape[1], update.Shape[2], update.Shape[3]
	for r, p := range b.positions {
		if p < 0 {
			continue
		}
		block, row, err := b.at(r, p)
		if err != nil {
			return nil, err
		}
		for h := range heads {
			from, to := update.F[(h*rows+r)*width:][:width], (h*b.units+block)*b.rows+row
			if words > 0 {
				packQ8(state.I[to*words:][:words], from)
				continue
			}
			copy(state.F[to*width:][:width], from)
		}
	}
	return nil, nil
}

// blockAttention is sdpa of each row over the keys and values of its sequence up to its own position, in a window of
// that many where one is given, from the first position on that is seen. A row of no sequence gives zeros.
func blockAttention(c *Call) ([]Value, error) {
	attrs, q, k, v := ir.Attrs[ir.CachedAttentionAttrs](c.Op), c.Tensor("q"), c.Tensor("k"), c.Tensor("v")
	b, d := c.blocks(k), c.Result(0).DType
	heads, rows, width, vWidth := q.Shape[1], q.Shape[2], q.Shape[3], v.Shape[3]
	if v.DType == ir.U32 {
		vWidth = ir.Q8Width(vWidth)
	}
	out, err := NewTensor(d, 1, heads, rows, vWidth)
	if err != nil {
		return nil, err
	}
	for r, p := range b.positions {
		lo := int64(attrs.First)
		if p < lo {
			continue
		}
		if attrs.Window > 0 {
			lo = max(lo, p-int64(attrs.Window)+1)
		}
		keys, err := b.gather(k, r, lo, p)
		if err != nil {
			return nil, err
		}
		values, err := b.gather(v, r, lo, p)
		if err != nil {
			return nil, err
		}
		query := &Tensor{DType: q.DType, Shape: []int{1, heads, 1, width}}
		for h := range heads {
			query.F = append(query.F, q.F[(h*rows+r)*width:(h*rows+r+1)*width]...)
		}
		y, err := c.compose("sdpa", d, &ir.SdpaAttrs{Scale: attrs.Scale}, query, keys, values)
		if err != nil {
			return nil, err
		}
		for h := range heads {
			copy(out.F[(h*rows+r)*vWidth:][:vWidth], y.F[h*vWidth:])
		}
	}
	return []Value{{Tensor: out}}, nil
}

// gather copies positions lo to hi, both included, of the sequence of row r out of a pool, [1, H, hi-lo+1, D].
func (b *blocks) gather(pool *Tensor, r int, lo, hi int64) (*Tensor, error) {
	heads, width, d, words := pool.Shape[0], pool.Shape[3], pool.DType, 0
	if d == ir.U32 {
		d, words, width = ir.F32, width, ir.Q8Width(width)
	}
	out, err := NewTensor(d, 1, heads, int(hi-lo)+1, width)
	if err != nil {
		return nil, err
	}
	for p := lo; p <= hi; p++ {
		block, row, err := b.at(r, p)
		if err != nil {
			return nil, err
		}
		for h := range heads {
			to, from := out.F[(h*out.Shape[2]+int(p-lo))*width:][:width], (h*b.units+block)*b.rows+row
			if words > 0 {
				unpackQ8(to, pool.I[from*words:][:words])
				continue
			}
			copy(to, pool.F[from*width:])
		}
	}
	return out, nil
}

// eachSlot calls step for every row of every entry in order, with the state of its sequence, which step changes, and
// stores that where the tables say. The state that steps see has a first dim of 1.
func (c *Call) eachSlot(pool *Tensor, rows int, step func(row int, state *Tensor) error) error {
	entries, writes := c.Tensor("entries"), c.Tensor("writes").I
	size := pool.Len() / max(pool.Shape[0], 1)
	state := &Tensor{DType: pool.DType, Shape: append([]int{1}, pool.Shape[1:]...), F: make([]float32, size)}
	check := func(what string, slot int64) error {
		if slot >= int64(pool.Shape[0]) {
			return fmt.Errorf("%s slot %d of %d", what, slot, pool.Shape[0])
		}
		return nil
	}
	for i := 0; i < len(entries.I); i += 3 {
		first, count, from := int(entries.I[i]), int(entries.I[i+1]), entries.I[i+2]
		if first < 0 || count < 0 || first+count > rows {
			return fmt.Errorf("entry %d has %d rows from %d on, the call has %d", i/3, count, first, rows)
		}
		if err := check(fmt.Sprintf("entry %d reads", i/3), from); err != nil {
			return err
		}
		if clear(state.F); from >= 0 {
			copy(state.F, pool.F[int(from)*size:])
		}
		for r := first; r < first+count; r++ {
			if err := step(r, state); err != nil {
				return err
			}
			if err := check(fmt.Sprintf("row %d writes", r), writes[r]); err != nil {
				return err
			}
			if to := writes[r]; to >= 0 {
				copy(pool.F[int(to)*size:], state.F)
			}
		}
	}
	return nil
}

// alone runs an update for one row: what is given are its operands, [1, 1, ...] each, and the state of its sequence.
func (c *Call) alone(name string, state *Tensor, operands ...*Tensor) (*Tensor, error) {
	def := ir.LookupOp(name)
	part := &Call{Op: &ir.Op{Def: def, Attrs: c.Op.Attrs, Buffer: c.Op.Buffer, Args: make([][]ir.Arg,
		len(def.Operands)),
		Results: c.Op.Results}, Precision: c.Precision, Args: make([][]Value, len(def.Operands)), Bits: c.Bits,
		Done: c.Done}
	for i, t := range operands {
		part.Args[i] = []Value{{Tensor: t}}
	}
	out, err := updates[name](part, state)
	if err != nil {
		return nil, err
	}
	return out[0].Tensor, nil
}

// rowAlone copies row r of [1, R, ...], with its axis.
func rowAlone(t *Tensor, r int) *Tensor {
	n := t.Len() / max(t.Shape[1], 1)
	return &Tensor{DType: t.DType, Shape: append([]int{1, 1}, t.Shape[2:]...), F: t.F[r*n : (r+1)*n]}
}

// slotConv is buffer_conv of each row, with the state of its sequence.
func slotConv(c *Call, state *Tensor) ([]Value, error) {
	x, w := c.Tensor("x"), c.Tensor("w")
	out, err := NewTensor(c.Result(0).DType, x.Shape...)
	if err != nil {
		return nil, err
	}
	err = c.eachSlot(state, x.Shape[1], func(r int, state *Tensor) error {
		y, err := c.alone("buffer_conv", state, rowAlone(x, r), w)
		if err == nil {
			copy(rowAlone(out, r).F, y.F)
		}
		return err
	})
	return []Value{{Tensor: out}}, err
}

// slotDeltaRule is buffer_delta_rule of each row, with the state of its sequence.
func slotDeltaRule(c *Call, state *Tensor) ([]Value, error) {
	var parts [5]*Tensor
	for i, name := range []string{"q", "k", "v", "g", "beta"} {
		parts[i] = c.Tensor(name)
	}
	out, err := NewTensor(c.Result(0).DType, parts[2].Shape...)
	if err != nil {
		return nil, err
	}
	err = c.eachSlot(state, parts[2].Shape[1], func(r int, state *Tensor) error {
		var operands []*Tensor
		for _, t := range parts {
			operands = append(operands, rowAlone(t, r))
		}
		y, err := c.alone("buffer_delta_rule", state, operands...)
		if err == nil {
			copy(rowAlone(out, r).F, y.F)
		}
		return err
	})
	return []Value{{Tensor: out}}, err
}

// unitCopy copies indices of an axis, one pair after the other.
func unitCopy(c *Call, state *Tensor) ([]Value, error) {
	axis, err := axisIn(ir.Attrs[ir.AxisAttrs](c.Op).Axis, len(state.Shape))
	if err != nil {
		return nil, err
	}
	units, inner := state.Shape[axis], 1
	for _, n := range state.Shape[axis+1:] {
		inner *= n
	}
	pairs := c.Tensor("pairs").I
	for i := 0; i < len(pairs); i += 2 {
		from, to := int(pairs[i]), int(pairs[i+1])
		if from < 0 || to < 0 {
			continue
		}
		if from >= units || to >= units {
			return nil, fmt.Errorf("unit %d to %d, the buffer has %d", from, to, units)
		}
		for at := 0; at < state.Len(); at += units * inner {
			if state.F != nil {
				copy(state.F[at+to*inner:at+(to+1)*inner], state.F[at+from*inner:])
			} else {
				copy(state.I[at+to*inner:at+(to+1)*inner], state.I[at+from*inner:])
			}
		}
	}
	return nil, nil
}
