package gpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// slotted is a program of the operations on slots, for rows of up to five sequences.
const slotted = `module {
  symbol r [1, 96]
  constant @taps : f32[24,4,1]
  buffer @conv : %[1]s[12,4,24]
  entry forward(%%x: f32[1,r,24], %%entries: i32[5,3], %%writes: i32[r]) {
    %%0 = slot_conv @conv(x=%%x, w=@taps, entries=%%entries, writes=%%writes) {activation="silu"} : f32[1,r,24]
    return %%0: f32[1,r,24]
  }
}
`

// slotCall makes the tables of a call in which sequence i has rows[i] rows, and one row belongs to none, of a pool of 12 slots. The
// first sequence updates its state in place, the second has none before, the third leaves the states behind its last
// three rows, others leave theirs in another slot.
func slotCall(r *rand.Rand, rows []int) (entries, writes []int64) {
	entries = make([]int64, 15)
	free := r.Perm(12)
	slot := func() int64 {
		s := free[0]
		free = free[1:]
		return int64(s)
	}
	for i, n := range rows {
		first := len(writes)
		for range n {
			writes = append(writes, -1)
		}
		reads := slot()
		if n > 0 {
			switch i {
			case 0:
				writes[len(writes)-1] = reads
			case 2:
				for j := max(first, len(writes)-3); j < len(writes); j++ {
					writes[j] = slot()
				}
			default:
				writes[len(writes)-1] = slot()
			}
		}
		if i == 1 {
			reads = -1
		}
		copy(entries[3*i:], []int64{int64(first), int64(n), reads})
	}
	return entries, append(writes, -1)
}

// slotShapes are calls of one row, a row of each sequence, sequences without rows, chunks, and both.
var slotShapes = [][]int{{1}, {1, 1, 1, 1, 1}, {0, 2, 0, 4}, {70}, {3, 1, 9, 0, 40}, {5, 33, 20}}

// TestSlots: operations on slots give what the reference engine gives, leave the same states, rounded after every row, and
// touch no slot that the call does not write.
func TestSlots(t *testing.T) {
	t.Parallel()
	for name, precision := range map[string]eval.Precision{"f32": eval.FP32, "bf16": eval.Mixed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := ir.Parse(fmt.Sprintf(slotted, name))
			require.NoError(t, err)
			random, r := normals(3), rand.New(rand.NewPCG(4, 4))
			random.fill(t, m, 1)
			o := engine.Options{Precision: precision, Exact: true, Threads: 1, Warn: func(text string) { t.Error(text) }}
			want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
			var states []engine.State
			for _, b := range m.Buffers {
				dims, _ := b.Type.Static()
				shape := make([]int, len(dims))
				for i, d := range dims {
					shape[i] = int(d)
				}
				states = append(states, engine.State{Buffer: b.Name, Tensor: eval.ConvertState(random.tensor(t, shape...), b.Type.DType, eval.Strict)})
			}
			require.NoError(t, want.(engine.Stateful).Restore(states))
			require.NoError(t, got.(engine.Stateful).Restore(states))
			for _, rows := range slotShapes {
				entries, writes := slotCall(r, rows)
				n := len(writes)
				in := []eval.Value{{Tensor: random.tensor(t, 1, n, 24)},
					{Tensor: eval.Ints(ir.I32, []int{5, 3}, entries)}, {Tensor: eval.Ints(ir.I32, []int{n}, writes)}}
				before, err := got.(engine.Stateful).Snapshot()
				require.NoError(t, err)
				a, err := want.Run(t.Context(), in)
				require.NoError(t, err)
				b, err := got.Run(t.Context(), in)
				require.NoError(t, err)
				for i := range a {
					requireClose(t, []*eval.Tensor{a[i].Tensor}, []*eval.Tensor{b[i].Tensor}, 1e-5)
				}
				requireSlots(t, want, got, before, writes, rows)
			}
		})
	}
}

// requireSlots requires that the slots that a call wrote hold what they do on the reference engine, and the others what they
// held before.
func requireSlots(t *testing.T, want, got engine.Instance, before []engine.State, writes []int64, rows []int) {
	t.Helper()
	reference, err := want.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	after, err := got.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	for i, s := range after {
		size := s.Tensor.Len() / 12
		written := map[int64]bool{}
		for _, to := range writes {
			written[to] = true
		}
		for slot := range 12 {
			part := func(s engine.State) *eval.Tensor {
				return eval.Floats(ir.F32, []int{size}, s.Tensor.F[slot*size:][:size])
			}
			if !written[int64(slot)] {
				require.Equal(t, part(before[i]).F, part(s).F, "%v: slot %d of @%s", rows, slot, s.Buffer)
				continue
			}
			tolerance := 1e-5
			if s.Tensor.DType == ir.BF16 {
				tolerance = 1. / 128
			}
			requireClose(t, []*eval.Tensor{part(reference[i])}, []*eval.Tensor{part(s)}, tolerance)
		}
	}
	require.NoError(t, got.(engine.Stateful).Restore(reference))
}

// TestSlotsThatAreNotThere: tables are checked before anything runs.
func TestSlotsThatAreNotThere(t *testing.T) {
	t.Parallel()
	m, err := ir.Parse(fmt.Sprintf(slotted, "f32"))
	require.NoError(t, err)
	random := normals(3)
	random.fill(t, m, 1)
	x := compile(t, onDevice(t), m, engine.Options{Precision: eval.FP32, Threads: 1})
	for want, c := range map[string]struct{ entry, writes []int64 }{
		"entry 0 has 3 rows from 0 on, the call has 2":  {[]int64{0, 3, 0}, []int64{-1, -1}},
		"entry 0 has 1 rows from 2 on, the call has 2":  {[]int64{2, 1, 0}, []int64{-1, -1}},
		"entry 0 has -1 rows from 0 on, the call has 2": {[]int64{0, -1, 0}, []int64{-1, -1}},
		"entry 0 reads slot 12 of 12":                   {[]int64{0, 2, 12}, []int64{-1, -1}},
		"row 1 writes slot 12 of 12":                    {[]int64{0, 2, 3}, []int64{-1, 12}},
	} {
		_, err := x.Run(t.Context(), []eval.Value{{Tensor: random.tensor(t, 1, 2, 24)},
			{Tensor: eval.Ints(ir.I32, []int{5, 3}, append(c.entry, make([]int64, 12)...))}, {Tensor: eval.Ints(ir.I32, []int{2}, c.writes)}})
		require.ErrorContains(t, err, want)
	}
}
