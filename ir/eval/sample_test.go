package eval

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

const everyToken = math.MaxInt64

// samplingCases are the settings of the recorded answers caseN.
var samplingCases = []struct {
	temperature float32
	topK        int64
	topP        float32
}{
	{1, everyToken, 1}, {0.7, everyToken, 0.9}, {1, 50, 1}, {0.8, 20, 0.95}, {1.5, 1, 1}, {1, everyToken, 0.1},
	{1, 5, 0.5}, {0.3, 40, 0.9}, {1, 256, 1}, {1, 300, 0.99}, {2, 10, 0.3}, {1, 3, 1}, {1, 4, 1},
	{0.01, everyToken, 1}, {5, everyToken, 0.6}, {1, everyToken, 1e-6}, {0, 20, 0.9}, {-1, 20, 0.9},
}

// sampleArgs are the operands of sample.
func sampleArgs(logits *Tensor, temperature float32, topK int64, topP float32, seed int64) []any {
	return []any{logits, Floats(ir.F32, nil, []float32{temperature}), Ints(ir.I64, nil, []int64{topK}),
		Floats(ir.F32, nil, []float32{topP}), Ints(ir.I64, nil, []int64{seed})}
}

func TestSamplingKeepsExactSets(t *testing.T) {
	a := answers(t, "sample")
	logits := a["logits.f32"].F
	for i, s := range samplingCases[:16] {
		for key, topP := range map[string]float32{"keep": s.topP, "keep_top_k": 1} {
			p := &sampling{temperature: s.temperature, topK: s.topK, topP: topP}
			for row := range 2 {
				scaled := make([]float32, 256)
				for j, v := range logits[row*256 : row*256+256] {
					scaled[j] = v / s.temperature
				}
				p.filter(scaled)
				for j, v := range scaled {
					require.Equal(t, a[fmt.Sprintf("case%d.%s", i, key)].I[row*256+j] == 1, !math.IsInf(float64(v), -1),
						"case %d, %s, token %d", i, key, j)
				}
			}
		}
	}
}

func TestSampledTokens(t *testing.T) {
	a := answers(t, "sample")
	for i, s := range samplingCases {
		for j, seed := range a["seeds"].I {
			want := a[fmt.Sprintf("case%d.tokens", i)]
			if s.temperature > 0 {
				all := a[fmt.Sprintf("case%d.tokens_by_seed", i)]
				want = Ints(ir.I64, []int{2}, all.I[2*j:2*j+2])
			}
			got := run(t, "sample", nil, Strict, sampleArgs(a["logits.f32"], s.temperature, s.topK, s.topP, seed)...)[0]
			require.Equal(t, want, got, "case %d, seed %d", i, seed)
		}
	}
}

// TestSampledTokensOfMLX: tokens that real MLX chose, from bf16 logits.
func TestSampledTokensOfMLX(t *testing.T) {
	a := answers(t, "sample")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		p := a["mlx."+name+"_params"].F
		got := run(t, "sample", nil, Strict, sampleArgs(a["mlx.logits"], p[0], int64(p[1]), p[2], int64(p[3]))...)[0]
		require.Equal(t, a["mlx."+name+"_token"].I, got.I, name)
	}
}

func TestGumbelNoise(t *testing.T) {
	a := answers(t, "sample")
	for _, seed := range []int64{-5, 42} {
		key := numeric.Key(uint64(seed))
		for i, want := range a[fmt.Sprintf("seed%d.gumbel", seed)].F {
			require.InDelta(t, want, new(sampling).gumbel(numeric.Word(key, 512, i)), 2e-5)
		}
	}
	p := new(sampling)
	require.True(t, math.IsInf(float64(p.gumbel(0)), -1))
	require.InDelta(t, 16.635532, p.gumbel(math.MaxUint32), 1e-5, "the largest word is clamped below 1")
	p.shift = 1e-20
	require.InDelta(t, -math.Log(-math.Log(1e-20)), p.gumbel(0), 1e-5)
}

// TestSampleIsItsGraph: tokens are those of the operations that the exporter writes for a sampling head.
func TestSampleIsItsGraph(t *testing.T) {
	do := func(op string, attrs any, args ...any) *Tensor { return run(t, op, attrs, Strict, args...)[0] }
	scalar := func(v float32) *Tensor { return Floats(ir.F32, nil, []float32{v}) }
	last := &ir.AxisAttrs{Axis: -1}
	neg := func(x *Tensor) *Tensor { return do("neg", nil, x) }
	logits := Floats(ir.F32, []int{3, 600}, make([]float32, 1800))
	for i := range logits.F { // many ties
		logits.F[i] = round(ir.BF16, float32((i*7919+i*i)%211)/23)
	}
	minusInf := scalar(float32(math.Inf(-1)))
	for seed := range 12 {
		for _, s := range []struct {
			temperature float32
			topK        int
			topP        float32
		}{{0.7, 40, 0.9}, {1.3, 7, 0.5}, {2, 599, 0.99}} {
			scaled := do("divide", nil, logits, scalar(s.temperature))
			kth := do("take", last, neg(do("sort", last, neg(scaled))), s.topK-1)
			scaled = do("where", nil, do("less", nil, scaled, kth.reshaped([]int{3, 1})), minusInf, scaled)
			probabilities := do("softmax", &ir.SoftmaxAttrs{Axis: -1}, scaled)
			sorted := neg(do("sort", last, neg(probabilities)))
			before := do("subtract", nil, do("cumsum", &ir.CumsumAttrs{Axis: -1, Inclusive: true}, sorted), sorted)
			kept := do("where", nil, do("greater", nil, before, scalar(s.topP)), scalar(float32(math.Inf(1))), sorted)
			threshold := do("min", &ir.ReduceAttrs{Axes: []int{-1}, Keepdims: true}, kept)
			scaled = do("where", nil, do("less", nil, probabilities, threshold), minusInf, scaled)
			u := do("astype", &ir.DTypeAttrs{ScalarType: ir.F32}, do("random_bits", nil, []int{3, 600}, seed))
			u = do("minimum", nil, do("divide", nil, u, scalar(math.MaxUint32)), scalar(math.Nextafter32(1, 0)))
			g := neg(do("log", nil, neg(do("log", nil, u))))
			want := do("argmax", &ir.ArgReduceAttrs{Axis: -1}, do("add", nil, scaled, g))
			got := do("sample", nil, sampleArgs(logits, s.temperature, int64(s.topK), s.topP, int64(seed))...)
			require.Equal(t, want.I, got.I, "seed %d, %+v", seed, s)
		}
	}
}

// TestSampleSeeds: only the lower 32 bits of a seed count, sign-extended.
func TestSampleSeeds(t *testing.T) {
	logits := floats(1, 300)
	at := func(seed int64) int64 {
		return run(t, "sample", nil, FP32, sampleArgs(logits, 2, 0, 1, seed)...)[0].I[0]
	}
	different := 0
	for seed := range int64(20) {
		require.Equal(t, at(seed), at(seed+5<<32))
		require.Equal(t, at(-1-seed), at(1<<32-1-seed))
		if at(seed) != at(-1-seed) {
			different++
		}
	}
	require.Greater(t, different, 10)
}

// TestFiltersOff: a filter that is off changes nothing, in whichever way it is off.
func TestFiltersOff(t *testing.T) {
	logits := floats(4, 50)
	for seed := range int64(10) {
		plain := run(t, "sample", nil, FP32, logits, Floats(ir.F32, []int{1}, []float32{3}), nil, nil,
			Ints(ir.I64, nil, []int64{seed}))
		for _, topK := range []int64{math.MinInt64, -1, 0, 50, 51, math.MaxInt64} {
			require.Equal(t, plain, run(t, "sample", nil, FP32, sampleArgs(logits, 3, topK, 1, seed)...), topK)
		}
		require.Equal(t, plain, run(t, "sample", nil, FP32, sampleArgs(logits, 3, 0, float32(math.Inf(1)), seed)...))
	}
}

func TestGreedyIsExact(t *testing.T) {
	logits := Floats(ir.BF16, []int{2, 4}, []float32{1, 3, 3, 2, float32(math.NaN()), -1, float32(math.Inf(-1)), -2})
	nan := float32(math.NaN())
	for _, temperature := range []float32{0, -1, float32(math.Inf(-1)), nan} {
		require.Equal(t, []int64{1, 1}, run(t, "sample", nil, FP32, sampleArgs(logits, temperature, 2, 0.5, 1)...)[0].I)
	}
}

// TestSampleWithoutSeed is the sampler of the CUDA models: words come from the caller, and the lowest
// temperature is 1e-6.
func TestSampleWithoutSeed(t *testing.T) {
	logits := Floats(ir.F32, []int{2, 3}, []float32{1, 2, 3, 3, 2, 1})
	c, err := newCall("sample", nil, FP32, logits, Floats(ir.F32, []int{1}, []float32{0}))
	require.NoError(t, err)
	_, err = Run(c)
	require.ErrorContains(t, err, "seed")
	drawn := 0
	c.Bits = func(n int) []uint32 {
		drawn += n
		words := make([]uint32, n)
		words[0] = math.MaxUint32 // the most favourable noise for the least likely token
		return words
	}
	values, err := Run(c)
	require.NoError(t, err)
	require.Equal(t, 6, drawn)
	require.Equal(t, []int64{2, 0}, values[0].Tensor.I)
	c.Args[1][0].Tensor.F[0] = 100
	values, err = Run(c)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, values[0].Tensor.I)
}

func TestSampleOddLogits(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, row := range [][]float32{{-inf, -inf, -inf}, {nan, nan, nan}, {inf, 1, inf}, {nan, inf, -inf}, {1, nan, 2}} {
		got := run(t, "sample", nil, FP32, sampleArgs(Floats(ir.F32, []int{1, 3}, row), 0.5, 2, 0.5, 3)...)[0]
		require.Contains(t, []int64{0, 1, 2}, got.I[0])
	}
	requireError(t, "logits", "sample", nil, sampleArgs(floats(2, 0), 1, 1, 1, 1)...)
	requireError(t, "logits", "sample", nil, sampleArgs(floats(1, 2, 3), 1, 1, 1, 1)...)
	requireError(t, "temperature", "sample", nil, floats(2, 3), floats(2))
}
