package kernels_test

import (
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
			e := kernels.Embedding{Format: f, N: 7, K: 384, Multiplier: 1.5}
			l, err := e.Launch(5)
			require.NoError(t, err)
			// the last token is not asked for
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 4, Capacity: 5}))
		})
	}
}

func TestEmbeddingRefusals(t *testing.T) {
	for _, c := range []struct {
		e   kernels.Embedding
		err string
	}{
		{kernels.Embedding{Format: kernels.Format{Bits: 5, Group: 64}, N: 4, K: 64},
			"embedding [4, 64]: weights of 5 bits, want 4, 8, 16 (bf16) or 32 (f32)"},
		{kernels.Embedding{Format: kernels.Format{Bits: 4, Group: 16}, N: 4, K: 64},
			"embedding [4, 64]: groups of 16 columns, want 32, 64 or 128"},
		{kernels.Embedding{Format: kernels.Format{Bits: 4, Group: 64}, N: 4, K: 96},
			"embedding [4, 96]: 96 columns are no multiple of the group of 64"},
		{kernels.Embedding{Format: kernels.Format{Bits: 32}, N: 4, K: 12},
			"embedding [4, 12]: 12 columns, want a multiple of 8"},
	} {
		_, err := c.e.Launch(1)
		require.EqualError(t, err, c.err)
	}
}
