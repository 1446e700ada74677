package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// mixture is the weights and inputs of a mixture of experts.
type mixture struct {
	gate, up, down  stored
	experts         []int32
	scores, x       []float32
	norm            []float32
	norms           any
	extra, h, y     []float32
	wantH, wantY    []float32
	tokens, written int
}

func newMixture(e kernels.Experts, tokens, written int) *mixture {
	r := seeded(uint64(tokens))
	m := &mixture{
		gate: r.weight(e.Format, e.Count*e.Inner, e.Hidden), up: r.weight(e.Format, e.Count*e.Inner, e.Hidden), down: r.weight(e.Format, e.Count*e.Hidden, e.Inner),
		experts: make([]int32, tokens*e.Top), scores: make([]float32, tokens*e.Top), x: r.floats(tokens * e.Hidden), extra: r.floats(tokens * e.Hidden),
		h: blank(tokens * e.Top * e.Inner), y: blank(tokens * e.Hidden), wantH: blank(written * e.Top * e.Inner), wantY: blank(written * e.Hidden),
		tokens: tokens, written: written,
	}
	for i := range m.experts {
		if i%e.Top == 0 {
			for j, at := range r.Perm(e.Count)[:e.Top] {
				m.experts[i+j] = int32(at)
			}
		}
		m.scores[i] = r.Float32()
	}
	m.norm, m.norms = r.norm(e.Norm, e.Hidden)
	e.Twin(&m.gate.Weight, &m.up.Weight, &m.down.Weight, m.experts, m.scores, m.x, m.norm, m.extra, m.wantH, m.wantY)
	return m
}

func TestExperts(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		e    kernels.Experts
		u, d kernels.Tuning
	}{
		{kernels.Experts{Format: affine4, Count: 5, Top: 3, Hidden: 128, Inner: 64, Activation: kernels.SiLU}, kernels.Tuning{Lanes: 8}, kernels.Tuning{}},
		{kernels.Experts{Format: affine4, Count: 5, Top: 2, Hidden: 320, Inner: 192, Activation: kernels.SiLU, Norm: kernels.NormBF16, Eps: 1e-6, Residual: true},
			kernels.Tuning{Permute: true, Split: 2}, kernels.Tuning{Permute: true, Split: 2, Sets: 2, Chunk: 256}},
		{kernels.Experts{Format: kernels.Format{Bits: 8, Group: 32, Symmetric: true}, Count: 4, Top: 2, Hidden: 128, Inner: 96, Activation: kernels.GELUTanh, Norm: kernels.NormF32}, kernels.Tuning{}, kernels.Tuning{}},
		{kernels.Experts{Format: kernels.Format{Bits: 16}, Count: 4, Top: 2, Hidden: 128, Inner: 104, Activation: kernels.SiLU}, kernels.Tuning{}, kernels.Tuning{}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			e, m := c.e, newMixture(c.e, 3, 2)
			up, err := e.LaunchUp(c.u, m.tokens)
			require.NoError(t, err)
			down, err := e.LaunchDown(c.d, m.tokens)
			require.NoError(t, err)
			step := []int32{int32(m.written), 0}
			kerneltest.Run(t, up, m.gate.Words, m.gate.scales, m.gate.biases, m.up.Words, m.up.scales, m.up.biases, m.experts, m.x, m.norms, m.h, step)
			requireClose(t, m.wantH, m.h[:len(m.wantH)], bound)
			require.True(t, math.IsNaN(float64(m.h[len(m.wantH)])), "a token past the last is written")
			kerneltest.Run(t, down, m.down.Words, m.down.scales, m.down.biases, m.experts, m.scores, m.h, m.extra, m.y, step)
			requireClose(t, m.wantY, m.y[:len(m.wantY)], 2*bound)
			require.True(t, math.IsNaN(float64(m.y[len(m.wantY)])), "a token past the last is written")
		})
	}
}
