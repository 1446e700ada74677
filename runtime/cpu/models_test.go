package cpu_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// compile makes an instance; a warning fails the test, as it tells of something that runs slowly.
func compile(t *testing.T, e engine.Engine, m *ir.Module, o engine.Options) engine.Instance {
	t.Helper()
	o.Warn = func(text string) { t.Errorf("warning: %s", text) }
	x, err := e.Compile(m, o)
	require.NoError(t, err)
	instance, err := x.NewInstance()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, instance.Close())
		require.NoError(t, x.Close())
	})
	return instance
}

// chunks are the sizes of calls: single tokens, small and large chunks, past the ends of windows and rings.
var chunks = []int{5, 1, 60, 1, 33, 2, 64, 1, 1}

// runChunks runs the calls and gives their outputs, then the buffers.
func runChunks(t *testing.T, m *ir.Module, x engine.Instance) []*eval.Tensor {
	t.Helper()
	var out []*eval.Tensor
	position := 0
	for _, n := range chunks {
		result, err := x.Run(fusetest.Inputs(m, position, n))
		require.NoError(t, err)
		out = append(out, result[0].Tensor)
		position += n
	}
	states, err := x.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	for _, s := range states {
		out = append(out, s.Tensor)
	}
	return out
}

// requireClose compares integers exactly and floats up to a share of the largest one of the tensor: the
// layers of random models enlarge differences in rounding.
func requireClose(t *testing.T, want, got []*eval.Tensor, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, w.DType, got[i].DType)
		require.Equal(t, w.Shape, got[i].Shape)
		require.Equal(t, w.I, got[i].I, "output %d", i)
		largest := 0.0
		for _, v := range w.F {
			largest = max(largest, math.Abs(float64(v)))
		}
		for j, v := range w.F {
			require.InDelta(t, v, got[i].F[j], tolerance*largest, "output %d, element %d", i, j)
		}
	}
}

// TestModels: every graph gives what the reference engine gives, tokens exactly, with no operation on a
// reference kernel that has a size to speak of; and the same bits with any number of threads.
func TestModels(t *testing.T) {
	for _, name := range fusetest.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			for _, c := range []struct {
				precision eval.Precision
				tolerance float64
			}{{eval.FP32, 3e-4}, {eval.Mixed, 2e-2}} {
				o := engine.Options{Precision: c.precision, Exact: true, Threads: 1}
				want := runChunks(t, m, compile(t, reference.Engine{}, m, o))
				one := runChunks(t, m, compile(t, cpu.Engine{}, m, o))
				requireClose(t, want, one, c.tolerance)
				for _, threads := range []int{2, 3, 4} {
					o.Threads = threads
					require.Equal(t, one, runChunks(t, m, compile(t, cpu.Engine{}, m, o)), "%d threads", threads)
				}
			}
		})
	}
}

// TestRoundedActivations: with activations of 8 bits, which is what precision mixed has unless exact ones are
// asked for, results are near those of exact ones, not the same, and do not depend on the threads either.
func TestRoundedActivations(t *testing.T) {
	for _, name := range []string{"qwen35moe-tiny-4w-g32-emb8w", "qwen35moe-tiny-bf16", "etc-qwen35moe-chat-portable"} {
		m := fusetest.Load(t, name)
		exact := runChunks(t, m, compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.Mixed, Exact: true, Threads: 1}))
		one := runChunks(t, m, compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.Mixed, Threads: 1}))
		for threads := 2; threads <= 4; threads++ {
			require.Equal(t, one, runChunks(t, m, compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.Mixed, Threads: threads})), "%d threads", threads)
		}
		if name == "qwen35moe-tiny-bf16" { // nothing is quantized
			require.Equal(t, exact, one)
			continue
		}
		difference, size := 0.0, 0.0
		for i, v := range exact[0].F {
			difference += math.Abs(float64(v - one[0].F[i]))
			size += math.Abs(float64(v))
		}
		require.Less(t, difference, 0.2*size)
		require.NotZero(t, difference)
		require.Equal(t, runChunks(t, m, compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.FP32, Exact: true})),
			runChunks(t, m, compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.FP32})), "fp32 is always exact")
	}
}

// TestInstances: instances share no state, Reset forgets everything, and going back to a snapshot gives the
// same bits again.
func TestInstances(t *testing.T) {
	for _, name := range []string{"qwen35moe-chat-4w-g64-f32-scan", "gemma4-chat-bf16-ropefix"} {
		m := fusetest.Load(t, name)
		exe, err := cpu.Engine{}.Compile(m, engine.Options{Precision: eval.Mixed})
		require.NoError(t, err)
		defer exe.Close()
		a, err := exe.NewInstance()
		require.NoError(t, err)
		b, err := exe.NewInstance()
		require.NoError(t, err)
		want := runChunks(t, m, a)
		// a is in the middle of something while b begins.
		require.Equal(t, want, runChunks(t, m, b))
		require.NoError(t, a.Reset())
		require.Equal(t, want, runChunks(t, m, a))
		require.NoError(t, a.Reset())
		_, err = a.Run(fusetest.Inputs(m, 0, 20))
		require.NoError(t, err)
		state, err := a.(engine.Stateful).Snapshot()
		require.NoError(t, err)
		first, err := a.Run(fusetest.Inputs(m, 20, 30))
		require.NoError(t, err)
		require.NoError(t, b.(engine.Stateful).Restore(state))
		second, err := b.Run(fusetest.Inputs(m, 20, 30))
		require.NoError(t, err)
		require.Equal(t, first, second)
		state[0].Buffer = "other"
		require.Error(t, b.(engine.Stateful).Restore(state))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// TestInstancesAtOnce runs instances of one module on goroutines of their own, for the race detector.
func TestInstancesAtOnce(t *testing.T) {
	m := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	exe, err := cpu.Engine{}.Compile(m, engine.Options{Precision: eval.Mixed, Threads: 3})
	require.NoError(t, err)
	defer exe.Close()
	results := make(chan []*eval.Tensor)
	for range 3 {
		go func() {
			x, err := exe.NewInstance()
			if err != nil {
				panic(err)
			}
			results <- runChunks(t, m, x)
		}()
	}
	first := <-results
	require.Equal(t, first, <-results)
	require.Equal(t, first, <-results)
}

// TestRefusals: what does not fit is an error that says what was expected, and what runs elsewhere is a
// warning.
func TestRefusals(t *testing.T) {
	m := fusetest.Load(t, "qwen35moe-tiny-bf16")
	x := compile(t, cpu.Engine{}, m, engine.Options{})
	_, err := x.Run(nil)
	require.ErrorContains(t, err, "0 inputs, want 2")
	in := fusetest.Inputs(m, 0, 3)
	in[0].Tensor.I[1] = 4096
	_, err = x.Run(in)
	require.ErrorContains(t, err, "indices[1] is 4096")
	_, err = x.Run(fusetest.Inputs(m, 255, 3))
	require.ErrorContains(t, err, "cache")
	in = fusetest.Inputs(m, 0, 3)
	in[0].Tensor.DType = ir.I32
	_, err = x.Run(in)
	require.ErrorContains(t, err, "input 0")

	var warning string
	exe, err := cpu.Engine{}.Compile(m, engine.Options{Precision: eval.Strict, Warn: func(text string) { warning = text }})
	require.NoError(t, err)
	require.Contains(t, warning, "strict")
	strict, err := exe.NewInstance()
	require.NoError(t, err)
	got, err := strict.Run(fusetest.Inputs(m, 0, 3))
	require.NoError(t, err)
	want, err := compile(t, reference.Engine{}, m, engine.Options{Precision: eval.Strict}).Run(fusetest.Inputs(m, 0, 3))
	require.NoError(t, err)
	require.Equal(t, want, got)
}
