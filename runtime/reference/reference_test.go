package reference

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// accumulate adds its input and a derived constant to its state, in bf16.
const accumulate = `module {
  constant @one : f32[]
  constant @two : f32[]
  buffer @sum : bf16[2]
  buffer @steps : i64[]
  init {
    %0 = add(a=@one, b=@one) : f32[]
    derive ^two = %0
  }
  entry forward(%x: bf16[2], %step: i64[]) {
    %0 = load @sum() : bf16[2]
    %1 = add(a=%0, b=%x) : bf16[2]
    store @sum(x=%1)
    %2 = load @steps() : i64[]
    %3 = add(a=%2, b=%step) : i64[]
    store @steps(x=%3)
    %4 = multiply(a=%1, b=^two) : f32[2]
    return %4: f32[2], %3: i64[]
  }
}
`

func compile(t *testing.T, p eval.Precision) engine.Executable {
	t.Helper()
	m, err := ir.Parse(accumulate)
	require.NoError(t, err)
	for _, c := range m.Constants {
		c.Data = ir.Float32s(nil, 1)
	}
	x, err := Engine{}.Compile(m, engine.Options{Precision: p})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func newInstance(t *testing.T, x engine.Executable) engine.Instance {
	t.Helper()
	i, err := x.NewInstance()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	return i
}

// run feeds [v, 1] and gives both elements of the first output and the number of steps.
func run(t *testing.T, i engine.Instance, v float32) (a, b float32, steps int64) {
	t.Helper()
	out, err := i.Run(t.Context(), []eval.Value{{Tensor: eval.Floats(ir.BF16, []int{2}, []float32{v, 1})},
		{Tensor: eval.Ints(ir.I64, []int{}, []int64{1})}})
	require.NoError(t, err)
	return out[0].Tensor.F[0], out[0].Tensor.F[1], out[1].Tensor.I[0]
}

// TestInstances: sessions that run in turns share nothing but constants, and a reset is of one of them.
func TestInstances(t *testing.T) {
	require.Equal(t, "reference", Engine{}.Name())
	x := compile(t, eval.FP32)
	first, second := newInstance(t, x), newInstance(t, x)
	for n := range 5 {
		a, b, steps := run(t, first, 3)
		require.Equal(t, []float32{float32(6 * (n + 1)), float32(2 * (n + 1))}, []float32{a, b})
		require.EqualValues(t, n+1, steps)
		a, _, _ = run(t, second, -1)
		require.Equal(t, float32(-2*(n+1)), a)
	}
	require.NoError(t, first.Reset())
	a, _, steps := run(t, first, 3)
	require.Equal(t, float32(6), a)
	require.EqualValues(t, 1, steps)
	a, _, steps = run(t, second, -1)
	require.Equal(t, float32(-12), a)
	require.EqualValues(t, 6, steps)
}

// TestPrecision: the executable's precision is that of its instances.
func TestPrecision(t *testing.T) {
	for p, want := range map[eval.Precision]float32{eval.FP32: 2 * 257.5, eval.Mixed: 2 * 257.5, eval.Strict: 2 * 258} {
		i := newInstance(t, compile(t, p))
		a, _, _ := run(t, i, 257.5) // bf16 holds 256 and 258
		require.Equal(t, want, a, "precision %d", p)
		a, _, _ = run(t, i, 0)
		if p == eval.Mixed {
			want = 2 * 258 // what was written to the state
		}
		require.Equal(t, want, a, "precision %d", p)
	}
}

// TestInstancesAtTheSameTime: an executable is safe for concurrent use (run with -race).
func TestInstancesAtTheSameTime(t *testing.T) {
	x := compile(t, eval.FP32)
	var wait sync.WaitGroup
	failed := make([]error, 8)
	for n := range failed {
		wait.Go(func() {
			i, err := x.NewInstance()
			for step := 0; err == nil && step < 20; step++ {
				var out []eval.Value
				out, err = i.Run(t.Context(),
					[]eval.Value{{Tensor: eval.Floats(ir.BF16, []int{2}, []float32{float32(n), 1})},
						{Tensor: eval.Ints(ir.I64, []int{}, []int64{1})}})
				if want := float32(2 * n * (step + 1)); err == nil && out[0].Tensor.F[0] != want {
					err = fmt.Errorf("step %d: %v, want %v", step, out[0].Tensor.F[0], want)
				}
			}
			failed[n] = err
		})
	}
	wait.Wait()
	for _, err := range failed {
		require.NoError(t, err)
	}
}

// TestSnapshot: going back gives the same bits as never having gone on, and a snapshot is nobody's state.
func TestSnapshot(t *testing.T) {
	x := compile(t, eval.FP32)
	i := newInstance(t, x).(engine.Stateful)
	run(t, i.(engine.Instance), 1.001)
	states, err := i.Snapshot()
	require.NoError(t, err)
	require.Equal(t, []string{"sum", "steps"}, []string{states[0].Buffer, states[1].Buffer})
	want, _, _ := run(t, i.(engine.Instance), 0.1)
	run(t, i.(engine.Instance), 5)
	other := newInstance(t, x).(engine.Stateful)
	for _, restored := range []engine.Stateful{i, other} {
		require.NoError(t, restored.Restore(states))
		got, _, steps := run(t, restored.(engine.Instance), 0.1)
		require.Equal(t, want, got)
		require.EqualValues(t, 2, steps)
	}
	require.Error(t, i.Restore(states[:1]))
	states[0].Tensor = eval.Floats(ir.BF16, []int{3}, []float32{1, 2, 3})
	require.Error(t, i.Restore(states))
	_, _, steps := run(t, i.(engine.Instance), 0)
	require.EqualValues(t, 3, steps, "a state that does not fit changes nothing")
}

func TestCompileErrors(t *testing.T) {
	m, err := ir.Parse(accumulate)
	require.NoError(t, err)
	x, err := Engine{}.Compile(m, engine.Options{})
	require.NoError(t, err)
	_, err = x.NewInstance()
	require.ErrorContains(t, err, "init: add: operand a: constant @one has no bytes: the module was read from text without weights")
}
