package gpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/reference"
)

// slotted is a program of the operations on slots, for rows of up to five sequences: what fuse leaves of a layer of
// Qwen's.
const slotted = `module {
  symbol r [1, 96]
  symbol p [1, 64]
  constant @taps : f32[24,4,1]
  constant @qw : f32[32]
  constant @kw : f32[32]
  constant @bias : f32[4]
  constant @rate : f32[4]
  buffer @conv : %[1]s[12,4,24]
  buffer @delta : %[1]s[12,4,16,32]
  buffer @keys : %[1]s[3,12,5,2]
  entry forward(%%x: f32[1,r,24], %%qx: f32[1,r,2,32], %%kx: f32[1,r,2,32], %%v: f32[1,r,4,16], %%d: f32[1,r,4], %%u: f32[1,r,4], %%entries: i32[5,3], %%writes: i32[r]) {
    %%0 = slot_conv @conv(x=%%x, w=@taps, entries=%%entries, writes=%%writes) {activation="silu"} : f32[1,r,24]
    %%1 = rms_norm(x=%%qx, weight=@qw) {eps=1e-06} : f32[1,r,2,32]
    %%2 = rms_norm(x=%%kx, weight=@kw) {eps=1e-06} : f32[1,r,2,32]
    %%3 = delta_decay(x=%%d, bias=@bias, rate=@rate) : f32[1,r,4]
    %%4 = sigmoid(x=%%u) : f32[1,r,4]
    %%5 = slot_delta_rule @delta(q=%%1, k=%%2, v=%%v, g=%%3, beta=%%4, entries=%%entries, writes=%%writes) : f32[1,r,4,16]
    return %%0: f32[1,r,24], %%5: f32[1,r,4,16]
  }
  entry copy(%%pairs: i32[p,2]) {
    unit_copy @conv(pairs=%%pairs)
    unit_copy @delta(pairs=%%pairs) {axis=-4}
    unit_copy @keys(pairs=%%pairs) {axis=1}
    return
  }
}
`

// slottedModule is the program with states in a dtype. Keys have a length of about 1, and states decay.
func slottedModule(t *testing.T, dtype string) (*ir.Module, normal) {
	t.Helper()
	m, err := ir.Parse(fmt.Sprintf(slotted, dtype))
	require.NoError(t, err)
	random := normals(3)
	random.fill(t, m, 1)
	for _, c := range m.Constants {
		scale := map[string]float32{"kw": 0.17, "rate": -1}[c.Name]
		if scale == 0 {
			continue
		}
		n := c.Data.Shape()[0]
		values := random.tensor(t, int(n))
		for i, x := range values.F {
			values.F[i] = scale * max(x, -x)
		}
		c.Data = ir.Bytes(ir.F32, []int64{n}, values.Encode())
	}
	return m, random
}

// slotInputs are those of a call of so many rows, with its tables.
func slotInputs(t *testing.T, random normal, entries, writes []int64) (in []eval.Value) {
	t.Helper()
	n := len(writes)
	for _, shape := range [][]int{{1, n, 24}, {1, n, 2, 32}, {1, n, 2, 32}, {1, n, 4, 16}, {1, n, 4}, {1, n, 4}} {
		in = append(in, eval.Value{Tensor: random.tensor(t, shape...)})
	}
	return append(in, eval.Value{Tensor: eval.Ints(ir.I32, []int{5, 3}, entries)},
		eval.Value{Tensor: eval.Ints(ir.I32, []int{n}, writes)})
}

// slotCall makes the tables of a call in which sequence i has rows[i] rows, and one row belongs to none, of a pool of
// 12 slots. The first sequence updates its state in place, the second has none before, the third leaves the states
// after its last three rows, others leave theirs in another slot.
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

// slotShapes are calls of a row of nobody alone, one row, a row of each sequence, sequences without rows, chunks, and
// both.
var slotShapes = [][]int{{}, {1}, {1, 1, 1, 1, 1}, {0, 2, 0, 4}, {70}, {3, 1, 9, 0, 40}, {5, 33, 20}}

// TestSlots: operations on slots give what the reference engine gives, leave the same states, rounded after every
// row, and touch no slot that the call does not write.
func TestSlots(t *testing.T) {
	t.Parallel()
	for name, precision := range map[string]eval.Precision{"f32": eval.FP32, "bf16": eval.Mixed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, random := slottedModule(t, name)
			r := rand.New(rand.NewPCG(4, 4))
			o := engine.Options{Precision: precision, Exact: true, Threads: 1,
				Warn: func(text string) { t.Error(text) }}
			want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
			states := randomStates(t, m, random)
			require.NoError(t, want.(engine.Stateful).Restore(states))
			require.NoError(t, got.(engine.Stateful).Restore(states))
			for _, rows := range slotShapes {
				entries, writes := slotCall(r, rows)
				in := slotInputs(t, random, entries, writes)
				before, err := got.(engine.Stateful).Snapshot()
				require.NoError(t, err)
				a, err := want.Run(t.Context(), in)
				require.NoError(t, err)
				b, err := got.Run(t.Context(), in)
				require.NoError(t, err)
				tolerance := 2e-5
				if precision == eval.Mixed { // states are rounded after every row, some of them to the number beside
					tolerance = 2e-3
				}
				for i := range a {
					requireClose(t, []*eval.Tensor{a[i].Tensor}, []*eval.Tensor{b[i].Tensor}, tolerance)
				}
				requireSlots(t, want, got, before, writes, rows)
			}
		})
	}
}

// randomStates are random states of a module's buffers.
func randomStates(t *testing.T, m *ir.Module, random normal) (states []engine.State) {
	t.Helper()
	for _, b := range m.Buffers {
		dims, _ := b.Type.Static()
		shape := make([]int, len(dims))
		for i, d := range dims {
			shape[i] = int(d)
		}
		states = append(states, engine.State{Buffer: b.Name, Tensor: eval.ConvertState(random.tensor(t, shape...),
			b.Type.DType, eval.Strict)})
	}
	return states
}

// requireSlots requires that the slots that a call wrote hold what they do on the reference engine, and the others
// what they held before.
func requireSlots(t *testing.T, want, got engine.Instance, before []engine.State, writes []int64, rows []int) {
	t.Helper()
	reference, err := want.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	after, err := got.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	for i, s := range after {
		if s.Buffer == "keys" {
			require.Equal(t, before[i].Tensor.F, s.Tensor.F)
			continue
		}
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
			tolerance := 2e-5
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
	m, random := slottedModule(t, "f32")
	x := compile(t, onDevice(t), m, engine.Options{Precision: eval.FP32, Threads: 1})
	for want, c := range map[string]struct{ entry, writes []int64 }{
		"entry 0 has 3 rows from 0 on, the call has 2":  {[]int64{0, 3, 0}, []int64{-1, -1}},
		"entry 0 has 1 rows from 2 on, the call has 2":  {[]int64{2, 1, 0}, []int64{-1, -1}},
		"entry 0 has -1 rows from 0 on, the call has 2": {[]int64{0, -1, 0}, []int64{-1, -1}},
		"entry 0 reads slot 12 of 12":                   {[]int64{0, 2, 12}, []int64{-1, -1}},
		"row 1 writes slot 12 of 12":                    {[]int64{0, 2, 3}, []int64{-1, 12}},
	} {
		_, err := x.Run(t.Context(), slotInputs(t, random, append(c.entry, make([]int64, 12)...), c.writes))
		require.ErrorContains(t, err, want)
	}
}

// TestSlotsApart: what one sequence is fed reaches no other one in the call, not even what is no number, and no row
// of another length or place in the call changes a bit.
func TestSlotsApart(t *testing.T) {
	t.Parallel()
	m, random := slottedModule(t, "f32")
	r := rand.New(rand.NewPCG(5, 4))
	x := compile(t, onDevice(t), m, engine.Options{Precision: eval.FP32, Threads: 1})
	states := randomStates(t, m, random)
	for _, rows := range slotShapes[2:] {
		entries, writes := slotCall(r, rows)
		in := slotInputs(t, random, entries, writes)
		run := func() (out []eval.Value, after []engine.State) {
			require.NoError(t, x.(engine.Stateful).Restore(states))
			out, err := x.Run(t.Context(), in)
			require.NoError(t, err)
			after, err = x.(engine.Stateful).Snapshot()
			require.NoError(t, err)
			return out, after
		}
		out, after := run()
		for poisoned := range rows {
			first, n := int(entries[3*poisoned]), int(entries[3*poisoned+1])
			kept := make([][]float32, 6)
			for i := range kept {
				v := in[i].Tensor
				width := v.Len() / len(writes)
				part := v.F[first*width : (first+n)*width]
				kept[i] = slices.Clone(part)
				for j := range part {
					part[j] = float32(math.NaN())
				}
			}
			got, left := run()
			for i := range out {
				width := out[i].Tensor.Len() / len(writes)
				require.Equal(t, out[i].Tensor.F[:first*width], got[i].Tensor.F[:first*width],
					"%v, output %d before sequence %d", rows, i, poisoned)
				require.Equal(t, out[i].Tensor.F[(first+n)*width:], got[i].Tensor.F[(first+n)*width:],
					"%v, output %d behind sequence %d", rows, i, poisoned)
			}
			for i, s := range left {
				size := s.Tensor.Len() / 12
				for slot := range 12 {
					if !slices.Contains(writes[first:first+n], int64(slot)) {
						require.Equal(t, after[i].Tensor.F[slot*size:][:size], s.Tensor.F[slot*size:][:size],
							"%v, slot %d of @%s beside sequence %d", rows, slot, s.Buffer, poisoned)
					}
				}
			}
			for i := range kept {
				v := in[i].Tensor
				copy(v.F[first*v.Len()/len(writes):], kept[i])
			}
		}
	}
}

// TestWrongSlotKernels: what fails its self-test is not used.
func TestWrongSlotKernels(t *testing.T) {
	t.Parallel()
	for want, fault := range map[string]func(string, string) (string, error){
		"slot_conv/slot_conv is off by ": replace("slot_conv", "r - begin >= SLOT_HEAD",
			"r - begin > SLOT_HEAD"),
		"slot_delta/slot_delta is off by ": replace("slot_delta", "s[i] = slot < 0 ? 0.0f : s[i]",
			"s[i] = s[i]"),
		"unit_copy/unit_copy is off by ": replace("unit_copy", "int n = 0", "int n = 1"),
		"slot_delta_chunk/slot_delta_scan is off by ": replace("slot_delta_chunk", "precise::exp(end - sums",
			"precise::exp(sums"),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m, random := slottedModule(t, "f32")
			d := &faulty{fault: fault, compiled: map[string]int{}, changed: map[string]int{}}
			var warnings []string
			o := engine.Options{Precision: eval.FP32, Threads: 1,
				Warn: func(text string) { warnings = append(warnings, text) }}
			x := compile(t, gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
				Open: d.opener(onDevice(t).(gpu.Engine).Open)}, m, o)
			states := randomStates(t, m, random)
			truth := compile(t, reference.Engine{}, m, o)
			require.NoError(t, x.(engine.Stateful).Restore(states))
			require.NoError(t, truth.(engine.Stateful).Restore(states))
			entries, writes := slotCall(rand.New(rand.NewPCG(5, 5)), []int{3, 1, 9, 0, 40})
			in := slotInputs(t, random, entries, writes)
			a, err := truth.Run(t.Context(), in)
			require.NoError(t, err)
			b, err := x.Run(t.Context(), in)
			require.NoError(t, err)
			for i := range a {
				requireClose(t, []*eval.Tensor{a[i].Tensor}, []*eval.Tensor{b[i].Tensor}, 2e-5)
			}
			for _, i := range []engine.Instance{x, truth} {
				_, err := i.(engine.Entries).Call(t.Context(), "copy", []eval.Value{{Tensor: eval.Ints(ir.I32,
					[]int{2, 2}, []int64{0, 1, 1, 2})}})
				require.NoError(t, err)
			}
			before, err := truth.(engine.Stateful).Snapshot()
			require.NoError(t, err)
			after, err := x.(engine.Stateful).Snapshot()
			require.NoError(t, err)
			for i := range before {
				requireClose(t, []*eval.Tensor{before[i].Tensor}, []*eval.Tensor{after[i].Tensor}, 2e-5)
			}
			require.NotEmpty(t, d.changed)
			require.Contains(t, strings.Join(warnings, "\n"), want)
		})
	}
}

// TestUnitCopies: copies are made one after the other, along any axis, and those of what is not there are refused
// before anything is copied.
func TestUnitCopies(t *testing.T) {
	t.Parallel()
	for name, precision := range map[string]eval.Precision{"f32": eval.FP32, "bf16": eval.Mixed} {
		m, random := slottedModule(t, name)
		o := engine.Options{Precision: precision, Threads: 1, Warn: func(text string) { t.Error(text) }}
		want, got := compile(t, reference.Engine{}, m, o), compile(t, onDevice(t), m, o)
		states := randomStates(t, m, random)
		for _, x := range []engine.Instance{want, got} {
			require.NoError(t, x.(engine.Stateful).Restore(states))
		}
		same := func() {
			t.Helper()
			a, err := want.(engine.Stateful).Snapshot()
			require.NoError(t, err)
			b, err := got.(engine.Stateful).Snapshot()
			require.NoError(t, err)
			require.Equal(t, a, b)
		}
		copies := func(x engine.Instance, pairs ...int64) error {
			_, err := x.(engine.Entries).Call(t.Context(), "copy", []eval.Value{{Tensor: eval.Ints(ir.I32,
				[]int{len(pairs) / 2, 2}, pairs)}})
			return err
		}
		for _, pairs := range [][]int64{{3, 4}, {0, 1, 1, 2, -1, 5, 2, 11, 7, -3, 4, 0}, {5, 5}} {
			require.NoError(t, copies(want, pairs...))
			require.NoError(t, copies(got, pairs...))
			same()
		}
		require.ErrorContains(t, copies(got, 1, 2, 3, 12), "unit_copy: unit 3 to 12, the buffer has 12")
		require.ErrorContains(t, copies(got, 12, 2), "unit_copy: unit 12 to 2, the buffer has 12")
		same()
	}
}

// TestSlotCuts: see enginetest.Cuts.
func TestSlotCuts(t *testing.T) {
	t.Parallel()
	enginetest.Cuts(t, onDevice(t))
}
