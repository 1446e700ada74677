package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// recurrent is a program of recurrent states in slots: of the operands of its entry, all but the tables are rows of
// numbers.
const recurrent = `module {
  symbol r [1, 96]
  constant @taps : f32[24,4,1]
  constant @bias : f32[4]
  constant @rate : f32[4]
  buffer @conv : %[1]s[6,4,24]
  buffer @delta : %[1]s[6,4,16,32]
  entry forward(%%x: f32[1,r,24], %%q: f32[1,r,2,32], %%k: f32[1,r,2,32], %%v: f32[1,r,4,16], %%d: f32[1,r,4], %%u: f32[1,r,4], %%entries: i32[3,3], %%writes: i32[r]) {
    %%0 = slot_conv @conv(x=%%x, w=@taps, entries=%%entries, writes=%%writes) {activation="silu"} : f32[1,r,24]
    %%1 = delta_decay(x=%%d, bias=@bias, rate=@rate) : f32[1,r,4]
    %%2 = sigmoid(x=%%u) : f32[1,r,4]
    %%3 = slot_delta_rule @delta(q=%%q, k=%%k, v=%%v, g=%%1, beta=%%2, entries=%%entries, writes=%%writes) : f32[1,r,4,16]
    return %%0: f32[1,r,24], %%3: f32[1,r,4,16]
  }
}
`

// cuts runs one sequence of the program.
type cuts struct {
	*rand.Rand
	x      engine.Instance
	states []engine.State
	rows   []*eval.Tensor // of the sequence
}

// total is the number of rows of the sequence.
const total = 60

// tensor makes numbers of a deviation of 0.3, so that keys are not much longer than 1.
func (c *cuts) tensor(d ir.DType, shape ...int) *eval.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(c.NormFloat64()) * 0.3
	}
	return eval.ConvertState(eval.Floats(ir.F32, shape, values), d, eval.Strict)
}

// inputs returns random ones of so many rows.
func (c *cuts) inputs(rows int) (out []*eval.Tensor) {
	for _, shape := range [][]int{{1, rows, 24}, {1, rows, 2, 32}, {1, rows, 2, 32}, {1, rows, 4, 16}, {1, rows, 4},
		{1, rows, 4}} {
		out = append(out, c.tensor(ir.F32, shape...))
	}
	return out
}

// run feeds the sequence, whose state lies in slot 3, in pieces, each of them after rows of another one where beside
// is set. It gives the sequence's results and its state.
func (c *cuts) run(t *testing.T, pieces []int, beside bool) (results [4][]float32) {
	t.Helper()
	require.NoError(t, c.x.(engine.Stateful).Restore(c.states))
	at := 0
	for _, n := range pieces {
		before, entries := 0, make([]int64, 9)
		if beside {
			before = 1 + c.IntN(20)
			copy(entries, []int64{0, int64(before), -1})
		}
		copy(entries[6:], []int64{int64(before), int64(n), 3})
		writes := slices.Repeat([]int64{-1}, before+n)
		writes[before+n-1] = 3
		var in []eval.Value
		for i, v := range c.inputs(before + n) {
			width := c.rows[i].Len() / total
			copy(v.F[before*width:], c.rows[i].F[at*width:(at+n)*width])
			in = append(in, eval.Value{Tensor: v})
		}
		in = append(in, eval.Value{Tensor: eval.Ints(ir.I32, []int{3, 3}, entries)},
			eval.Value{Tensor: eval.Ints(ir.I32, []int{before + n}, writes)})
		out, err := c.x.Run(t.Context(), in)
		require.NoError(t, err)
		for i, v := range out {
			results[i] = append(results[i], v.Tensor.F[before*v.Tensor.Len()/(before+n):]...)
		}
		at += n
	}
	after, err := c.x.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	for i, s := range after {
		size := s.Tensor.Len() / 6
		results[2+i] = s.Tensor.F[3*size : 4*size]
	}
	return results
}

// Cuts requires that the rows of a sequence with recurrent states give the same however they are cut into calls, and
// whatever else is in these: to the bit in mixed, where states are rounded after every row, and to the order of sums
// in float32.
func Cuts(t *testing.T, e engine.Engine) {
	for dtype, precision := range map[string]eval.Precision{"f32": eval.FP32, "bf16": eval.Mixed} {
		t.Run(dtype, func(t *testing.T) {
			m, err := ir.Parse(fmt.Sprintf(recurrent, dtype))
			require.NoError(t, err)
			c := &cuts{Rand: rand.New(rand.NewPCG(6, 1))}
			for _, k := range m.Constants {
				dims, _ := k.Value.Type.Static()
				values := c.tensor(ir.F32, int(ir.Elements(dims)))
				for i, v := range values.F {
					if k.Name == "rate" {
						values.F[i] = -max(v, -v) // states decay
					}
				}
				k.Data = ir.Bytes(ir.F32, dims, values.Encode())
			}
			for _, b := range m.Buffers {
				dims, _ := b.Type.Static()
				var shape []int
				for _, d := range dims {
					shape = append(shape, int(d))
				}
				c.states = append(c.states, engine.State{Buffer: b.Name, Tensor: c.tensor(b.Type.DType, shape...)})
			}
			c.x, c.rows = Start(t, e, m, engine.Options{Precision: precision, Exact: true, Threads: 2}), c.inputs(total)
			whole := c.run(t, []int{total}, false)
			for range 4 {
				var pieces []int
				for left := total; left > 0; left -= pieces[len(pieces)-1] {
					pieces = append(pieces, 1+c.IntN(min(left, 25)))
				}
				for i, got := range c.run(t, pieces, true) {
					if precision == eval.Mixed {
						require.Equal(t, whole[i], got, "result %d in pieces of %v", i, pieces)
						continue
					}
					RequireClose(t, []*eval.Tensor{eval.Floats(ir.F32, []int{len(got)}, whole[i])},
						[]*eval.Tensor{eval.Floats(ir.F32, []int{len(got)}, got)}, 2e-5)
				}
			}
		})
	}
}
