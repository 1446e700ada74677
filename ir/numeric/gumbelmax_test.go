package numeric

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestGumbelMax: the element that computing all the noise gives, however the search is divided.
func TestGumbelMax(t *testing.T) {
	inf := float32(math.Inf(1))
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5000).Draw(t, "n")
		shift := rapid.SampledFrom([]float32{0, authorsShift}).Draw(t, "shift")
		key := [2]uint32{rapid.Uint32().Draw(t, "key"), rapid.Uint32().Draw(t, "key")}
		spread := rapid.SampledFrom([]float64{0, 0.1, 1, 10, 1e6}).Draw(t, "spread")
		r := rand.New(rand.NewPCG(uint64(key[0]), uint64(key[1])))
		x := make([]float32, n)
		for i := range x {
			if x[i] = float32(spread * r.NormFloat64()); r.IntN(10) == 0 {
				x[i] = -inf
			}
		}
		if rapid.Bool().Draw(t, "infinite") {
			x[r.IntN(n)] = inf
		}
		words := make([]uint32, n)
		FillWords(words, key)
		want := Greatest{Value: -inf}
		for i, v := range x {
			if v > -inf {
				v += GumbelNoise(words[i], shift)
			}
			if v > want.Value {
				want.Value, want.Index = v, i
			}
			require.False(t, v != v, "the test avoids sums that are no numbers")
		}
		g := NewGumbelMax(x, key, shift)
		step := rapid.IntRange(1, g.Pairs()).Draw(t, "pairs at a time")
		got := g.Find(0, min(step, g.Pairs()))
		for lo := step; lo < g.Pairs(); lo += step {
			got = g.Find(lo, min(lo+step, g.Pairs())).Or(got)
		}
		require.Equal(t, want.Value, got.Value)
		if want.Value > -inf {
			require.Equal(t, want.Index, got.Index)
		}
	})
}

// TestGumbelMaxNaN: a logit that is not a number is told, in any order of the parts.
func TestGumbelMaxNaN(t *testing.T) {
	x := make([]float32, 1000)
	x[700] = float32(math.NaN())
	g := NewGumbelMax(x, [2]uint32{1, 2}, 0)
	require.True(t, g.Find(0, 250).Or(g.Find(250, 500)).NaN)
	require.True(t, g.Find(250, 500).Or(g.Find(0, 250)).NaN)
	require.True(t, g.Find(200, 201).NaN)
	require.False(t, g.Find(201, 500).NaN)
}

// TestNoiseBounds: no word's noise is above the bound of its first bits, near the ends of every bucket.
func TestNoiseBounds(t *testing.T) {
	for _, shift := range []float32{0, authorsShift} {
		g := NewGumbelMax([]float32{0}, [2]uint32{}, shift)
		for b := range uint32(boundBuckets) {
			for d := range uint32(64) {
				for _, word := range []uint32{b<<boundShift + d, b<<boundShift + 1<<boundShift - 1 - d,
					b<<boundShift + d*(1<<boundShift/64)} {
					require.LessOrEqual(t, GumbelNoise(word, shift), g.bound[b])
				}
			}
		}
	}
}

func BenchmarkGumbelMax(b *testing.B) {
	x := make([]float32, 248320)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	b.SetBytes(int64(len(x)))
	for b.Loop() {
		g := NewGumbelMax(x, [2]uint32{1, 2}, 0)
		g.Find(0, g.Pairs())
	}
}
