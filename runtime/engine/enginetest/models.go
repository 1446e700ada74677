package enginetest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// Calls are numbers of tokens: single ones, small and large chunks, past the ends of windows and rings.
var Calls = []int{5, 1, 60, 1, 33, 2, 64, 1, 1}

// Start makes an instance; a warning that o does not take fails the test, as it tells of something that runs slowly.
func Start(t *testing.T, e engine.Engine, m *ir.Module, o engine.Options) engine.Instance {
	t.Helper()
	if o.Warn == nil {
		o.Warn = func(text string) { t.Errorf("warning: %s", text) }
	}
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

// Run makes calls of so many tokens, one after the other, and gives their first outputs, then the buffers.
func Run(t *testing.T, m *ir.Module, x engine.Instance, calls []int) []*eval.Tensor {
	t.Helper()
	var out []*eval.Tensor
	position := 0
	for _, n := range calls {
		result, err := x.Run(t.Context(), fusetest.Inputs(m, position, n))
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

// RequireClose compares integers exactly and floats up to a share of the largest one of the tensor: the layers of
// random models enlarge differences in rounding.
func RequireClose(t *testing.T, want, got []*eval.Tensor, tolerance float64) {
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
			g := got[i].F[j]
			if d := math.Abs(float64(g) - float64(v)); g != v && !(d <= tolerance*largest) {
				require.Fail(t, "not close", "output %d, element %d is %g, want %g within %g", i, j, g, v,
					tolerance*largest)
			}
		}
	}
}

// Models requires of graphs of package fusetest what the reference engine gives, tokens exactly, with exact activations
// and no operation on a reference kernel that has a size to speak of. more, where it is not nil, is told what came of a
// graph with one thread.
func Models(t *testing.T, e engine.Engine, graphs []string,
	more func(t *testing.T, m *ir.Module, o engine.Options, got []*eval.Tensor)) {
	for _, name := range graphs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			for _, c := range []struct {
				precision eval.Precision
				tolerance float64
			}{{eval.FP32, 3e-4}, {eval.Mixed, 2e-2}} {
				o := engine.Options{Precision: c.precision, Exact: true, Threads: 1}
				want := Run(t, m, Start(t, reference.Engine{}, m, o), Calls)
				got := Run(t, m, Start(t, e, m, o), Calls)
				RequireClose(t, want, got, c.tolerance)
				if more != nil {
					more(t, m, o, got)
				}
			}
		})
	}
}
