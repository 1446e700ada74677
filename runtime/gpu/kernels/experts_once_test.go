package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// once is a tuning that reads the weights of an expert once.
func once(groups, depth int) kernels.Tuning {
	return kernels.Tuning{Once: kernels.Once{Groups: groups, Room: 1, Depth: depth}}
}

// TestExpertsOnce: a first product that reads an expert's weights once for all tokens chooses each token's experts and
// gives their products, with a shared one and without, for fewer tokens than there is room for, however many
// threadgroups share the steps.
func TestExpertsOnce(t *testing.T) {
	t.Parallel()
	router := func(count, top int) kernels.Router {
		return kernels.Router{Experts: count, Top: top, Normalize: true, Scale: 1}
	}
	plain := kernels.Experts{Format: affine4, Count: 12, Top: 3, Hidden: 512, Inner: 128, Activation: kernels.SiLU,
		Router: router(12, 3), Shared: true}
	alone, normed, symmetric := plain, plain, plain
	alone.Shared, alone.Count, alone.Router = false, 40, router(40, 3)
	alone.Router.Scales, alone.Router.Normalize = kernels.F32, false
	normed.Norm, normed.Eps, normed.Hidden, normed.Inner = kernels.NormBF16, 1e-6, 768, 72
	symmetric.Symmetric, symmetric.Activation, symmetric.Norm = true, kernels.GELUTanh, kernels.NormF32
	symmetric.Hidden = 256
	for i, c := range []struct {
		e               kernels.Experts
		tuning          kernels.Tuning
		tokens, written int
	}{
		{plain, once(7, 1), 8, 8},
		{plain, once(64, 2), 8, 5},
		{alone, once(5, 3), 7, 7},
		{alone, once(300, 1), 2, 1},
		{normed, once(9, 2), 4, 3},
		{symmetric, once(3, 4), 8, 8},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := c.e.LaunchUp(c.tuning, c.tokens)
			require.NoError(t, err)
			kerneltest.CheckWithin(t, kerneltest.CUDAMemory,
				l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
		})
	}
}

// TestExpertsOnceRefusals: the weights are of one form, the tokens are few, and the kernel chooses their experts.
func TestExpertsOnceRefusals(t *testing.T) {
	t.Parallel()
	ok := kernels.Experts{Format: affine4, Count: 256, Top: 8, Hidden: 2048, Inner: 512, Shared: true,
		Router: kernels.Router{Experts: 256, Top: 8, Scale: 1}}
	given, long, eight := ok, ok, ok
	given.Router, given.Shared, long.Hidden, eight.Bits = kernels.Router{}, false, 8192, 8
	const where = "once_choose 256×512×2048: tuning: "
	for _, c := range []struct {
		e      kernels.Experts
		tuning kernels.Tuning
		tokens int
		err    string
	}{
		{given, once(4, 1), 8, where + "weights read once for experts that are given, want a kernel that chooses them"},
		{ok, once(4, 1), 9, where + "weights read once for 9 tokens, want 1 to 8"},
		{eight, once(4, 1), 8, where + "weights of 8bit/64 read once, want codes of 4 bits in groups of 64 with " +
			"scales in bf16"},
		{long, once(4, 1), 8, "once_choose 256×512×8192: tuning: weights of 8192 columns and 512 rows read once, want a " +
			"multiple of 256 up to 4096, and of 8"},
		{ok, once(4, 5), 8, where + "5 steps ahead of 4 threadgroups, room for 1, want 1 to 4 and at least 1"},
		{ok, once(0, 1), 8, where + "1 steps ahead of 0 threadgroups, room for 1, want 1 to 4 and at least 1"},
	} {
		_, err := c.e.LaunchUp(c.tuning, c.tokens)
		require.EqualError(t, err, c.err)
	}
	machine := kernels.Machine{Target: kernels.CUDA, Cores: 132}
	require.Equal(t, kernels.Once{Groups: 264, Room: 2, Depth: 1}, ok.OnceTunings(machine, 8)[0].Once)
	require.Empty(t, ok.OnceTunings(machine, 4), "tokens share few experts")
	require.Empty(t, ok.OnceTunings(machine, 9))
	require.Empty(t, ok.OnceTunings(kernels.Machine{Target: kernels.Metal, Cores: 132}, 8))
}
