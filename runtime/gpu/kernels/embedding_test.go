package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestEmbedding(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			r := seeded(1)
			e := kernels.Embedding{Format: f, N: 7, K: 384, Multiplier: 1.5}
			w, tokens := r.weight(f, e.N, e.K), []int32{3, 0, 6, -1, 9}
			l, err := e.Launch(len(tokens))
			require.NoError(t, err)
			const steps = 4 // the last token is not asked for
			got, want := blank(len(tokens)*e.K), blank(len(tokens)*e.K)
			kerneltest.Run(t, l, kernels.EmbeddingArguments[any]{W: w.arguments(), Tokens: tokens, Y: got, Step: []int32{steps, 0}})
			e.Twin(&w.Weight, tokens[:steps], want)
			requireClose(t, want[:steps*e.K], got[:steps*e.K], 3e-7)
			require.True(t, math.IsNaN(float64(got[steps*e.K])), "a token past the last is written")
		})
	}
}

func TestEmbeddingRefusals(t *testing.T) {
	for _, c := range []struct {
		e   kernels.Embedding
		err string
	}{
		{kernels.Embedding{Format: kernels.Format{Bits: 5, Group: 64}, N: 4, K: 64}, "embedding [4, 64]: weights of 5 bits, want 4, 8, 16 (bf16) or 32 (f32)"},
		{kernels.Embedding{Format: kernels.Format{Bits: 4, Group: 16}, N: 4, K: 64}, "embedding [4, 64]: groups of 16 columns, want 32, 64 or 128"},
		{kernels.Embedding{Format: kernels.Format{Bits: 4, Group: 64}, N: 4, K: 96}, "embedding [4, 96]: 96 columns are no multiple of the group of 64"},
		{kernels.Embedding{Format: kernels.Format{Bits: 32}, N: 4, K: 12}, "embedding [4, 12]: 12 columns, want a multiple of 8"},
	} {
		_, err := c.e.Launch(1)
		require.EqualError(t, err, c.err)
	}
}
