package batch_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// requireNear compares logits up to the order of sums, and the most likely token where it is clearly that.
func requireNear(t testing.TB, want, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	best, second := 0, -1
	for i, v := range want {
		require.InDelta(t, v, got[i], 5e-4*max(1, math.Abs(float64(v))), "%s, token %d", what, i)
		switch {
		case v > want[best]:
			best, second = i, best
		case i != best && (second < 0 || v > want[second]):
			second = i
		}
	}
	if want[best]-want[second] > 1e-3 {
		for _, v := range got {
			require.LessOrEqual(t, v, got[best], what)
		}
	}
}

// TestRaggedOnCPU: the CPU engine has kernels for everything, and gives what the reference engine gives one sequence
// alone.
func TestRaggedOnCPU(t *testing.T) {
	for i, name := range models() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && i%2 > 0 {
				t.Skip("half of the models are enough for a short test")
			}
			m := fusetest.Load(t, name)
			total, schedules := 60, *schedules
			if testing.Short() {
				total, schedules = 14, 1
			}
			alone := newPool(t, m, reference.Engine{}, eval.FP32, small)
			pool := newPool(t, m, cpu.Engine{}, eval.FP32, small)
			want := make([][][]float32, 2)
			for i := range want {
				want[i] = aloneLogits(t, alone, ids(i, total))
			}
			for seed := range schedules {
				feedAtRandom(t, pool, want, uint64(seed+1000*len(name)), requireNear)
			}
		})
	}
}
