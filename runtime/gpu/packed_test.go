package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestPacked: on a device where four simdgroups multiply together, products of 17 rows and more take packed ones: several
// of the same rows, one with a residual, a gated pair. The rows are packed once for all that have the same of them. The
// results are the reference engine's, up to the rounding of rows and weights to bf16.
func TestPacked(t *testing.T) {
	t.Parallel()
	emulated(t)
	random := normals(11)
	m := streamedModule(t, random, strings.ReplaceAll(quantizedLayer, "[1, 4]", "[1, 128]"), "q 80 256", "k 48 256",
		"gate 512 256", "up 512 256", "down 256 512", "out 72 256")
	d := &faulty{fault: refuse(), compiled: map[string]int{}, changed: map[string]int{}}
	e := gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
		Open: d.opener(func() (device.Device, error) {
			return emulator.Open(emulator.Options{Cores: 8, Groups: true, TransferMemory: 200 << 10})
		})}
	options := engine.Options{Precision: eval.Mixed, Threads: 1, Warn: func(text string) { t.Error(text) }}
	exact := options
	exact.Exact = true
	want, got := compile(t, reference.Engine{}, m, exact), compile(t, e, m, options)
	for rows, packed := range map[int]bool{16: false, 20: true, 40: true, 100: true} {
		clear(d.compiled)
		in := eval.Value{Tensor: random.tensor(t, 1, rows, 32)}
		wanted, err := want.Run(t.Context(), []eval.Value{in})
		require.NoError(t, err)
		given, err := got.Run(t.Context(), []eval.Value{in})
		require.NoError(t, err)
		require.Len(t, given, len(wanted))
		for i, w := range wanted {
			requireClose(t, []*eval.Tensor{w.Tensor}, []*eval.Tensor{given[i].Tensor}, 2e-2)
		}
		require.Equal(t, packed, d.compiled["matmul_packed"] > 0, "%d rows: kernels %v", rows, d.compiled)
		require.Positive(t, d.compiled["matmul"], "q, k and out are too few rows of weights: kernels %v", d.compiled)
	}
}
