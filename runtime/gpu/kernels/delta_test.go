package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// deltaInput is what the delta rule reads, with keys of length about 1 as models have them.
type deltaInput struct{ q, k, v, g, beta []float32 }

func newDeltaInput(d kernels.Delta, tokens int) deltaInput {
	r := seeded(uint64(tokens))
	scaled := func(n int) []float32 {
		x := r.floats(n)
		for i := range x {
			x[i] /= float32(d.DK) / 8
		}
		return x
	}
	in := deltaInput{scaled(tokens * max(d.QToken, d.KHeads*d.DK)), scaled(tokens * max(d.KToken, d.KHeads*d.DK)),
		r.floats(tokens * max(d.VToken, d.Heads*d.DV)),
		r.uniform(tokens*max(d.GToken, d.Heads), 0.5, 1), r.uniform(tokens*max(d.BetaToken, d.Heads), 0, 1)}
	in.g[0] = 0 // forgets all
	return in
}

func TestDeltaStep(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]kernels.Delta{
		"groups, strides": {DK: 64, DV: 12, KHeads: 2, Heads: 4, QToken: 300, KToken: 300, VToken: 300, GToken: 9,
			State: kernels.F32, Reset: kernels.ResetFlag},
		"norm and gates": {DK: 128, DV: 20, KHeads: 1, Heads: 2, State: kernels.BF16, Reset: kernels.ResetAtStart,
			Norm: kernels.BF16, Eps: 1e-6, Gates: kernels.F32, Rows: 2},
		"wide keys, early": {DK: 256, DV: 18, KHeads: 1, Heads: 1, State: kernels.F32, Reset: kernels.ResetFlag,
			Norm: kernels.F32, Eps: 1e-6, Early: true, Rows: 2},
		"narrow keys": {DK: 32, DV: 9, KHeads: 1, Heads: 2, State: kernels.BF16, Early: true, Gates: kernels.F32},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := d.StepLaunch()
			require.NoError(t, err)
			for _, run := range []struct {
				tokens, position int
				reset, elsewhere bool // the state after is written there
			}{{1, 5, false, false}, {3, 0, true, false}, {2, 5, false, true}, {1, 0, true, true}} {
				kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: run.tokens, Position: run.position,
					Reset: run.reset, Elsewhere: run.elsewhere}))
			}
		})
	}
}

func TestDeltaGates(t *testing.T) {
	t.Parallel()
	d := kernels.Delta{DK: 32, DV: 4, KHeads: 1, Heads: 7, GToken: 20, BetaToken: 30,
		State: kernels.F32, Gates: kernels.BF16}
	l, err := d.GatesLaunch(12)
	require.NoError(t, err)
	kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 10, Capacity: 12}))
}

// TestDeltaChunks: chunks give what the rule gives token by token.
func TestDeltaChunks(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]kernels.Delta{
		"32 tokens": {DK: 64, DV: 32, KHeads: 1, Heads: 2, QToken: 300, KToken: 300, VToken: 300, GToken: 9,
			State: kernels.F32, Reset: kernels.ResetFlag},
		"64 tokens": {DK: 32, DV: 16, KHeads: 2, Heads: 2, State: kernels.BF16, Reset: kernels.ResetAtStart,
			Length: 64, Columns: 8},
		// Tiles of the state are shared by 4, 2 or 1 lanes, or there are more of them than threads, or not as many.
		"a thread for a tile": {DK: 128, DV: 32, KHeads: 1, Heads: 2, BetaToken: 5, State: kernels.F32},
		"two tiles for a thread": {DK: 256, DV: 16, KHeads: 1, Heads: 1, State: kernels.F32,
			Reset: kernels.ResetFlag},
		"threads without a tile":      {DK: 96, DV: 16, KHeads: 1, Heads: 1, KToken: 100, State: kernels.F32},
		"threads without second tile": {DK: 160, DV: 16, KHeads: 1, Heads: 1, QToken: 164, State: kernels.F32},
		"4 parts":                     {DK: 128, DV: 16, KHeads: 1, Heads: 1, State: kernels.F32, Parts: 4},
		"8 parts, four of a tile":     {DK: 32, DV: 8, KHeads: 1, Heads: 2, State: kernels.F32, Columns: 8, Parts: 8},
		"4 columns":                   {DK: 64, DV: 12, KHeads: 1, Heads: 1, State: kernels.F32, Columns: 4},
		"32 columns, 2 parts": {DK: 128, DV: 64, KHeads: 1, Heads: 1, State: kernels.F32,
			Columns: 32, Parts: 2},
		"32 columns, 1 part": {DK: 64, DV: 32, KHeads: 1, Heads: 1, State: kernels.BF16,
			Columns: 32, Parts: 1},
		"64 tokens, 4 parts": {DK: 128, DV: 16, KHeads: 1, Heads: 1, State: kernels.F32, Length: 64, Parts: 4},
		"two buffers":        {DK: 128, DV: 16, KHeads: 1, Heads: 1, State: kernels.F32, Buffers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			for _, run := range []struct {
				tokens, position int
				reset            bool
			}{{1, 3, false}, {77, 5, false}, {64, 0, true}, {0, 0, true}} {
				_, scan, err := d.Launches(100)
				require.NoError(t, err)
				kerneltest.Check(t, scan.Case(kernels.Sizes{Whole: true, Tokens: run.tokens, Capacity: 100,
					Position: run.position, Reset: run.reset}))
			}
		})
	}
}

// TestDeltaChunksCausal: what is not a number in a token's value reaches no token before it.
func TestDeltaChunksCausal(t *testing.T) {
	t.Parallel()
	const tokens = 77
	for name, d := range map[string]kernels.Delta{
		"8 parts": {DK: 64, DV: 32, KHeads: 1, Heads: 1, State: kernels.F32},
		"64 tokens, 2 stages": {DK: 32, DV: 8, KHeads: 1, Heads: 1, State: kernels.F32,
			Columns: 8, Length: 64, Parts: 2},
	} {
		solve, scan, err := d.Launches(tokens)
		require.NoError(t, err)
		for _, at := range []int{0, 6, 37, 68, tokens - 1} {
			r, in := seeded(9), newDeltaInput(d, tokens)
			for i := range d.DV {
				in.v[at*d.DV+i] = float32(math.NaN())
			}
			state, length := r.floats(d.DV*d.DK), max(d.Length, 32)
			want, y := blank(tokens*d.DV), blank(tokens*d.DV)
			d.Reference(tokens, 5, in.q, in.k, in.v, in.g, in.beta, nil, nil, nil, nil, false,
				append([]float32{}, state...), want)
			sums, w, u, m := blank(tokens), blank(tokens*d.DK), blank(tokens*d.DV),
				blank((tokens+length-1)/length*length*length)
			step := []int32{tokens, 5}
			kerneltest.Run(t, solve, kernels.DeltaSolveArguments[any]{Q: in.q, K: in.k, V: in.v, G: in.g, Beta: in.beta,
				Sums: sums, W: w, U: u, M: m, Step: step})
			kerneltest.Run(t, scan, kernels.DeltaScanArguments[any]{Q: in.q, K: in.k, Sums: sums, W: w, U: u, M: m,
				Reset: flag(false), State: state, Y: y, Step: step})
			requireClose(t, want[:at*d.DV], y[:at*d.DV], 1e-5)
			requireBlank(t, y[at*d.DV:])
			require.True(t, math.IsNaN(float64(want[at*d.DV])), name)
		}
	}
}

func TestDeltaRefusals(t *testing.T) {
	ok := kernels.Delta{DK: 64, DV: 32, KHeads: 1, Heads: 2, State: kernels.F32}
	for _, c := range []struct {
		change func(d *kernels.Delta)
		err    string
	}{
		{func(d *kernels.Delta) { d.DK = 48 }, "delta rule with keys of 48 elements, want a multiple of 32 up to 256"},
		{func(d *kernels.Delta) { d.KHeads = 3 },
			"delta rule with 2 heads of 32 elements, want a multiple of the 3 key heads"},
		{func(d *kernels.Delta) { d.State = kernels.None }, "delta rule: the state is none, want f32 or bf16"},
		{func(d *kernels.Delta) { d.Norm = kernels.F32 },
			"delta rule in chunks: q, k, g and β are made by launches of their own"},
		{func(d *kernels.Delta) { d.Length = 16 }, "delta rule in chunks of 16 tokens, want 32 or 64"},
		{func(d *kernels.Delta) { d.DV = 24 },
			"delta rule with 16 columns in a threadgroup, want 4, 8, 16 or 32 that divide 24"},
		{func(d *kernels.Delta) { d.DV, d.Columns = 24, 12 },
			"delta rule with 12 columns in a threadgroup, want 4, 8, 16 or 32 that divide 24"},
		{func(d *kernels.Delta) { d.Parts = 3 },
			"delta rule with 3 parts of 16 columns, want 1, 2, 4 or 8 with a product from 16 to 128, and at most 8"},
		{func(d *kernels.Delta) { d.Columns, d.Parts = 4, 2 },
			"delta rule with 2 parts of 4 columns, want 1, 2, 4 or 8 with a product from 16 to 128, and at most 8"},
		{func(d *kernels.Delta) { d.Columns, d.Parts = 32, 8 },
			"delta rule with 8 parts of 32 columns, want 1, 2, 4 or 8 with a product from 16 to 128, and at most 8"},
		{func(d *kernels.Delta) { d.Length, d.Parts = 64, 8 },
			"delta rule with 8 parts of 16 columns, want 1, 2, 4 or 8 with a product from 16 to 128, and at most 4"},
		{func(d *kernels.Delta) { d.Buffers = 3 },
			"delta rule with 3 buffers of 35840 bytes of threadgroup memory, want 1 or 2 and at most 49152 bytes"},
		{func(d *kernels.Delta) { d.DK, d.Columns, d.Buffers = 256, 32, 2 },
			"delta rule with 2 buffers of 55808 bytes of threadgroup memory, want 1 or 2 and at most 49152 bytes"},
		{func(d *kernels.Delta) { d.KToken = 66 },
			"delta rule with q and k 64 and 66 elements from token to token, want multiples of 4"},
		{func(d *kernels.Delta) { d.QToken = 66 },
			"delta rule with q and k 66 and 64 elements from token to token, want multiples of 4"},
	} {
		d := ok
		c.change(&d)
		_, _, err := d.Launches(1)
		require.EqualError(t, err, c.err)
	}
	_, err := kernels.Delta{DK: 64, DV: 32, KHeads: 1, Heads: 2, KToken: 66, State: kernels.F32}.StepLaunch()
	require.EqualError(t, err, "delta rule with q and k 64 and 66 elements from token to token, want multiples of 4")
	_, err = ok.GatesLaunch(1)
	require.EqualError(t, err, "gates is none, want f32 or bf16")
}
