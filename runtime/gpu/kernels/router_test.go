package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestRouter(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	scales := random.floats(seeded(99), 256)
	for i, c := range []struct {
		r      kernels.Router
		logits func(r random, n int) []float32
	}{
		{kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}, random.floats},
		{kernels.Router{Experts: 1030, Top: 32, Normalize: true, Scale: 1}, random.floats},
		{kernels.Router{Experts: 40, Top: 3, Scale: 2.5}, random.floats},
		// ties
		{kernels.Router{Experts: 7, Top: 7, Logits: true, Normalize: true, Scale: 1}, func(r random, n int) []float32 {
			out := make([]float32, n)
			for i := range out {
				out[i] = float32(r.IntN(3)) + 1
			}
			return out
		}},
		// zeros of both signs, a NaN
		{kernels.Router{Experts: 70, Top: 5, Logits: true, Scale: 1}, func(r random, n int) []float32 {
			out := make([]float32, n)
			for i := range out {
				out[i] = float32(math.Copysign(0, float64(i%2)-0.5)) - float32(i%3)
			}
			out[3] = nan
			return out
		}},
		// equal probabilities, different logits
		{kernels.Router{Experts: 64, Top: 4, Normalize: true, Scale: 1}, func(r random, n int) []float32 {
			out := make([]float32, n)
			for i := range out {
				out[i] = math.Float32frombits(0x3a800000 + uint32(i*37%64))
			}
			return out
		}},
		{kernels.Router{Experts: 128, Top: 8, Normalize: true, Scale: 1, Scales: kernels.F32}, random.floats},
		// probabilities that underflow
		{kernels.Router{Experts: 33, Top: 8, Scale: 1}, func(r random, n int) []float32 {
			out := make([]float32, n)
			for i := range out {
				out[i] = -40 * float32(i%33)
			}
			return out
		}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			const tokens, written = 6, 5
			l, err := c.r.Launch(tokens)
			require.NoError(t, err)
			logits := c.logits(seeded(uint64(i)), tokens*c.r.Experts)
			experts, scores := make([]int32, tokens*c.r.Top), blank(tokens*c.r.Top)
			wantExperts, wantScores := make([]int32, tokens*c.r.Top), blank(written*c.r.Top)
			kerneltest.Run(t, l, kernels.RouterArguments[any]{Logits: logits, Scales: scales, Experts: experts,
				Scores: scores, Step: []int32{written, 0}})
			c.r.Reference(logits[:written*c.r.Experts], scales, wantExperts, wantScores)
			require.Equal(t, wantExperts, experts)
			if i == 4 {
				require.True(t, math.IsNaN(float64(scores[0])))
				scores[0], wantScores[0] = 0, 0
			}
			requireClose(t, wantScores, scores[:len(wantScores)], 1e-6)
		})
	}
	_, err := kernels.Router{Experts: 4, Top: 5}.Launch(1)
	require.EqualError(t, err, "router: the 5 largest of 4 experts, want at most 32 of at most 4096")
	_, err = kernels.Router{Experts: 4, Top: 2, Scales: kernels.I32}.Launch(1)
	require.EqualError(t, err, "scales is i32, want f32 or bf16")
}
