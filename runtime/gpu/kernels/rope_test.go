package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestRope(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]kernels.Rope{
		"part of gated heads, linear cache": {D: 64, Dims: 16, QHeads: 4, KVHeads: 2,
			Q: kernels.Rows{Token: 768, Row: 128}, K: kernels.Rows{Token: 768, Row: 64},
			V:     kernels.Rows{Token: 768, Row: 64},
			QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32,
			Cache: kernels.BF16, Slots: 40},
		"whole heads, ring": {D: 96, Dims: 96, QHeads: 2, KVHeads: 1, QNorm: kernels.WeightedHeadNorm,
			KNorm: kernels.WeightedHeadNorm, VNorm: kernels.PlainHeadNorm,
			Eps: 1e-6, Weight: kernels.BF16, Cache: kernels.F32, Slots: 7, Ring: true},
		"traditional, queries alone": {D: 32, Dims: 24, Traditional: true, QHeads: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sizes := kernels.Sizes{Whole: true, Tokens: 4, Capacity: 5, Position: 20}
			l, err := kernels.RopeAngles{Dims: r.Dims, Scale: 0.5}.Launch(5)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(sizes))
			l, err = r.Launch(5)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(sizes))
		})
	}
}

func TestCacheWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]kernels.CacheWrite{
		"linear": {D: 48, Heads: 2, Cache: kernels.F32, Slots: 9},
		"ring":   {D: 20, Heads: 3, X: kernels.Rows{Token: 100, Row: 30}, Cache: kernels.BF16, Slots: 6, Ring: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := c.Launch(5)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 4, Capacity: 5, Position: 5}))
		})
	}
}

func TestRopeRefusals(t *testing.T) {
	for _, c := range []struct {
		r   kernels.Rope
		err string
	}{
		{kernels.Rope{D: 48, Dims: 16, QHeads: 1}, "rope: heads of 48 elements, want a multiple of 32 up to 1024"},
		{kernels.Rope{D: 64, Dims: 66, QHeads: 1}, "rope: 66 dims are rotated, want an even number from 2 to 64"},
		{kernels.Rope{D: 64, Dims: 64}, "rope: 0 heads of queries and 0 of keys"},
		{kernels.Rope{D: 64, Dims: 64, KVHeads: 1}, "rope: a cache of 0 slots"},
		{kernels.Rope{D: 64, Dims: 64, KVHeads: 1, Slots: 2, Cache: kernels.I32},
			"rope: the cache is i32, want f32 or bf16"},
		{kernels.Rope{D: 64, Dims: 64, QHeads: 1, VNorm: kernels.WeightedHeadNorm},
			"rope: values have no weight of their norm"},
	} {
		_, err := c.r.Launch(1)
		require.EqualError(t, err, c.err)
	}
	_, err := kernels.RopeAngles{Dims: 3}.Launch(1)
	require.EqualError(t, err, "rope of 3 dims, want an even number from 2 on")
	_, err = kernels.CacheWrite{D: 4, Heads: 1, Slots: 2}.Launch(1)
	require.EqualError(t, err, "cache write: the cache is none, want f32 or bf16")
}
