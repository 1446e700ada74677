package enginetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// pools is a module with pools of units, of every kind of element that engines hold in a way of its own.
const pools = `module {
  buffer @f32 : f32[2,5,3]
  buffer @bf16 : bf16[2,5,3]
  buffer @f16 : f16[2,5,3]
  buffer @i64 : i64[2,5,3]
  buffer @u32 : u32[2,5,3]
  entry forward(%x: f32[1]) {
    %0 = load @f32() : f32[2,5,3]
    %1 = load @bf16() : bf16[2,5,3]
    %2 = load @f16() : f16[2,5,3]
    %3 = load @i64() : i64[2,5,3]
    %4 = load @u32() : u32[2,5,3]
    %5 = add(a=%x, b=%x) : f32[1]
    return %5: f32[1]
  }
}
`

// Units reads and writes units of buffers: contents have the bytes that engine.Units tells, to the bit, whatever form
// the engine holds the elements in, and what is left out stays.
func Units(t *testing.T, e engine.Engine) {
	m, err := ir.Parse(pools)
	require.NoError(t, err)
	for _, p := range []eval.Precision{eval.FP32, eval.Mixed} {
		x := Start(t, e, m, engine.Options{Precision: p, Threads: 1, Warn: func(string) {}})
		units, state := x.(engine.Units), x.(engine.Stateful)
		content := poolStates(t, m, p)
		require.NoError(t, state.Restore(content))
		for i, s := range content {
			name := fmt.Sprint(p, " ", s.Buffer)
			stored := *s.Tensor
			stored.DType = eval.StateDType(s.Tensor.DType, p)
			size := 3 * stored.DType.Size()
			all := stored.Encode()
			var want []byte
			for _, at := range []int{4, 1, 2, 9, 6, 7} {
				want = append(want, all[at*size:(at+1)*size]...)
			}
			got, err := units.ReadUnits(s.Buffer, 1, []int32{4, 1, 2})
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			require.NoError(t, units.WriteUnits(s.Buffer, 1, []int32{0, -1, 3}, got), name)
			for to, from := range map[int]int{0: 4, 3: 2, 5: 9, 8: 7} {
				copy(all[to*size:(to+1)*size], want[size*map[int]int{4: 0, 2: 2, 9: 3, 7: 5}[from]:])
			}
			after, err := state.Snapshot()
			require.NoError(t, err, name)
			stored = *after[i].Tensor
			stored.DType = eval.StateDType(stored.DType, p)
			require.Equal(t, all, stored.Encode(), name)
			require.ErrorContains(t, units.WriteUnits(s.Buffer, 1, []int32{0, -1, 3}, got[1:]),
				"the content of buffer @"+s.Buffer+" has ", name)
		}
	}
}

// poolStates makes contents that lose something wherever they are rounded more than the precision has it.
func poolStates(t *testing.T, m *ir.Module, p eval.Precision) []engine.State {
	t.Helper()
	var out []engine.State
	for _, b := range m.Buffers {
		x, err := eval.NewTensor(b.Type.DType, 2, 5, 3)
		require.NoError(t, err)
		for i := range x.F {
			x.F[i] = float32(i+1) / 7
		}
		for i := range x.I {
			x.I[i] = 1<<31 + int64(i)
			if x.DType == ir.I64 {
				x.I[i] -= 1 << 40
			}
		}
		if p != eval.FP32 {
			if x, err = eval.Decode(x.DType, x.Shape, x.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, engine.State{Buffer: b.Name, Tensor: x})
	}
	return out
}
