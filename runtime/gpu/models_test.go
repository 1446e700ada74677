package gpu_test

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/reference"
)

// emulated is the engine on the emulator, which needs a C++ compiler.
func emulated(t testing.TB) engine.Engine {
	t.Helper()
	open := func() (device.Device, error) { return emulator.Open(emulator.Options{}) }
	d, err := open()
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return gpu.Engine{Device: "emulator", Open: open}
}

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

// runChunks runs calls of all sizes and gives their outputs, then the buffers.
func runChunks(t *testing.T, m *ir.Module, x engine.Instance) []*eval.Tensor {
	t.Helper()
	return runCalls(t, m, x, chunks)
}

// runCalls runs calls of so many tokens.
func runCalls(t *testing.T, m *ir.Module, x engine.Instance, chunks []int) []*eval.Tensor {
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

// graphs are a graph of each family and of each writer: the emulator takes seconds for one.
var graphs = []string{"etc-qwen35moe-chat-sample", "gemma4-chat-bf16-ropefix", "etc-gemma4-chat-sample"}

// TestModels: every graph gives what the reference engine gives, tokens exactly, with no operation on a
// reference kernel.
func TestModels(t *testing.T) {
	if os.Getenv("ETC_TEST_DEVICE") != "" {
		graphs = fusetest.Names()
	}
	for _, name := range graphs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			for _, c := range []struct {
				precision eval.Precision
				tolerance float64
			}{{eval.FP32, 3e-4}, {eval.Mixed, 2e-2}} {
				o := engine.Options{Precision: c.precision, Exact: true, Threads: 1}
				want := runChunks(t, m, compile(t, reference.Engine{}, m, o))
				requireClose(t, want, runChunks(t, m, compile(t, onDevice(t), m, o)), c.tolerance)
			}
		})
	}
}
