package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestDequantize(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := kernels.Dequantize{Format: f, N: 5, K: 384}
			l, err := d.Launch()
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true}))
		})
	}
	// CUDA takes 65,535 threadgroups along all axes but the first.
	l, err := kernels.Dequantize{Format: affine4, N: 262144, K: 5376}.Launch()
	require.NoError(t, err)
	require.LessOrEqual(t, max(l.Groups[1], l.Groups[2]), math.MaxUint16)
	_, err = kernels.Dequantize{Format: affine4, N: 1, K: 100}.Launch()
	require.EqualError(t, err, "dequantize [1, 100]: 100 columns are no multiple of the group of 64")
}
