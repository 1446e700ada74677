package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestNorm(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]kernels.RMSNorm{
		"plain": {N: 100, Heads: 1, Eps: 1e-6},
		"odd":   {N: 77, Heads: 2, Weight: kernels.F32, Eps: 1e-6},
		"unaligned": {N: 900, Heads: 1, Pre: kernels.F32, PreEps: 1e-5, Add: true, Sum: true, Weight: kernels.BF16,
			Eps: 1e-6, Unaligned: true},
		"one token": {N: 5376, Heads: 1, Pre: kernels.F32, PreEps: 1e-6, Add: true, Scale: kernels.BF16, Sum: true,
			Weight: kernels.F32, Eps: 1e-6},
		"heads, strides": {N: 64, Heads: 3, X: kernels.Rows{Token: 400, Row: 128}, Weight: kernels.BF16, Eps: 1e-6},
		"gated": {N: 128, Heads: 4, Weight: kernels.F32, Eps: 1e-6, Gated: true, Activation: kernels.SiLU,
			Gates: kernels.Rows{Token: 600, Row: 128}},
		"gated, rounded": {N: 128, Heads: 3, Weight: kernels.F32, Eps: 1e-6, Gated: true, Activation: kernels.SiLU,
			Gates: kernels.Rows{Token: 500, Row: 128}, Half: true},
		"gated heads in the order of lanes": {N: 64, Heads: 4, Weight: kernels.F32, Eps: 1e-6, Gated: true,
			Activation: kernels.SiLU, Half: true, Packed: kernels.InLanes},
		"sandwich in the order of lanes": {N: 640, Heads: 1, Pre: kernels.F32, PreEps: 1e-5, Add: true, Scale: kernels.F32,
			Sum: true, Weight: kernels.F32, Eps: 1e-6, Half: true, Packed: kernels.InLanes},
		"sandwich, packed": {N: 640, Heads: 1, X: kernels.Rows{Token: 648}, Pre: kernels.F32, PreEps: 1e-5, Add: true,
			Scale: kernels.F32, Sum: true, Weight: kernels.F32, Eps: 1e-6, Half: true, Packed: 4},
		"packed by some threads": {N: 4224, Heads: 1, Weight: kernels.BF16, Eps: 1e-6, Half: true, Packed: 16, Simdgroups: 3},
		"odd, rounded":           {N: 77, Heads: 2, Eps: 1e-6, Half: true},
		"residual":               {N: 1100, Heads: 1, Add: true, Sum: true, Weight: kernels.BF16, Eps: 1e-6},
		"sandwich": {N: 700, Heads: 1, Pre: kernels.BF16, PreEps: 1e-5, Add: true, Scale: kernels.BF16, Sum: true,
			Weight: kernels.F32, Eps: 1e-6},
		"sum alone": {N: 600, Heads: 1, Pre: kernels.F32, PreEps: 1e-6, Add: true, Sum: true,
			SumOnly: true, Simdgroups: 2},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := n.Launch(4)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 3, Capacity: 4, Position: 5}))
		})
	}
}

func TestNormRefusals(t *testing.T) {
	for _, c := range []struct {
		n   kernels.RMSNorm
		err string
	}{
		{kernels.RMSNorm{N: 0, Heads: 1}, "norm of 1 rows of 0 elements, want at least one of each"},
		{kernels.RMSNorm{N: 80000, Heads: 1},
			"norm of rows of 80000 elements: 79 for each of 1024 threads, more than the 64 that registers hold"},
		{kernels.RMSNorm{N: 64, Heads: 1, Simdgroups: 33}, "norm by 33 simdgroups, want 1 to 32"},
		{kernels.RMSNorm{N: 64, Heads: 3, Half: true, Packed: kernels.InLanes},
			"norm of 3 rows of 64 elements in the order of lanes: want bf16, and a multiple of 128 elements in all"},
		{kernels.RMSNorm{N: 128, Heads: 2, Half: true, Packed: 8},
			"norm of 2 rows of 128 elements, packed: want bf16, and one aligned row of a multiple of 128 elements"},
		{kernels.RMSNorm{N: 64, Heads: 1, SumOnly: true}, "norm that writes neither the sum nor the normalized rows"},
	} {
		_, err := c.n.Launch(1)
		require.EqualError(t, err, c.err)
	}
}
