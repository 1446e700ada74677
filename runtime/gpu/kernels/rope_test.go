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
			Q: kernels.Rows{Token: 768, Row: 128}, K: kernels.Rows{Token: 768, Row: 64}, V: kernels.Rows{Token: 768, Row: 64},
			QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32, Cache: kernels.BF16, Slots: 40},
		"whole heads, ring": {D: 96, Dims: 96, QHeads: 2, KVHeads: 1, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, VNorm: kernels.PlainHeadNorm,
			Eps: 1e-6, Weight: kernels.BF16, Cache: kernels.F32, Slots: 7, Ring: true},
		"traditional, queries alone": {D: 32, Dims: 24, Traditional: true, QHeads: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const capacity, tokens, position = 5, 4, 20
			rnd := seeded(7)
			angles := kernels.RopeAngles{Dims: r.Dims, Scale: 0.5}
			inverse := rnd.uniform(r.Dims/2, 0, 1)
			inverse[r.Dims/2-1] = 0
			table, wantTable := blank(capacity*r.Dims), blank(capacity*r.Dims)
			l, err := angles.Launch(capacity)
			require.NoError(t, err)
			angles.Twin(tokens, position, inverse, wantTable)
			step := []int32{tokens, position}
			kerneltest.Run(t, l, kernels.RopeAnglesArguments[any]{Inverse: inverse, Angles: table, Step: step})
			requireClose(t, wantTable[:tokens*r.Dims], table[:tokens*r.Dims], 1e-6)
			requireBlank(t, table[tokens*r.Dims:])

			rows := func(r kernels.Rows, heads, d int) []float32 {
				if r.Token == 0 {
					r.Token = heads * d
				}
				return rnd.floats(tokens * r.Token)
			}
			q, k, v := rows(r.Q, r.QHeads, r.D), rows(r.K, r.KVHeads, r.D), rows(r.V, r.KVHeads, r.D)
			qWeight, kWeight := rnd.floats(r.D), rnd.floats(r.D)
			heldQ, heldK := hold(r.Weight, qWeight), hold(r.Weight, kWeight)
			cache := rnd.floats(r.KVHeads * r.Slots * r.D)
			kCache, vCache := hold(r.Cache, cache), hold(r.Cache, cache)
			out, want := blank(capacity*r.QHeads*r.D), blank(capacity*r.QHeads*r.D)
			wantK, wantV := append([]float32(nil), cache...), append([]float32(nil), cache...)
			if l, err = r.Launch(capacity); err != nil {
				t.Fatal(err)
			}
			r.Twin(tokens, position, q, k, v, qWeight, kWeight, table, want, wantK, wantV)
			kerneltest.Run(t, l, kernels.RopeArguments[any]{Q: q, K: k, V: v, QWeight: heldQ.bytes, KWeight: heldK.bytes, Angles: table,
				QOut: out, KCache: kCache.bytes, VCache: vCache.bytes, Step: step})
			requireClose(t, want[:tokens*r.QHeads*r.D], out[:tokens*r.QHeads*r.D], 2e-6)
			requireBlank(t, out[tokens*r.QHeads*r.D:])
			requireClose(t, wantK, kCache.floats(), kCache.within(2e-6))
			requireClose(t, wantV, vCache.floats(), vCache.within(2e-6))
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
			const tokens, position = 4, 5
			r := seeded(3)
			l, err := c.Launch(tokens + 1)
			require.NoError(t, err)
			x, cache := r.floats(tokens*max(c.X.Token, c.Heads*c.D)), r.floats(c.Heads*c.Slots*c.D)
			got, want := hold(c.Cache, cache), append([]float32(nil), cache...)
			c.Twin(tokens, position, x, want)
			kerneltest.Run(t, l, kernels.CacheWriteArguments[any]{X: x, Cache: got.bytes, Step: []int32{tokens, position}})
			require.Equal(t, want, got.floats())
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
		{kernels.Rope{D: 64, Dims: 64, KVHeads: 1, Slots: 2, Cache: kernels.I32}, "rope: the cache is i32, want f32 or bf16"},
		{kernels.Rope{D: 64, Dims: 64, QHeads: 1, VNorm: kernels.WeightedHeadNorm}, "rope: values have no weight of their norm"},
	} {
		_, err := c.r.Launch(1)
		require.EqualError(t, err, c.err)
	}
	_, err := kernels.RopeAngles{Dims: 3}.Launch(1)
	require.EqualError(t, err, "rope of 3 dims, want an even number from 2 on")
	_, err = kernels.CacheWrite{D: 4, Heads: 1, Slots: 2}.Launch(1)
	require.EqualError(t, err, "cache write: the cache is none, want f32 or bf16")
}
