package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// bound is how far a sum of fp32 products may be from the reference implementation's, relative to the largest result.
const bound = 2e-6

var affine4 = kernels.Format{Bits: 4, Group: 64}

func TestMatVec(t *testing.T) {
	t.Parallel()
	type tuning = kernels.Tuning
	cases := []struct {
		name string
		v    kernels.MatVec
		t    kernels.Tuning
	}{
		{"a tail of rows", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 29}, tuning{}},
		{"permuted codes", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 29},
			tuning{Permute: true}},
		{"a tail of columns, split", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 576, M: 1}, N: 24},
			tuning{Split: 4, Sets: 2, Rows: 2}},
		{"chunks of columns", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1344, M: 1}, N: 12},
			tuning{Chunk: 512, Split: 2, Sets: 1, Permute: true}},
		{"many steps", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 2624, M: 1, Norm: kernels.NormPlain},
			N: 24}, tuning{Chunk: 256, Sets: 3, Permute: true}},
		{"short rows", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 45},
			tuning{Lanes: 8, Sets: 2}},
		{"words of 8 bytes, split", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 20},
			tuning{Bytes: 8, Lanes: 16, Split: 2, Sets: 1}},
		{"eight vectors", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 8}, N: 20},
			tuning{Permute: true}},
		{"five of eight vectors, bf16", kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 16},
			K: 520, M: 8}, N: 20}, tuning{Rows: 4, Split: 2, Chunk: 264}},
		{"norm in bf16", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1, Norm: kernels.NormBF16,
			Eps: 1e-3}, N: 16}, tuning{Permute: true}},
		{"norm in f32 of three vectors, split",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 4, Norm: kernels.NormF32, Eps: 1e-6},
				N: 16}, tuning{Split: 2, Chunk: 256}},
		{"norm without weights, residual",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 2, Norm: kernels.NormPlain, Eps: 1e-6},
				N: 18, Epilogue: kernels.AddMatrix}, tuning{}},
		{"bias", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 2}, N: 18,
			Epilogue: kernels.AddVector}, tuning{}},
		{"gated heads of a simdgroup's reads, residual, chunks",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1152, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 18, Epilogue: kernels.AddMatrix, Head: 128, Activation: kernels.SiLU},
			tuning{Chunk: 512, Split: 2, Sets: 1, Permute: true}},
		{"gated heads of 32, more threads than columns",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1, Norm: kernels.NormBF16, Eps: 1e-2},
				N: 18, Epilogue: kernels.AddMatrix, Head: 32, Activation: kernels.GELU}, tuning{Lanes: 8, Sets: 4}},
		{"gated heads of 128, seven simdgroups",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1280, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 33, Epilogue: kernels.AddMatrix, Head: 128, Activation: kernels.SiLU},
			tuning{Sets: 7, Rows: 2, Lanes: 16, Permute: true}},
		{"gated heads of 8, no weights",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 16}, K: 200, M: 1,
				Norm: kernels.NormPlain}, N: 9, Head: 8}, tuning{Sets: 1, Chunk: 96}},
		{"streamed, a tail of rows", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 77},
			tuning{Stream: kernels.Stream{Groups: 3, Simdgroups: 2, Strip: 16, Columns: 512, Stages: 2}}},
		{"streamed in two segments", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1024, M: 1,
			Norm: kernels.NormF32, Eps: 1e-6}, N: 30},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 16, Columns: 512, Stages: 2}}},
		{"streamed in three stages, 8 bits in groups of 128",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 128}, K: 512, M: 1}, N: 44,
				Epilogue: kernels.AddMatrix},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 4, Strip: 16, Columns: 512, Stages: 3}}},
		{"streamed in strips of 48", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 110},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 4, Strip: 48, Columns: 512, Stages: 2}}},
		{"streamed, rows apart", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1,
			Norm: kernels.NormF32, Eps: 1e-6}, N: 110},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 48, Columns: 512, Stages: 2, Apart: true}}},
		{"streamed, rows of 8 bits apart",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 64}, K: 256, M: 1}, N: 44},
			tuning{Stream: kernels.Stream{Groups: 1, Simdgroups: 2, Strip: 16, Columns: 256, Stages: 2, Apart: true}}},
		{"streamed once", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 26},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 16, Columns: 256, Stages: 1}}},
		{"streamed in segments, residual", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1536, M: 1},
			N: 46, Epilogue: kernels.AddMatrix},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 16, Columns: 512, Stages: 3}}},
		{"streamed, many columns of a simdgroup, bias",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1280, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 20, Epilogue: kernels.AddVector},
			tuning{Stream: kernels.Stream{Groups: 1, Simdgroups: 1, Strip: 16, Columns: 1280, Stages: 2}}},
		{"streamed, codes of 8 bits, norm in bf16",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 64}, K: 768, M: 1,
				Norm: kernels.NormBF16, Eps: 1e-3}, N: 36},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 3, Strip: 16, Columns: 768, Stages: 2}}},
		{"streamed, groups of 128 without biases, softcap",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 4, Group: 128, Symmetric: true,
				F32: true}, K: 1024, M: 1, Norm: kernels.NormPlain}, N: 20, Epilogue: kernels.Softcap, Cap: 3},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 4, Strip: 16, Columns: 1024, Stages: 2}}},
		{"streamed, gated heads of 128, residual",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 768, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 34, Epilogue: kernels.AddMatrix, Head: 128, Activation: kernels.SiLU},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 3, Strip: 16, Columns: 768, Stages: 2}}},
		{"streamed, gated heads of 8", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1,
			Norm: kernels.NormPlain, Eps: 1e-6}, N: 18, Head: 8, Activation: kernels.Sigmoid},
			tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 1, Strip: 16, Columns: 256, Stages: 2}}},
		{"streamed, more rows than are kept",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 450}, tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 16, Columns: 256, Stages: 2}}},
		{"held, several strips", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1}, N: 111,
			Epilogue: kernels.AddVector}, holding(2, 4, 512, 4)},
		{"held, an odd strip", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1,
			Norm: kernels.NormF32, Eps: 1e-6}, N: 70}, holding(2, 2, 512, 3)},
		{"held, one strip, gated heads of 128, residual",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1024, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 29, Epilogue: kernels.AddMatrix, Head: 128, Activation: kernels.SiLU}, holding(2, 2, 1024, 1)},
		{"held, an odd number of columns of a simdgroup",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1536, M: 1}, N: 20}, holding(2, 4, 1536, 1)},
		{"held, codes of 8 bits, norm in bf16",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 64}, K: 512, M: 1,
				Norm: kernels.NormBF16, Eps: 1e-3}, N: 41}, holding(2, 4, 512, 2)},
		{"held, groups of 128 without biases, softcap",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 4, Group: 128, Symmetric: true,
				F32: true}, K: 1024, M: 1, Norm: kernels.NormPlain}, N: 20, Epilogue: kernels.Softcap, Cap: 3},
			holding(2, 4, 1024, 1)},
		{"streamed, a vector in many reads", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 3072, M: 1},
			N: 10}, tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 1, Strip: 16, Columns: 1536, Stages: 2}}},
		{"direct, two rows, four simdgroups, bias",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 2048, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 5, Epilogue: kernels.AddVector},
			tuning{Direct: true, Rows: 2, Split: 4, Sets: 1, Bytes: 8, Permute: true}},
		{"direct in steps, a tail of columns, residual",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 1216, M: 1, Norm: kernels.NormBF16, Eps: 1e-3},
				N: 29, Epilogue: kernels.AddMatrix}, tuning{Direct: true, Rows: 1, Split: 2, Sets: 3, Bytes: 8}},
		{"direct, one simdgroup for a row",
			kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 64}, K: 1024, M: 1,
				Norm: kernels.NormF32, Eps: 1e-6}, N: 7}, tuning{Direct: true, Rows: 1, Sets: 4}},
		{"direct, parts of a simdgroup, the last without rows",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1, Norm: kernels.NormF32, Eps: 1e-6},
				N: 17}, tuning{Direct: true, Lanes: 8, Rows: 2, Sets: 2}},
		{"direct, parts of simdgroups, split",
			kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 448, M: 1, Norm: kernels.NormPlain, Eps: 1e-6},
				N: 9}, tuning{Direct: true, Lanes: 16, Rows: 1, Split: 2, Sets: 2, Bytes: 8, Permute: true}},
		{"softcap", kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 18,
			Epilogue: kernels.Softcap, Cap: 3}, tuning{}},
	}
	for _, f := range formats {
		type one = struct {
			name string
			v    kernels.MatVec
			t    kernels.Tuning
		}
		v := kernels.MatVec{Vectors: kernels.Vectors{Format: f, K: 384, M: 1, Eps: 1e-6}, N: 19}
		cases = append(cases, one{f.String(), v, tuning{Permute: f.Group == 128}})
		for norm := kernels.NoNorm; norm <= kernels.NormPlain; norm++ {
			v.Norm = norm
			cases = append(cases, one{fmt.Sprintf("direct, %s, norm %d", f, norm), v,
				tuning{Direct: true, Rows: 2, Split: 2, Sets: 2, Permute: norm%2 == 0}})
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := c.v.Launch(c.t)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true})) // of 4 or 8 vectors, some are missing
		})
	}
}

func TestMatVecMany(t *testing.T) {
	t.Parallel()
	streams := kernels.Tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 1, Strip: 16, Columns: 256, Stages: 3}}
	for i, c := range []struct {
		rows   []int
		tuning kernels.Tuning
	}{{[]int{41, 8, 17, 33}, holding(3, 4, 512, 3)}, {[]int{40, 8, 17, 33}, kernels.Tuning{Sets: 2, Permute: true}},
		{[]int{24, 9}, kernels.Tuning{Sets: 2, Permute: true}}, {[]int{40, 8, 16, 34}, streams},
		{[]int{24, 10}, streams},
		{[]int{41, 8, 17, 33}, kernels.Tuning{Direct: true, Rows: 2, Split: 2, Sets: 2, Bytes: 8, Permute: true}},
		{[]int{23, 1}, kernels.Tuning{Direct: true, Rows: 2, Sets: 1}}} {
		t.Run(fmt.Sprint(i, c.rows), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			v := kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: max(256, c.tuning.Stream.Columns),
				M: 1, Norm: kernels.NormBF16, Eps: 1e-6}, N: c.rows}
			l, err := v.Launch(c.tuning)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true}))
		})
	}
}

// TestMatVecConv: the convolution behind the products is that of Conv, and all products are there too.
func TestMatVecConv(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows      []int
		conv      kernels.Conv
		early     bool
		position  int
		reset     bool
		tuning    kernels.Tuning
		activated kernels.Activated
		elsewhere bool // the state after is written there
	}{
		"all weights, some rows": {[]int{40, 8, 17, 33},
			kernels.Conv{Channels: 29, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32,
				Reset: kernels.ResetFlag}, false, 5, false, kernels.Tuning{Sets: 2, Rows: 2},
			kernels.Activated{Weight: 2, First: 3, Rows: 9, Activation: kernels.SiLU}, false},
		"one weight, early": {[]int{45},
			kernels.Conv{Channels: 45, Taps: 3, State: kernels.F32, ChannelFirst: true, Weight: kernels.BF16,
				Reset: kernels.ResetAtStart}, true, 7, true, kernels.Tuning{Split: 2, Sets: 2},
			kernels.Activated{First: 40, Rows: 5, Activation: kernels.GELU}, true},
		"reset by the flag, early": {[]int{24, 9},
			kernels.Conv{Channels: 24, Taps: 4, SiLU: true, State: kernels.BF16, ChannelFirst: true,
				Weight: kernels.F32, Reset: kernels.ResetFlag}, true, 3, true, kernels.Tuning{Lanes: 8, Sets: 1},
			kernels.Activated{}, false},
		"reset by the position": {[]int{24, 9},
			kernels.Conv{Channels: 20, Taps: 1, SiLU: true, State: kernels.F32, Weight: kernels.F32,
				Reset: kernels.ResetAtStart}, false, 0, false, kernels.Tuning{Sets: 3, Rows: 1},
			kernels.Activated{}, true},
		"streamed": {[]int{40, 8, 18, 32},
			kernels.Conv{Channels: 30, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32,
				Reset: kernels.ResetFlag}, false, 5, true,
			kernels.Tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 1, Strip: 16, Columns: 256, Stages: 2}},
			kernels.Activated{Weight: 2, First: 3, Rows: 9, Activation: kernels.SiLU}, true},
		"streamed, early": {[]int{70, 8},
			kernels.Conv{Channels: 64, Taps: 4, SiLU: true, State: kernels.F32, ChannelFirst: true,
				Weight: kernels.BF16, Reset: kernels.ResetAtStart}, true, 7, false,
			kernels.Tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 1, Strip: 16, Columns: 256, Stages: 2}},
			kernels.Activated{First: 60, Rows: 5, Activation: kernels.GELU}, true},
		"held": {[]int{40, 8, 17, 33},
			kernels.Conv{Channels: 30, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32,
				Reset: kernels.ResetFlag}, false, 5, true, holding(2, 2, 512, 4),
			kernels.Activated{Weight: 2, First: 3, Rows: 9, Activation: kernels.SiLU}, false},
		"held, early": {[]int{70, 8},
			kernels.Conv{Channels: 64, Taps: 4, SiLU: true, State: kernels.F32, ChannelFirst: true,
				Weight: kernels.BF16, Reset: kernels.ResetAtStart}, true, 7, false, holding(2, 4, 512, 3),
			kernels.Activated{First: 60, Rows: 5, Activation: kernels.GELU}, true},
		"direct": {[]int{40, 8, 17, 33},
			kernels.Conv{Channels: 29, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32,
				Reset: kernels.ResetFlag}, true, 5, true,
			kernels.Tuning{Direct: true, Sets: 2, Rows: 2, Split: 2, Bytes: 8},
			kernels.Activated{Weight: 2, First: 3, Rows: 9, Activation: kernels.SiLU}, true},
		"never reset, words of eight": {[]int{16}, kernels.Conv{Channels: 8, Taps: 4, SiLU: true, State: kernels.F32,
			Weight: kernels.F32}, false, 0, true, kernels.Tuning{Bytes: 8, Lanes: 16, Split: 2, Sets: 1},
			kernels.Activated{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			r := seeded(11)
			v := kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: max(256, c.tuning.Stream.Columns),
				M: 1, Norm: kernels.NormF32, Eps: 1e-6}, N: c.rows, Conv: &c.conv, Early: c.early,
				Activated: c.activated}
			l, err := v.Launch(c.tuning)
			require.NoError(t, err)
			x, norm := r.floats(v.K), r.floats(v.K)
			a, weights, results := r.products(v.Format, c.rows, v.K)
			taps, state := r.floats(c.conv.Channels*c.conv.Taps), r.floats(c.conv.Channels*c.conv.Taps)
			weight, got, y := hold(c.conv.Weight, taps), hold(c.conv.State, state), blank(c.conv.Channels+3)
			gate := blank(c.activated.Rows + 2)
			next, before := got, got.floats()
			if c.elsewhere {
				next = hold(c.conv.State, blank(len(state)))
			}
			a.X, a.Norm, a.Step = x, norm, []int32{1, int32(c.position)}
			a.ConvW, a.Reset, a.State, a.ConvY, a.Next, a.Activated = weight.bytes, flag(c.reset),
				got.bytes, y, next.bytes, gate
			kerneltest.Run(t, l, a)
			for i, w := range weights {
				want := blank(c.rows[i])
				v.Reference(&w.Weight, x, norm, want)
				requireClose(t, want, results[i], bound)
			}
			want := blank(c.conv.Channels)
			c.conv.Reference(1, c.position, results[0], taps, c.reset, state, want)
			requireClose(t, want, y[:len(want)], bound)
			requireBlank(t, y[len(want):])
			require.Equal(t, state, next.floats())
			if c.elsewhere {
				require.Equal(t, before, got.floats())
			}
			want = blank(c.activated.Rows)
			v.ReferenceActivated(results[c.activated.Weight], want)
			requireClose(t, want, gate[:len(want)], bound)
			requireBlank(t, gate[len(want):])
		})
	}
	_, err := kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 2}, N: []int{8},
		Conv: &kernels.Conv{Channels: 8, Taps: 4, State: kernels.F32, Weight: kernels.F32}}.Launch(kernels.Tuning{})
	require.EqualError(t, err, "convolution of 8 channels behind products of 2 vectors with 8 rows, want one vector and a row for every channel")
	_, err = kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: []int{8},
		Conv: &kernels.Conv{Channels: 8, Taps: 40}}.Launch(kernels.Tuning{})
	require.EqualError(t, err, "convolution of 8 channels over 40 tokens, want 1 to 32 tokens")
	_, err = kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: []int{8},
		Activated: kernels.Activated{First: 5, Rows: 4}}.Launch(kernels.Tuning{})
	require.EqualError(t, err, "activations of results 5 to 9 of weight 0, there are [8]")
}

// TestMatVecSlotConv: the convolution behind the products of a call's only row starts from a slot and stores its state
// in a slot, or neither, as the tables say.
func TestMatVecSlotConv(t *testing.T) {
	t.Parallel()
	for name, tuning := range map[string]kernels.Tuning{
		"staged":   {Sets: 2, Rows: 2},
		"streamed": {Stream: kernels.Stream{Groups: 2, Simdgroups: 1, Strip: 16, Columns: 256, Stages: 2}},
		"held":     holding(2, 2, 512, 4),
		"direct":   {Direct: true, Sets: 2, Rows: 2, Split: 2, Bytes: 8},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			r, rows := seeded(12), []int{40, 16}
			conv := kernels.Conv{Channels: 30, Taps: 4, SiLU: true, State: kernels.BF16, Weight: kernels.F32}
			v := kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: max(256, tuning.Stream.Columns), M: 1,
				Norm: kernels.NormF32, Eps: 1e-6}, N: rows, Conv: &conv, Slots: 3, Early: name != "staged"}
			l, err := v.Launch(tuning)
			require.NoError(t, err)
			x, norm := r.floats(v.K), r.floats(v.K)
			a, weights, results := r.products(v.Format, rows, v.K)
			taps := r.floats(conv.Channels * conv.Taps)
			for what, tables := range map[string]struct{ entries, writes []int32 }{
				"in place":    {[]int32{0, 1, 2, 0, 0, 0, 0, 0, 0}, []int32{2}},
				"elsewhere":   {[]int32{0, 0, 0, 0, 1, 1, 0, 0, 0}, []int32{0}},
				"from zeros":  {[]int32{0, 0, 0, 0, 0, 0, 0, 1, -1}, []int32{1}},
				"not kept":    {[]int32{0, 1, 3, 0, 0, 0, 0, 0, 0}, []int32{-1}},
				"no sequence": {[]int32{0, 0, 1, 0, 0, 2, 0, 0, 3}, []int32{-1}},
				"no rows":     {make([]int32, 9), []int32{2}},
			} {
				t.Run(what, func(t *testing.T) {
					pool := hold(conv.State, r.floats(4*conv.Channels*conv.Taps))
					y, want := blank(conv.Channels+3), make([]float32, conv.Channels)
					after := pool.floats()
					a.X, a.Norm, a.Step = x, norm, []int32{1, 0}
					a.ConvW, a.ConvY, a.State, a.Next = taps, y, pool.bytes, pool.bytes
					a.Entries, a.Writes = tables.entries, tables.writes
					kerneltest.Run(t, l, a)
					for i, w := range weights {
						products := blank(rows[i])
						v.Reference(&w.Weight, x, norm, products)
						requireClose(t, products, results[i], bound)
					}
					one := kernels.SlotConv{Conv: conv, Entries: 3}
					one.Reference(results[0], taps, tables.entries, tables.writes, after, want)
					requireClose(t, want, y[:len(want)], bound)
					requireBlank(t, y[len(want):])
					require.Equal(t, after, pool.floats())
				})
			}
		})
	}
	v := kernels.MatVecMany{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: []int{8}, Slots: 2}
	_, err := v.Launch(kernels.Tuning{})
	require.EqualError(t, err, "a table of 2 sequences, want 1 at least with a convolution that is never reset, none without")
	v.Conv = &kernels.Conv{Channels: 8, Taps: 4, State: kernels.F32, Weight: kernels.F32}
	l, err := v.Launch(kernels.Tuning{})
	require.NoError(t, err)
	kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: 1, Capacity: 1}))
	kerneltest.Check(t, l.Case(kernels.Sizes{}))
}

func TestMatVecGLU(t *testing.T) {
	t.Parallel()
	for i, v := range []kernels.MatVecGLU{
		{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 21, Activation: kernels.SiLU},
		{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 3}, N: 21, Activation: kernels.GELUTanh},
		{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 32}, K: 256, M: 1, Norm: kernels.NormF32},
			N: 21, Activation: kernels.GELU},
		{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 21, Activation: kernels.Sigmoid},
		{Vectors: kernels.Vectors{Format: affine4, K: 256, M: 1}, N: 22, Activation: kernels.SiLU},
		{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 128, Symmetric: true}, K: 512, M: 1,
			Norm: kernels.NormF32, Eps: 1e-6}, N: 24, Activation: kernels.GELUTanh},
		{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1, Norm: kernels.NormF32, Eps: 1e-6}, N: 37,
			Activation: kernels.SiLU},
		{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 64}, K: 512, M: 1}, N: 14,
			Activation: kernels.GELU},
		{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 8, Group: 64}, K: 512, M: 1, Norm: kernels.NormF32,
			Eps: 1e-6}, N: 13, Activation: kernels.SiLU},
		{Vectors: kernels.Vectors{Format: affine4, K: 576, M: 1, Norm: kernels.NormBF16, Eps: 1e-6}, N: 15,
			Activation: kernels.GELU},
		{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 16}, K: 512, M: 1}, N: 10, Activation: kernels.SiLU},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			tuning := kernels.Tuning{Rows: 2, Split: 2, Permute: i%2 == 0}
			switch {
			case i > 7:
				tuning.Direct, tuning.Sets, tuning.Bytes = true, 2, max(8, v.Bits)
			case i > 5:
				tuning = holding(2, 4, v.K, (v.N+15)/16)
			case i > 3:
				tuning = kernels.Tuning{Stream: kernels.Stream{Groups: 2, Simdgroups: 2, Strip: 16 * (i - 3),
					Columns: v.K, Stages: 2}}
			}
			l, err := v.Launch(tuning)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: v.M}))
		})
	}
}

func TestTunings(t *testing.T) {
	v := kernels.Vectors{Format: affine4, K: 2048, M: 1}
	of := func(v kernels.Vectors, target kernels.Target, rows int) []kernels.Tuning {
		return kernels.MatVec{Vectors: v, N: rows}.Tunings(kernels.Machine{Target: target})
	}
	cuda, metal := of(v, kernels.CUDA, 8192), of(v, kernels.Metal, 8192)
	require.Greater(t, len(cuda), 20)
	require.True(t, cuda[0].Permute)
	require.False(t, metal[0].Permute)
	require.Equal(t, 1, cuda[0].Split)
	require.Equal(t, 2, of(v, kernels.CUDA, 2048)[0].Split, "few rows are split")
	for _, v := range []kernels.Vectors{v, {Format: kernels.Format{Bits: 32}, K: 2048, M: 8},
		{Format: kernels.Format{Bits: 8, Group: 128}, K: 512, M: 4},
		{Format: kernels.Format{Bits: 16}, K: 21504, M: 2}} {
		for _, target := range []kernels.Target{kernels.CUDA, kernels.Metal} {
			all := of(v, target, 4096)
			require.NotEmpty(t, all)
			for _, tuning := range all {
				_, err := kernels.MatVecGLU{Vectors: v, N: 4096}.Launch(tuning)
				require.NoError(t, err)
			}
		}
	}
}

func TestMatVecRefusals(t *testing.T) {
	for _, c := range []struct {
		v   kernels.MatVec
		t   kernels.Tuning
		err string
	}{
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 100, M: 1}, N: 8}, kernels.Tuning{},
			"matvec [8]×100: 100 columns are no multiple of the group of 64"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 9}, N: 8}, kernels.Tuning{},
			"matvec [8]×128: 9 vectors at once, want 1 to 8"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1}, N: 8}, kernels.Tuning{Lanes: 4},
			"matvec [8]×128: tuning: 4 lanes for a row, want 8, 16 or 32"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1, Norm: kernels.NormF32}, N: 8, Head: 48},
			kernels.Tuning{}, "matvec of 1 vectors of 128 columns in heads of 48: want one vector that is no sum, normed in heads of 8, 16, 32, 64 or 128"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 512, M: 1, Norm: kernels.NormF32}, N: 8,
			Head: 128}, kernels.Tuning{Chunk: 192}, "matvec: tuning: chunks of 192 columns part heads of 128"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 8}, N: 8}, kernels.Tuning{Rows: 5},
			"matvec [8]×128: tuning: 5 rows of 8 vectors do not fit 32 lanes"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1}, N: 8},
			kernels.Tuning{Split: 8, Sets: 8},
			"matvec [8]×128: tuning: 8 sets of 8 simdgroups, want 1 to 32 simdgroups"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 32}, K: 128, M: 1}, N: 8},
			kernels.Tuning{Bytes: 16}, "matvec [8]×128: tuning: 16 bytes a lane do not suit rows of 128 columns of f32"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1}, N: 8}, kernels.Tuning{Chunk: 100},
			"matvec [8]×128: tuning: chunks of 100 columns, want a multiple of 32"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 8192, M: 1}, N: 8}, kernels.Tuning{Chunk: 8192},
			"matvec [8]×8192: tuning: 34004 bytes of threadgroup memory, there are 32768"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 2}, N: 8}, kernels.Tuning{Direct: true},
			"matvec [8]×128: tuning: 128 of 128 columns of 2 vectors of 1 parts are read directly, want all of one vector of one part"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1}, N: 8},
			kernels.Tuning{Direct: true, Chunk: 64},
			"matvec [8]×128: tuning: 64 of 128 columns of 1 vectors of 1 parts are read directly, want all of one vector of one part"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 2048, M: 1}, N: 8},
			kernels.Tuning{Direct: true, Rows: 2},
			"matvec [8]×2048: tuning: 64 columns of the vector and of 2 rows are a lane's at once, want at most 160 in all"},
		{kernels.MatVec{Vectors: kernels.Vectors{Format: affine4, K: 128, M: 1, Norm: kernels.NormF32}, N: 8, Head: 64},
			kernels.Tuning{Direct: true}, "matvec: tuning: heads of 64 columns are read directly, want them staged"},
	} {
		_, err := c.v.Launch(c.t)
		require.EqualError(t, err, c.err)
	}
	_, err := kernels.Experts{Format: affine4, Count: 4, Top: 2, Hidden: 64,
		Inner: 64}.LaunchDown(kernels.Tuning{Direct: true}, 1)
	require.EqualError(t, err, "experts_down 4×64×64: tuning: 128 of 128 columns of 1 vectors of 2 parts are read directly, want all of one vector of one part")
}

// holding is a way to hold the strips of a product.
func holding(groups, simdgroups, columns, strips int) kernels.Tuning {
	return kernels.Tuning{Stream: kernels.Stream{Groups: groups, Simdgroups: simdgroups, Strip: 16, Columns: columns,
		Stages: strips, Resident: true}}
}
