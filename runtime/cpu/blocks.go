package cpu

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/strided"
)

// This file has the operations on block-wise caches of many sequences. ir/ragged.go describes the tables.

// table returns a contiguous operand of integers.
func (b *binder) table(operand string) (*value, bool) {
	v := b.Input(operand)
	return v, v != nil && v.kind == dense && v.dtype.IsInteger() && v.isDense()
}

// blockTables are the tables that say in which block each row's positions lie.
type blockTables struct {
	positions, sequences, blocks *value
	units, rows, columns         int // blocks of the pool, rows of one, columns of the table of blocks
}

// blockTables reads the operands of an operation on the blocks of a pool [heads, units, rows, width].
func (b *binder) blockTables(pool []int) (t blockTables, ok bool) {
	var found [3]bool
	t.positions, found[0] = b.table("positions")
	t.sequences, found[1] = b.table("sequences")
	t.blocks, found[2] = b.table("blocks")
	if found != [3]bool{true, true, true} || len(pool) != 4 || len(t.blocks.shape) != 2 || t.blocks.shape[1] == 0 ||
		pool[2] == 0 {
		return t, false
	}
	t.units, t.rows, t.columns = pool[1], pool[2], t.blocks.shape[1]
	return t, true
}

// block returns the number of the block that holds a position of row r's sequence.
func (t *blockTables) block(r, position int) int {
	return int(t.blocks.ints()[int(t.sequences.ints()[r])*t.columns+position/t.rows%t.columns])
}

// check returns an error if one of the positions [lo, hi) of row r's sequence has no block, as the reference kernels
// do.
func (t *blockTables) check(r, lo, hi int) error {
	n := int(t.sequences.ints()[r])
	if n < 0 || n >= t.blocks.shape[0] {
		return fmt.Errorf("row %d is of sequence %d, the table of blocks has %d", r, n, t.blocks.shape[0])
	}
	for p := lo; p < hi; p = (p/t.rows + 1) * t.rows {
		if id := t.block(r, p); id < 0 || id >= t.units {
			return fmt.Errorf("row %d: position %d of sequence %d is in block %d of %d", r, p, n, id, t.units)
		}
	}
	return nil
}

// bindBlockWrite writes keys or values [1, H, R, D] into blocks.
func bindBlockWrite(b *binder) bool {
	s, u := b.floatState(), b.Input("update")
	if coded := b.x.states[b.Op.Buffer]; coded.words != nil {
		s = coded
	}
	if s == nil || u == nil || !u.isFloats() || len(u.shape) != 4 || u.shape[3] > 1 && u.stride[3] != 1 {
		return false
	}
	t, ok := b.blockTables(s.shape)
	if !ok || u.shape[0] != 1 || u.shape[1] != s.shape[0] || u.shape[3] != s.rowWidth() {
		return false
	}
	heads, width := s.shape[0], u.shape[3]
	b.step("cache write", func() error {
		data := u.floats()
		for r, p := range t.positions.ints()[:u.shape[2]] {
			if p < 0 {
				continue
			}
			at := int(p)
			if err := t.check(r, at, at+1); err != nil {
				return err
			}
			to := t.block(r, at)*t.rows + at%t.rows
			for h := range heads {
				from := h*u.stride[1] + r*u.stride[2]
				s.putRow(h*t.units*t.rows+to, data[from:from+width])
			}
		}
		return nil
	})
	return true
}

// bindUnitCopy copies between indices of an axis of a buffer. The copies are made in order.
func bindUnitCopy(b *binder) bool {
	s := b.x.states[b.Op.Buffer]
	pairs, ok := b.table("pairs")
	axis := (ir.Attrs[ir.AxisAttrs](b.Op).Axis + len(s.shape)) % len(s.shape)
	if !ok || s.slot.f == nil && s.half == nil && s.words == nil {
		return false
	}
	units, inner := s.shape[axis], strided.Elements(s.shape[axis+1:])
	b.step("copy", func() error {
		list := pairs.ints()[:pairs.len()]
		for i := 0; i < len(list); i += 2 {
			from, to := int(list[i]), int(list[i+1])
			if from < 0 || to < 0 {
				continue
			}
			if from >= units || to >= units {
				return fmt.Errorf("unit_copy: unit %d to %d, the buffer has %d", from, to, units)
			}
			for at := 0; at < s.size; at += units * inner {
				if s.words != nil {
					copy(s.words[4*(at+to*inner):4*(at+(to+1)*inner)], s.words[4*(at+from*inner):])
				} else if s.half != nil {
					copy(s.half[2*(at+to*inner):2*(at+(to+1)*inner)], s.half[2*(at+from*inner):])
				} else {
					copy(s.slot.f[at+to*inner:at+(to+1)*inner], s.slot.f[at+from*inner:])
				}
			}
		}
		return nil
	})
	return true
}

// bindTakeRows selects indices of an axis by a table.
func bindTakeRows(b *binder) bool {
	x := b.Input("x")
	if a, _ := b.Op.Arg("index"); x == nil || b.Op.Input("x").Constant != nil || x.kind != dense ||
		x.slot.state != nil || a.Kind != ir.ValueArg || a.Value.Type.Rank() != 1 {
		return false
	}
	index, ok := b.table("index")
	shape, known := b.Dims(b.Op.Result().Type)
	if !ok || !known {
		return false
	}
	axis := (ir.Attrs[ir.AxisAttrs](b.Op).Axis + len(x.shape)) % len(x.shape)
	out := b.result(0, nil)
	if out == nil {
		n := strided.Elements(shape)
		out = &value{dtype: b.Op.Result().Type.DType, slot: &slot{i: make([]int64, n)}, shape: shape,
			stride: strided.RowMajor(shape)}
		b.Values[b.Op.Result()] = out
	}
	one := slices.Clone(shape)
	one[axis] = 1
	b.step("rows", func() error {
		for i, at := range index.ints()[:shape[axis]] {
			if at < 0 {
				at += int64(x.shape[axis])
			}
			if at < 0 || int(at) >= x.shape[axis] {
				return fmt.Errorf("take: index %d of an axis of %d", at, x.shape[axis])
			}
			from, to := int(at)*x.stride[axis], i*out.stride[axis]
			if x.dtype.IsFloat() {
				copyStrided(out.slot.f[to:], out.stride, x.floats()[from:], x.stride, one)
			} else {
				copyStrided(out.slot.i[to:], out.stride, x.ints()[from:], x.stride, one)
			}
		}
		return nil
	})
	return true
}

// blockAttention is block_attention bound to a plan. Neighbouring rows of one sequence are computed together.
type blockAttention struct {
	blockTables
	q, out         *value
	scale          float32
	window, first  int
	heads, kvHeads int
	width, vWidth  int
	keys, values   cacheRows // all rows of the pools
	ended          func() bool
	alone          bool // rows are computed one by one

	items    []attentionItem // of the call
	joins    []attentionJoin
	partials []float32 // for parts of single rows' keys: sums of values, the highest score, the sum of weights
}

// attentionItem is a unit of work: neighbouring rows of a sequence, and a part of the keys that they attend to.
type attentionItem struct {
	row, rows, position int
	lo, hi              int // positions of the keys
	part                int // number of the partial result, -1 if the item has all keys
}

// attentionJoin is a row whose keys were divided into parts.
type attentionJoin struct{ row, part, parts int }

func bindBlockAttention(b *binder) bool {
	attrs, q := ir.Attrs[ir.CachedAttentionAttrs](b.Op), b.Input("q")
	k, v := cacheOf(b, "k"), cacheOf(b, "v")
	if q == nil || !q.isFloats() || len(q.shape) != 4 || q.shape[3] > 1 && q.stride[3] != 1 || k == nil || v == nil {
		return false
	}
	t, ok := b.blockTables(k.shape)
	a := &blockAttention{blockTables: t, q: q, scale: attrs.Scale, window: attrs.Window, first: attrs.First,
		heads: q.shape[1], kvHeads: k.shape[0], width: q.shape[3], vWidth: v.rowWidth(), ended: b.x.ended,
		alone: b.x.exe.alone}
	if !ok || q.shape[0] != 1 || a.kvHeads == 0 || a.heads%a.kvHeads != 0 || k.rowWidth() != a.width ||
		!slices.Equal(k.shape[:3], v.shape[:3]) {
		return false
	}
	// The result is stored token by token, as the projection after it reads it.
	rows := q.shape[2]
	shape, stride := []int{1, a.heads, rows, a.vWidth}, []int{rows * a.heads * a.vWidth, a.vWidth, a.heads * a.vWidth,
		1}
	if dims, ok := b.Dims(b.Op.Result().Type); !ok || !slices.Equal(dims, shape) {
		return false
	}
	a.out = b.result(0, stride)
	a.keys, a.values = k.cacheRows(a.kvHeads*a.units*a.rows), v.cacheRows(a.kvHeads*a.units*a.rows)
	each := b.x.run
	b.step("attention", func() error {
		if err := a.divide(); err != nil {
			return err
		}
		each(len(a.items)*a.kvHeads, 1, func(lo, hi int) {
			w := getWork()
			for i := lo; i < hi; i++ {
				a.run(w, &a.items[i/a.kvHeads], i%a.kvHeads)
			}
			putWork(w)
		})
		each(len(a.joins)*a.kvHeads, 1, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				a.join(&a.joins[i/a.kvHeads], i%a.kvHeads)
			}
		})
		return nil
	}).cost = a.cost
	return true
}

// divide makes the items of a call: single rows with parts of their keys, other rows in blocks. Items with the most
// keys come first.
func (a *blockAttention) divide() error {
	a.items, a.joins = a.items[:0], a.joins[:0]
	positions, owners := a.positions.ints()[:a.q.shape[2]], a.sequences.ints()
	parts := 0
	for r := 0; r < len(positions); {
		p := int(positions[r])
		if p < a.first {
			clear(a.out.slot.f[r*a.heads*a.vWidth : (r+1)*a.heads*a.vWidth])
			r++
			continue
		}
		n := 1
		for !a.alone && r+n < len(positions) && n < queryBlock && owners[r+n] == owners[r] &&
			int(positions[r+n]) == p+n {
			n++
		}
		lo, hi := a.sees(p), p+n
		if err := a.check(r, lo, hi); err != nil {
			return fmt.Errorf("block_attention: %w", err)
		}
		if few := (hi - lo + tokenPart - 1) / tokenPart; n == 1 && few > 1 {
			a.joins = append(a.joins, attentionJoin{r, parts, few})
			for i := range few {
				a.items = append(a.items, attentionItem{r, 1, p, lo + i*tokenPart, min(hi, lo+(i+1)*tokenPart),
					parts + i})
			}
			parts += few
		} else {
			a.items = append(a.items, attentionItem{r, n, p, lo, hi, -1})
		}
		r += n
	}
	slices.Reverse(a.items)
	a.partials = grow(a.partials, parts*a.heads*(a.vWidth+2))
	return nil
}

// sees returns the first position that a row at a position attends to.
func (a *blockAttention) sees(position int) int {
	if a.window == 0 {
		return a.first
	}
	return max(a.first, position-a.window+1)
}

// cost returns the bytes of caches that a call reads, and the operations of the products of queries with keys and of
// weights with values.
func (a *blockAttention) cost() (bytes, flops int) {
	for _, i := range a.items {
		bytes += a.kvHeads * (a.keys.Bytes(i.hi-i.lo) + a.values.Bytes(i.hi-i.lo))
		for r := range i.rows {
			flops += a.heads * (min(i.hi, i.position+r+1) - max(i.lo, a.sees(i.position+r)))
		}
	}
	return bytes, 2 * flops * (a.width + a.vWidth)
}

// run computes an item for the query heads of one cache head.
func (a *blockAttention) run(w *work, i *attentionItem, head int) {
	group := a.heads / a.kvHeads
	queries := i.rows * group
	w.start(queries, a.width, a.vWidth)
	in := a.q.floats()
	for r := range i.rows {
		for g := range group {
			from := (head*group+g)*a.q.stride[1] + (i.row+r)*a.q.stride[2]
			kernel.Scale(w.query[(r*group+g)*a.width:][:a.width], in[from:from+a.width], a.scale)
		}
	}
	if queries >= manyQueries {
		w.queries.Reset(kernel.Layout{Path: kernel.Exact, Format: kernel.F32}, queries, a.width)
		w.queries.Fill(w.query, a.width, 0, queries)
	}
	for at := i.lo; at < i.hi && !a.ended(); at += keyBlock {
		n := min(keyBlock, i.hi-at)
		a.add(w, i, head, queries, at, n, func(query int) (int, int) {
			p := i.position + query/group
			return a.sees(p) - at, p + 1 - at
		})
	}
	if i.part >= 0 {
		size := group * (a.vWidth + 2)
		part := a.partials[(i.part*a.kvHeads+head)*size:][:size]
		copy(part, w.acc)
		copy(part[group*a.vWidth:], w.max)
		copy(part[group*(a.vWidth+1):], w.sum)
		return
	}
	for r := range i.rows {
		for g := range group {
			at := r*group + g
			to := ((i.row+r)*a.heads + head*group + g) * a.vWidth
			kernel.Scale(a.out.slot.f[to:to+a.vWidth], w.acc[at*a.vWidth:(at+1)*a.vWidth], 1/w.sum[at])
		}
	}
}

// add adds the keys of n ≤ keyBlock positions to the sums of the queries, block by block.
func (a *blockAttention) add(w *work, i *attentionItem, head, queries, at, n int, bounds func(query int) (lo, hi int)) {
	scores := w.scores[:queries*n]
	a.eachRun(i.row, head, at, n, func(done, lo, hi int) {
		a.keys.each(w, lo, hi, func(rows *kernel.Matrix, at, lo, hi int) {
			if queries >= manyQueries {
				keys := rows.Slice(lo, hi)
				kernel.MatMul(scores[done+at:], n, &keys, &w.queries, 0, hi-lo)
				return
			}
			kernel.AttentionScores(scores[done+at:], n, w.query, a.width, queries, rows, lo, hi)
		})
	})
	w.weigh(scores, n, queries, a.vWidth, bounds)
	a.eachRun(i.row, head, at, n, func(done, lo, hi int) {
		a.values.each(w, lo, hi, func(rows *kernel.Matrix, at, lo, hi int) {
			kernel.AttentionValues(w.acc, a.vWidth, scores[done+at:], n, queries, rows, lo, hi)
		})
	})
}

// eachRun calls f for the parts of n positions, from at on, that are contiguous in the pool: with the number of
// positions before the part, and its rows of the pool. Neighbouring blocks of a sequence that was alone are merged.
func (a *blockAttention) eachRun(r, head, at, n int, f func(done, lo, hi int)) {
	for done := 0; done < n; {
		p := at + done
		block := a.block(r, p)
		first := (head*a.units+block)*a.rows + p%a.rows
		count := a.rows - p%a.rows
		for next := block + 1; count < n-done && a.block(r, p+count) == next; next++ {
			count += a.rows
		}
		count = min(count, n-done)
		f(done, first, first+count)
		done += count
	}
}

// join adds up the parts of a row in their order.
func (a *blockAttention) join(j *attentionJoin, head int) {
	group := a.heads / a.kvHeads
	size := group * (a.vWidth + 2)
	part := func(p int) []float32 { return a.partials[((j.part+p)*a.kvHeads+head)*size:][:size] }
	for g := range group {
		high := part(0)[group*a.vWidth+g]
		for p := range j.parts {
			high = max(high, part(p)[group*a.vWidth+g])
		}
		to := (j.row*a.heads + head*group + g) * a.vWidth
		row := a.out.slot.f[to : to+a.vWidth]
		clear(row)
		var sum float32
		for p := range j.parts {
			from := part(p)
			share := [1]float32{from[group*a.vWidth+g]}
			kernel.Exp(share[:], share[:], high)
			sum += float32(share[0] * from[group*(a.vWidth+1)+g])
			kernel.Axpy(row, share[0], from[g*a.vWidth:(g+1)*a.vWidth])
		}
		kernel.Scale(row, row, 1/sum)
	}
}
