package eval

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// interleaved cuts the rows of some sequences of equal lengths into calls: in each call every sequence has some rows
// or none. It gives the rows of each sequence, by call.
func interleaved(r *rand.Rand, sequences, total int) [][]int {
	fed := make([]int, sequences)
	var calls [][]int
	for slices.Min(fed) < total {
		call := make([]int, sequences)
		for i := range call {
			call[i] = min(r.IntN(4), total-fed[i])
			fed[i] += call[i]
		}
		calls = append(calls, call)
	}
	return calls
}

// rowsAlong joins rows of some tensors along an axis: counts[i] of tensor i from from[i] on, and one row of zeros at
// the end.
func rowsAlong(t *testing.T, axis int, tensors []*Tensor, from, counts []int) *Tensor {
	var parts []*Tensor
	for i, x := range tensors {
		if counts[i] > 0 {
			parts = append(parts, part(t, x, axis, from[i], from[i]+counts[i]))
		}
	}
	zeros := part(t, tensors[0], axis, 0, 1).Clone()
	clear(zeros.F)
	return join(t, axis, append(parts, zeros)...)
}

// TestRowsOfBlocks: a row of attention over blocks gives what the row gives in a cache of its sequence alone, bit for
// bit, whatever else is in the call, however rows are cut and wherever blocks lie. The blocks that nobody has hold
// NaN.
func TestRowsOfBlocks(t *testing.T) {
	const sequences, total, heads, kvHeads, width, rows = 3, 19, 4, 2, 8, 4
	for _, window := range []int{0, 5} {
		for _, dtype := range []ir.DType{ir.F32, ir.BF16} {
			r := rand.New(rand.NewPCG(1, uint64(window)))
			var q, k, v, want []*Tensor
			for i := range sequences {
				q, k, v = append(q, noise(r, 1, heads, total, width)), append(k, noise(r, 1, kvHeads, total, width)),
					append(v, noise(r, 1, kvHeads, total, width))
				want = append(want, aloneAttention(t, q[i], k[i], v[i], dtype, window))
			}
			columns := (total + rows - 1) / rows
			if window > 0 {
				columns = (window+3)/rows + 2 // what a call of at most 3 rows sees
			}
			units := sequences*columns + 3
			ids := r.Perm(units)
			keys, values := pool(units, kvHeads, rows, width, dtype), pool(units, kvHeads, rows, width, dtype)
			table := Ints(ir.I32, []int{sequences + 1, columns}, slices.Repeat([]int64{-1}, (sequences+1)*columns))
			for i := range sequences * columns {
				table.I[i] = int64(ids[i])
			}
			fed := make([]int, sequences)
			for _, counts := range interleaved(r, sequences, total) {
				var positions, owners []int64
				for i, n := range counts {
					for j := range n {
						positions, owners = append(positions, int64(fed[i]+j)), append(owners, int64(i))
					}
				}
				tables := []any{list(ir.I64, append(positions, -1)...), list(ir.I32, append(owners, -1)...), table}
				update(t, "block_write", nil, Mixed, keys, append([]any{rowsAlong(t, 2, k, fed, counts)}, tables...)...)
				update(t, "block_write", nil, Mixed, values, append([]any{rowsAlong(t, 2, v, fed, counts)},
					tables...)...)
				got := run(t, "block_attention", &ir.CachedAttentionAttrs{Scale: 0.5, Window: window}, Mixed,
					append([]any{rowsAlong(t, 2, q, fed, counts), keys, values}, tables...)...)[0]
				require.Equal(t, rowsAlong(t, 2, want, fed, counts).F, got.F)
				for i, n := range counts {
					fed[i] += n
				}
			}
		}
	}
}

// aloneAttention runs one sequence row by row through caches that hold all of it.
func aloneAttention(t *testing.T, q, k, v *Tensor, dtype ir.DType, window int) *Tensor {
	total := q.Shape[2]
	keys, values := zerosLike(k, dtype), zerosLike(v, dtype)
	var out []*Tensor
	for p := range total {
		update(t, "buffer_ring_update", &ir.AxisAttrs{Axis: 2}, Mixed, keys, part(t, k, 2, p, p+1), p)
		update(t, "buffer_ring_update", &ir.AxisAttrs{Axis: 2}, Mixed, values, part(t, v, 2, p, p+1), p)
		out = append(out, run(t, "cached_attention", &ir.CachedAttentionAttrs{Scale: 0.5, Window: window}, Mixed,
			part(t, q, 2, p, p+1), keys, values, p)[0])
	}
	return join(t, 2, out...)
}

// zerosLike makes zeros of the shape of x.
func zerosLike(x *Tensor, d ir.DType) *Tensor {
	return Floats(d, slices.Clone(x.Shape), make([]float32, x.Len()))
}

func noise(r *rand.Rand, shape ...int) *Tensor {
	x := floats(shape...)
	for i := range x.F {
		x.F[i] = float32(r.NormFloat64())
	}
	return x
}

func pool(units, heads, rows, width int, d ir.DType) *Tensor {
	return Floats(d, []int{heads, units, rows, width}, slices.Repeat([]float32{float32(math.NaN())},
		units*heads*rows*width))
}

// TestFirstPosition: attention that begins at a position is attention of a sequence that begins there, and rows before
// it give zeros.
func TestFirstPosition(t *testing.T) {
	const total, first, width = 7, 2, 3
	r := rand.New(rand.NewPCG(5, 5))
	q, k, v := noise(r, 1, 2, total, width), noise(r, 1, 1, total, width), noise(r, 1, 1, total, width)
	keys, values := pool(4, 1, 2, width, ir.F32), pool(4, 1, 2, width, ir.F32)
	positions, owners := make([]int64, total), make([]int64, total)
	for i := range positions {
		positions[i] = int64(i)
	}
	tables := []any{list(ir.I64, positions...), list(ir.I32, owners...), Ints(ir.I32, []int{1, 4}, []int64{2, 0, 3, 1})}
	update(t, "block_write", nil, Mixed, keys, append([]any{k}, tables...)...)
	update(t, "block_write", nil, Mixed, values, append([]any{v}, tables...)...)
	for _, window := range []int{0, 3} {
		got := run(t, "block_attention", &ir.CachedAttentionAttrs{Scale: 0.5, Window: window, First: first}, Mixed,
			append([]any{q, keys, values}, tables...)...)[0]
		want := aloneAttention(t, part(t, q, 2, first, total), part(t, k, 2, first, total), part(t, v, 2, first, total),
			ir.F32, window)
		require.Equal(t, make([]float32, 2*first*width), part(t, got, 2, 0, first).F)
		require.Equal(t, want.F, part(t, got, 2, first, total).F)
	}
}

// TestRowsOfSlots: a row of a convolution and of a delta rule over slots gives what it gives in a sequence alone that
// is fed row by row, bit for bit, and leaves the state of that behind every row that asks for it. Slots begin as NaN.
func TestRowsOfSlots(t *testing.T) {
	const sequences, total, channels, taps, heads, width = 3, 13, 6, 4, 2, 8
	for name, c := range map[string]struct {
		op, alone string
		attrs     any
		state     []int
		widths    [][]int // of the operands that have rows
		shared    []*Tensor
	}{
		"conv": {"slot_conv", "buffer_conv", &ir.BufferConvAttrs{Activation: "silu"}, []int{taps, channels},
			[][]int{{channels}}, []*Tensor{floats(channels, taps, 1)}},
		"conv, first": {"slot_conv", "buffer_conv", &ir.BufferConvAttrs{ChannelFirst: true}, []int{channels, taps},
			[][]int{{channels}}, []*Tensor{floats(channels, taps, 1)}},
		"delta": {"slot_delta_rule", "buffer_delta_rule", nil, []int{heads, width, width}, [][]int{{1, width},
			{1, width}, {heads, width}, {heads}, {heads}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			size := 1
			for _, n := range c.state {
				size *= n
			}
			operands := make([][]*Tensor, len(c.widths)) // by operand, by sequence
			for i, w := range c.widths {
				for range sequences {
					operands[i] = append(operands[i], noise(r, append([]int{1, total}, w...)...))
				}
			}
			want, states := make([]*Tensor, sequences), make([][][]float32, sequences)
			for i := range sequences {
				state := Floats(ir.BF16, append([]int{1}, c.state...), make([]float32, size))
				var rows []*Tensor
				for p := range total {
					var args []any
					for _, x := range operands {
						args = append(args, part(t, x[i], 1, p, p+1))
					}
					for _, x := range c.shared {
						args = append(args, x)
					}
					rows = append(rows, update(t, c.alone, c.attrs, Mixed, state, args...))
					states[i] = append(states[i], slices.Clone(state.F))
				}
				want[i] = join(t, 1, rows...)
			}
			const units = 12
			slots := Floats(ir.BF16, append([]int{units}, c.state...), slices.Repeat([]float32{float32(math.NaN())},
				units*size))
			fed, at := make([]int, sequences), []int64{-1, -1, -1}
			for _, counts := range interleaved(r, sequences, total) {
				free := r.Perm(units)
				free = slices.DeleteFunc(free, func(n int) bool { return slices.Contains(at, int64(n)) })
				var entries, writes []int64
				next := slices.Clone(at)
				for i, n := range counts {
					entries = append(entries, int64(len(writes)), int64(n), at[i])
					for j := range n {
						to := int64(-1)
						if j == n-1 || j == 0 { // the state after the first row is a checkpoint
							to, free = int64(free[0]), free[1:]
							next[i] = to
						}
						writes = append(writes, to)
					}
				}
				var args []any
				for _, x := range operands {
					args = append(args, rowsAlong(t, 1, x, fed, counts))
				}
				for _, x := range c.shared {
					args = append(args, x)
				}
				args = append(args, Ints(ir.I32, []int{sequences, 3}, entries), list(ir.I32, append(writes, -1)...))
				got := update(t, c.op, c.attrs, Mixed, slots, args...)
				require.Equal(t, rowsAlong(t, 1, want, fed, counts).F, got.F)
				for i := range counts {
					for j := range counts[i] {
						if to := writes[int(entries[3*i])+j]; to >= 0 {
							require.Equal(t, states[i][fed[i]+j], slots.F[int(to)*size:int(to+1)*size])
						}
					}
					fed[i] += counts[i]
				}
				at = next
			}
		})
	}
}

// TestRopeRows: each row turns as in a call of one row at its position.
func TestRopeRows(t *testing.T) {
	x, positions := floats(1, 3, 5, 8), []int64{7, 0, 1000, 3, 3}
	for _, attrs := range []*ir.RopeAttrs{{Dims: 6, Base: 1e4, Scale: 0.5}, {Dims: 8, Base: 1e4, Scale: 1,
		Traditional: true}} {
		got := run(t, "rope_rows", attrs, FP32, x, list(ir.I64, positions...))[0]
		for i, p := range positions {
			want := run(t, "rope", attrs, FP32, part(t, x, 2, i, i+1), int(p))[0]
			require.Equal(t, want.F, part(t, got, 2, i, i+1).F)
		}
	}
}

// TestUnitCopy: pairs are copied one after the other, and negative ones are none.
func TestUnitCopy(t *testing.T) {
	state := iota32(4, 2)
	update(t, "unit_copy", nil, FP32, state, Ints(ir.I32, []int{3, 2}, []int64{0, 2, -1, -1, 2, 3}))
	require.Equal(t, []float32{0, 1, 2, 3, 0, 1, 0, 1}, state.F)
	update(t, "unit_copy", &ir.AxisAttrs{Axis: 1}, FP32, state, Ints(ir.I32, []int{1, 2}, []int64{1, 0}))
	require.Equal(t, []float32{1, 1, 3, 3, 1, 1, 1, 1}, state.F)
	_, err := tryUpdate("unit_copy", nil, FP32, state, Ints(ir.I32, []int{1, 2}, []int64{0, 4}))
	require.ErrorContains(t, err, "unit 0 to 4, the buffer has 4")
}

// TestRaggedErrors: tables that name what is not there are errors.
func TestRaggedErrors(t *testing.T) {
	k := floats(1, 2, 4, 8)
	attend := func(want string, position, sequence, block int64) {
		requireError(t, want, "block_attention", &ir.CachedAttentionAttrs{Scale: 1}, floats(1, 1, 1, 8), k, k,
			list(ir.I64, position), list(ir.I32, sequence), Ints(ir.I32, []int{1, 1}, []int64{block}))
	}
	attend("row 0: position 0 of sequence 0 is in block 2 of 2", 3, 0, 2)
	attend("row 0: position 0 of sequence 0 is in block -1 of 2", 3, 0, -1)
	attend("row 0 is of sequence 1, the table of blocks has 1", 3, 1, 0)
	conv := func(want string, write int64, entry ...int64) {
		_, err := tryUpdate("slot_conv", nil, FP32, floats(2, 4, 3), floats(1, 2, 3), floats(3, 4, 1), Ints(ir.I32,
			[]int{1, 3}, entry), list(ir.I32, write, -1))
		require.ErrorContains(t, err, want)
	}
	conv("entry 0 has 3 rows from 0 on, the call has 2", -1, 0, 3, -1)
	conv("entry 0 reads slot 2 of 2", -1, 0, 1, 2)
	conv("row 0 writes slot 5 of 2", 5, 0, 1, 0)
}
