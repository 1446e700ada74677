package cpu_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// What the tests of this package call by short names.
var (
	compile      = enginetest.Start
	requireClose = enginetest.RequireClose
)

// runChunks runs calls of all sizes and gives their outputs, then the buffers.
func runChunks(t *testing.T, m *ir.Module, x engine.Instance) []*eval.Tensor {
	t.Helper()
	return enginetest.Run(t, m, x, enginetest.Calls)
}

// TestModels: every graph gives what the reference engine gives, tokens exactly, with no operation on a
// reference kernel that has a size to speak of; and the same bits with any number of threads.
func TestModels(t *testing.T) {
	enginetest.Models(t, cpu.Engine{}, fusetest.Names(),
		func(t *testing.T, m *ir.Module, o engine.Options, one []*eval.Tensor) {
			for _, threads := range []int{2, 3, 4} {
				o.Threads = threads
				require.Equal(t, one, runChunks(t, m, compile(t, cpu.Engine{}, m, o)), "%d threads", threads)
			}
		})
}

// TestNeighbours is TestModels for the graphs of the other families, whose windows allow shorter calls.
func TestNeighbours(t *testing.T) {
	calls := []int{5, 1, 16, 1, 13, 2, 16, 1, 1}
	for _, name := range fusetest.Neighbours() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			require.NotRegexp(t, `(?m)^ +[0-9]+  reference `, describe(t, m, engine.Options{Precision: eval.Mixed}))
			for precision, tolerance := range map[eval.Precision]float64{eval.FP32: 3e-4, eval.Mixed: 2e-2} {
				o := engine.Options{Precision: precision, Exact: true, Threads: 1}
				want := enginetest.Run(t, m, compile(t, reference.Engine{}, m, o), calls)
				got := enginetest.Run(t, m, compile(t, cpu.Engine{}, m, o), calls)
				requireClose(t, want, got, tolerance)
				o.Threads = 3
				require.Equal(t, got, enginetest.Run(t, m, compile(t, cpu.Engine{}, m, o), calls))
			}
		})
	}
}

// TestRoundedActivations: with activations of 8 bits, which is what precision mixed has unless exact ones are
// asked for, results are near those of exact ones, not the same, and do not depend on the threads either.
func TestRoundedActivations(t *testing.T) {
	for _, name := range []string{"qwen35moe-tiny-4w-g32-emb8w", "qwen35moe-tiny-bf16", "etc-qwen35moe-chat-portable"} {
		m := fusetest.Load(t, name)
		exact := runChunks(t, m, compile(t, cpu.Engine{}, m,
			engine.Options{Precision: eval.Mixed, Exact: true, Threads: 1}))
		one := runChunks(t, m, compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.Mixed, Threads: 1}))
		for threads := 2; threads <= 4; threads++ {
			require.Equal(t, one, runChunks(t, m,
				compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.Mixed, Threads: threads})), "%d threads",
				threads)
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
		require.Equal(t, runChunks(t, m,
			compile(t, cpu.Engine{}, m, engine.Options{Precision: eval.FP32, Exact: true})),
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
		_, err = a.Run(t.Context(), fusetest.Inputs(m, 0, 20))
		require.NoError(t, err)
		state, err := a.(engine.Stateful).Snapshot()
		require.NoError(t, err)
		first, err := a.Run(t.Context(), fusetest.Inputs(m, 20, 30))
		require.NoError(t, err)
		require.NoError(t, b.(engine.Stateful).Restore(state))
		second, err := b.Run(t.Context(), fusetest.Inputs(m, 20, 30))
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

func TestRefusals(t *testing.T) { enginetest.Refusals(t, cpu.Engine{}) }
