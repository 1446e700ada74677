package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// stepOf makes the heads of a case those of its attention.
func stepOf(a kernels.AttentionStep) kernels.AttentionStep {
	r := &a.Rope
	r.D, r.QHeads, r.KVHeads, r.Cache, r.Slots = a.D, a.Heads, a.KVHeads, a.Cache, a.Slots
	return a
}

func TestAttentionStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.AttentionStep
		positions []int
	}{
		"groups, gate, part of the heads": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 64, Heads: 8, KVHeads: 2, Slots: 300, Scale: 0.125, Cache: kernels.BF16,
				Gated: true, Gates: kernels.Rows{Token: 8 * 128, Row: 128}},
			Rope: kernels.Rope{Dims: 16, Q: kernels.Rows{Token: 1024, Row: 128}, K: kernels.Rows{Token: 1024, Row: 64},
				V:     kernels.Rows{Token: 1024, Row: 64},
				QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32},
			Early: true,
		}, []int{0, 3, 130, 299}},
		"window in a ring": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 256, Heads: 4, KVHeads: 2, Slots: 60, Window: 40,
				Scale: 1, Cache: kernels.BF16},
			Rope: kernels.Rope{Dims: 256, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
				VNorm: kernels.PlainHeadNorm, Eps: 1e-6, Weight: kernels.BF16, Ring: true},
			Step: kernels.StepTuning{Least: 8, Blocks: 3, Simdgroups: 2},
		}, []int{5, 39, 59, 75, 100}},
		"wide heads, keys shared by two threadgroups": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 512, Heads: 8, KVHeads: 1, Slots: 50, Scale: 0.05, Cache: kernels.BF16},
			Rope:      kernels.Rope{Dims: 128, KNorm: kernels.PlainHeadNorm, Eps: 1e-6},
			Step:      kernels.StepTuning{Heads: 4, Keys: 2, Simdgroups: 4, Least: 17},
			Early:     true,
		}, []int{0, 46}},
		"many blocks": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 32, Heads: 8, KVHeads: 1, Slots: 90, Scale: 0.2, Cache: kernels.BF16},
			Rope:      kernels.Rope{Dims: 32},
			Step:      kernels.StepTuning{Heads: 8, Keys: 4, Buffers: 1, Simdgroups: 1, Least: 2, Blocks: 40},
		}, []int{77}},
		"short": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 256, Heads: 8, KVHeads: 2, Slots: 130, Scale: 0.1, Cache: kernels.BF16,
				Gated: true, Gates: kernels.Rows{Token: 8 * 256, Row: 256}},
			Rope: kernels.Rope{Dims: 64, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
				Eps: 1e-6, Weight: kernels.F32},
			Step:  kernels.StepTuning{Short: 70},
			Early: true,
		}, []int{0, 68, 69, 70, 129}},
		"short, window in a ring": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 96, Heads: 8, KVHeads: 2, Slots: 100, Window: 80, Scale: 0.1,
				Cache: kernels.BF16, Gated: true, Gates: kernels.Rows{Token: 8 * 96, Row: 96}},
			Rope: kernels.Rope{Dims: 48, Ring: true},
			Step: kernels.StepTuning{Short: 70, Blocks: 5, Least: 9},
		}, []int{5, 68, 69, 70, 129, 300}},
		"short, all of a window's ring, fp32": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 96, Heads: 8, KVHeads: 2, Slots: 60, Window: 50,
				Scale: 0.1, Cache: kernels.F32},
			Rope: kernels.Rope{Dims: 48, Ring: true},
			Step: kernels.StepTuning{Short: 70, Blocks: 5, Least: 9, Simdgroups: 16},
		}, []int{0, 49, 59, 60, 300}},
		"short, one simdgroup, one key": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 96, Heads: 8, KVHeads: 1, Slots: 60, Window: 50,
				Scale: 0.1, Cache: kernels.BF16},
			Rope: kernels.Rope{Dims: 48, Ring: true},
			Step: kernels.StepTuning{Short: 20, Heads: 8, Blocks: 8, Least: 3, Simdgroups: 1, Keys: 1},
		}, []int{5, 19, 20, 60, 129}},
		"fp32, traditional": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 96, Heads: 2, KVHeads: 2, Slots: 150, Scale: 0.1, Cache: kernels.F32},
			Rope:      kernels.Rope{Dims: 24, Traditional: true, QNorm: kernels.PlainHeadNorm, Eps: 1e-5},
			Early:     true,
		}, []int{1, 149}},
	} {
		for last, suffix := range map[bool]string{false: "", true: ", put together by the last"} {
			t.Run(name+suffix, func(t *testing.T) {
				oneOfThree(t)
				t.Parallel()
				a := stepOf(c.AttentionStep)
				a.Step.Last = last
				one, merge, blocks, err := a.Launches()
				require.NoError(t, err)
				for _, position := range c.positions {
					testStep(t, a, one, merge, blocks, position)
				}
			})
		}
	}
}

func testStep(t *testing.T, a kernels.AttentionStep, one, merge kernels.Launch, blocks, position int) {
	r := seeded(uint64(position + 1))
	rows := func(r kernels.Rows, heads int) kernels.Rows {
		if r == (kernels.Rows{}) {
			return kernels.Rows{Token: heads * a.D, Row: a.D}
		}
		return r
	}
	q, k, v := r.floats(rows(a.Rope.Q, a.Heads).Token), r.floats(rows(a.Rope.K, a.KVHeads).Token),
		r.floats(rows(a.Rope.V, a.KVHeads).Token)
	qWeight, kWeight := r.floats(a.D), r.floats(a.D)
	heldQ, heldK := hold(a.Rope.Weight, qWeight), hold(a.Rope.Weight, kWeight)
	angles, gate := r.floats(a.Rope.Dims), r.floats(max(a.Gates.Token, 1))
	for i := 0; i < len(gate); i += 9 {
		gate[i] = float32(i%2*200 - 100) // e^-gate is infinite, or adds nothing to 1
	}
	cache := func() ([]float32, held) {
		x := blank(a.KVHeads * a.Slots * a.D)
		for p := max(0, position+1-a.Slots); p < position; p++ {
			for h := range a.KVHeads {
				copy(x[(h*a.Slots+p%a.Slots)*a.D:][:a.D], r.floats(a.D))
			}
		}
		return x, hold(a.Cache, x)
	}
	wantK, keys := cache()
	wantV, values := cache()
	rotated := make([]float32, a.Heads*a.D)
	a.Rope.Reference(1, position, q, k, v, qWeight, kWeight, angles, rotated, wantK, wantV)

	part, ml, out, arrivals, step := blank(a.Heads*blocks*a.D), blank(a.Heads*blocks*2), blank(a.Heads*a.D),
		make([]uint32, a.Heads), []int32{1, int32(position)}
	memory := kerneltest.MetalMemory
	if a.Step.Last {
		memory = kerneltest.CUDAMemory // no text for Metal
	}
	kerneltest.RunWithin(t, memory, one, kernels.AttentionStepArguments[any]{Q: q, K: k, V: v, QWeight: heldQ.bytes,
		KWeight: heldK.bytes, Angles: angles,
		Keys: keys.bytes, Values: values.bytes, Part: part, ML: ml, Gate: gate, Out: out,
		Arrivals: arrivals, Step: step})
	if a.Step.Last {
		require.Equal(t, make([]uint32, a.Heads), arrivals)
	} else {
		requireBlank(t, out)
		kerneltest.Run(t, merge, kernels.AttentionMergeArguments[any]{Part: part, ML: ml,
			Gate: gate, Out: out, Step: step})
	}
	slot := func(x []float32, h int) []float32 { return x[(h*a.Slots+position%a.Slots)*a.D:][:a.D] }
	for h := range a.KVHeads {
		requireClose(t, slot(wantK, h), slot(keys.floats(), h), keys.within(2e-6))
		requireClose(t, slot(wantV, h), slot(values.floats(), h), values.within(2e-6))
		copy(slot(wantK, h), slot(keys.floats(), h))
		copy(slot(wantV, h), slot(values.floats(), h))
	}
	requireSame(t, wantK, keys.floats())
	requireSame(t, wantV, values.floats())
	want := blank(a.Heads * a.D)
	// of what the kernel wrote, rounded up or down
	a.Attention.Reference(1, position, rotated, wantK, wantV, gate, want)
	requireClose(t, want, out, 3e-6)
}

// TestAttentionStepInBlocks: the only row of a call of several sequences is attended to like one of many.
func TestAttentionStepInBlocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kernels.AttentionStep
		blocks    kernels.Blocks
		positions []int32
	}{
		"groups, gate, part of the heads": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 64, Heads: 8, KVHeads: 2, Scale: 0.125, Cache: kernels.BF16,
				Gated: true, Gates: kernels.Rows{Token: 8 * 128, Row: 128}},
			Rope: kernels.Rope{Dims: 16, Q: kernels.Rows{Token: 1024, Row: 128}, K: kernels.Rows{Token: 1024, Row: 64},
				V:     kernels.Rows{Token: 1024, Row: 64},
				QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32},
			Early: true,
		}, kernels.Blocks{Rows: 16, Columns: 20}, []int32{-1, 0, 15, 16, 130, 319}},
		"window that wraps around": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 128, Heads: 4, KVHeads: 2, Window: 40, Scale: 1, Cache: kernels.BF16},
			Rope: kernels.Rope{Dims: 128, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
				VNorm: kernels.PlainHeadNorm, Eps: 1e-6, Weight: kernels.BF16},
			Step: kernels.StepTuning{Least: 8, Blocks: 3, Simdgroups: 2},
		}, kernels.Blocks{Rows: 5, Columns: 10}, []int32{3, 39, 47, 75, 201}},
		"short": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 256, Heads: 8, KVHeads: 2, Scale: 0.1, Cache: kernels.BF16,
				Gated: true, Gates: kernels.Rows{Token: 8 * 256, Row: 256}},
			Rope: kernels.Rope{Dims: 64, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
				Eps: 1e-6, Weight: kernels.F32},
			Step: kernels.StepTuning{Short: 70},
		}, kernels.Blocks{Rows: 7, Columns: 20}, []int32{-1, 0, 68, 70, 139}},
		"fp32, traditional, one key": {kernels.AttentionStep{
			Attention: kernels.Attention{D: 96, Heads: 8, KVHeads: 1, Scale: 0.1, Cache: kernels.F32},
			Rope:      kernels.Rope{Dims: 24, Traditional: true, QNorm: kernels.PlainHeadNorm, Eps: 1e-5},
			Step:      kernels.StepTuning{Short: 20, Heads: 8, Blocks: 8, Least: 3, Simdgroups: 1, Keys: 1},
			Early:     true,
		}, kernels.Blocks{Rows: 1, Columns: 60}, []int32{1, 19, 20, 59}},
	} {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			a := inBlocks(c.AttentionStep, c.blocks)
			one, _, _, err := a.Launches()
			require.NoError(t, err)
			for _, position := range c.positions {
				kerneltest.CheckWithin(t, kerneltest.CUDAMemory, a.Case(kernels.Sizes{Whole: true},
					kernels.BlockRow{Sequence: 2, Position: position}))
			}
			kerneltest.CheckWithin(t, kerneltest.CUDAMemory, one.Case(kernels.Sizes{}))
		})
	}
}

// rowsOfSteps are attentions of up to eight rows, and rows of calls: single ones, runs of a sequence, and rows of none.
var rowsOfSteps = map[string]struct {
	kernels.AttentionStep
	blocks kernels.Blocks
	calls  [][]kernels.BlockRow
}{
	"two rows, groups, gate, part of the heads": {kernels.AttentionStep{
		Attention: kernels.Attention{D: 64, Heads: 8, KVHeads: 2, Scale: 0.125, Cache: kernels.BF16,
			Gated: true, Gates: kernels.Rows{Token: 8 * 128, Row: 128}},
		Rope: kernels.Rope{Dims: 16, Q: kernels.Rows{Token: 1024, Row: 128}, K: kernels.Rows{Token: 1024, Row: 64},
			V:     kernels.Rows{Token: 1024, Row: 64},
			QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32},
		Early: true, Rows: 2, Half: true, Lanes: true,
	}, kernels.Blocks{Rows: 16, Columns: 20}, [][]kernels.BlockRow{
		{{0, 0}, {0, 1}}, {{0, 15}, {0, 16}}, {{1, 318}, {1, 319}}, {{0, 130}, {1, 131}}, {{0, -1}, {0, 0}},
		{{1, 4}, {0, -1}}}},
	"four rows, window that wraps around": {kernels.AttentionStep{
		Attention: kernels.Attention{D: 128, Heads: 4, KVHeads: 2, Window: 40, Scale: 1, Cache: kernels.BF16},
		Rope: kernels.Rope{Dims: 128, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
			VNorm: kernels.PlainHeadNorm, Eps: 1e-6, Weight: kernels.BF16},
		Step: kernels.StepTuning{Least: 8, Blocks: 3, Simdgroups: 2}, Rows: 4,
	}, kernels.Blocks{Rows: 5, Columns: 10}, [][]kernels.BlockRow{
		{{0, 0}, {0, 1}, {0, 2}, {0, 3}}, {{0, 23}, {0, 24}, {0, 25}, {0, 26}}, {{0, 201}, {0, 202}, {1, 7}, {1, 8}},
		{{1, 75}, {0, 74}, {0, 75}, {0, 76}}}},
	"three rows, short": {kernels.AttentionStep{
		Attention: kernels.Attention{D: 256, Heads: 8, KVHeads: 2, Scale: 0.1, Cache: kernels.BF16,
			Gated: true, Gates: kernels.Rows{Token: 8 * 256, Row: 256}},
		Rope: kernels.Rope{Dims: 64, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
			Eps: 1e-6, Weight: kernels.F32},
		Step: kernels.StepTuning{Short: 70}, Rows: 3, Half: true,
	}, kernels.Blocks{Rows: 7, Columns: 20}, [][]kernels.BlockRow{
		{{0, 68}, {0, 69}, {0, 70}}, {{0, 136}, {0, 137}, {0, 138}}, {{0, 6}, {1, 6}, {1, 7}}, {{0, 69}, {0, 70}}}},
	"four rows, fp32, traditional, one key": {kernels.AttentionStep{
		Attention: kernels.Attention{D: 96, Heads: 8, KVHeads: 1, Scale: 0.1, Cache: kernels.F32},
		Rope:      kernels.Rope{Dims: 24, Traditional: true, QNorm: kernels.PlainHeadNorm, Eps: 1e-5},
		Step:      kernels.StepTuning{Short: 20, Heads: 8, Blocks: 8, Least: 3, Simdgroups: 1, Keys: 1},
		Early:     true, Rows: 4,
	}, kernels.Blocks{Rows: 1, Columns: 60}, [][]kernels.BlockRow{
		{{0, 18}, {0, 19}, {0, 20}, {0, 21}}, {{0, 1}, {1, 2}, {1, 3}, {1, 4}}}},
	"eight rows, fewer blocks than for one": {kernels.AttentionStep{
		Attention: kernels.Attention{D: 64, Heads: 16, KVHeads: 4, Scale: 0.125, Cache: kernels.BF16},
		Rope: kernels.Rope{Dims: 64, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6,
			Weight: kernels.F32},
		Rows: 8, Half: true, Lanes: true,
	}, kernels.Blocks{Rows: 16, Columns: 40}, [][]kernels.BlockRow{
		{{0, 593}, {0, 594}, {0, 595}, {0, 596}, {0, 597}, {0, 598}, {0, 599}, {0, 600}},
		{{0, 301}, {0, 302}, {0, -1}, {1, 130}, {1, 131}, {1, 132}}}},
	"two wide rows": {kernels.AttentionStep{
		Attention: kernels.Attention{D: 512, Heads: 8, KVHeads: 1, Scale: 0.05, Cache: kernels.BF16},
		Rope:      kernels.Rope{Dims: 128, KNorm: kernels.PlainHeadNorm, Eps: 1e-6},
		Step:      kernels.StepTuning{Heads: 4, Keys: 2, Simdgroups: 4, Least: 17},
		Early:     true, Rows: 2,
	}, kernels.Blocks{Rows: 10, Columns: 6}, [][]kernels.BlockRow{{{0, 33}, {0, 34}}, {{0, 50}, {0, 51}}}},
}

// TestAttentionStepOfRows: rows of a call of several sequences, some of which follow each other in a sequence, are
// attended to, and their keys and values are written.
func TestAttentionStepOfRows(t *testing.T) {
	t.Parallel()
	for name, c := range rowsOfSteps {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			a := inBlocks(c.AttentionStep, c.blocks)
			one, _, _, err := a.Launches()
			require.NoError(t, err)
			for _, rows := range c.calls {
				kerneltest.CheckWithin(t, kerneltest.CUDAMemory, a.Case(kernels.Sizes{Whole: true}, rows...))
			}
			kerneltest.CheckWithin(t, kerneltest.CUDAMemory, one.Case(kernels.Sizes{}))
		})
	}
}

// inBlocks makes the caches of a case blocks.
func inBlocks(a kernels.AttentionStep, of kernels.Blocks) kernels.AttentionStep {
	a.Slots = of.Rows * of.Columns
	of.Cache, a.Step.Last = a.Cache, true
	a.Rope.Blocks = of
	return stepOf(a)
}

// TestAttentionStepOfRowsIsThatOfOne: a row gives the same bits in a call of several rows as in calls of one row each.
func TestAttentionStepOfRowsIsThatOfOne(t *testing.T) {
	t.Parallel()
	for name, c := range rowsOfSteps {
		t.Run(name, func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			a := inBlocks(c.AttentionStep, c.blocks)
			a.Half, a.Lanes, a.Alike = false, false, true
			for i, rows := range c.calls {
				requireStepsAlike(t, a, rows, seeded(uint64(i+1)))
			}
		})
	}
}

// requireStepsAlike runs rows together, and then each alone.
func requireStepsAlike(t *testing.T, a kernels.AttentionStep, rows []kernels.BlockRow, r random) {
	t.Helper()
	alone := a
	alone.Rows = 1
	together, _, parts, err := a.Launches()
	require.NoError(t, err)
	single, _, _, err := alone.Launches()
	require.NoError(t, err)
	token := func(of kernels.Rows, heads int) int { return max(of.Token, heads*a.D) }
	n, units := len(rows), 2*a.Rope.Blocks.Columns
	qs, ks := token(a.Rope.Q, a.Heads), token(a.Rope.K, a.KVHeads)
	vs, gs := token(a.Rope.V, a.KVHeads), token(a.Gates, a.Heads)
	q, k, v, gate := r.floats(n*qs), r.floats(n*ks), r.floats(n*vs), r.floats(n*gs)
	angles, cells := r.floats(n*a.Rope.Dims), a.KVHeads*units*a.Rope.Blocks.Rows*a.D
	qWeight, kWeight := hold(a.Rope.Weight, r.floats(a.D)), hold(a.Rope.Weight, r.floats(a.D))
	heldKeys, heldValues := r.floats(cells), r.floats(cells)
	var positions, sequences, blocks []int32
	for _, row := range rows {
		positions, sequences = append(positions, row.Position), append(sequences, row.Sequence)
	}
	for i := range units { // of two sequences
		blocks = append(blocks, int32(units-1-i))
	}
	run := func(l kernels.Launch, first, n int, keys, values held, out []float32) {
		kerneltest.RunWithin(t, kerneltest.CUDAMemory, l, kernels.AttentionStepArguments[any]{Q: q[first*qs:],
			K: k[first*ks:], V: v[first*vs:], QWeight: qWeight.bytes, KWeight: kWeight.bytes,
			Angles: angles[first*a.Rope.Dims:], Keys: keys.bytes, Values: values.bytes,
			Part: blank(n * a.Heads * parts * a.D), ML: blank(n * a.Heads * parts * 2), Gate: gate[first*gs:], Out: out,
			Arrivals: make([]uint32, n*a.Heads), Positions: positions[first:], Sequences: sequences[first:],
			Blocks: blocks, Step: []int32{int32(n), int32(units)}})
	}
	keys, values, got := hold(a.Cache, heldKeys), hold(a.Cache, heldValues), blank(n*a.Heads*a.D)
	run(together, 0, n, keys, values, got)
	wantKeys, wantValues := hold(a.Cache, heldKeys), hold(a.Cache, heldValues)
	for i := range rows {
		want := blank(a.Heads * a.D)
		run(single, i, 1, wantKeys, wantValues, want)
		requireSame(t, want, got[i*a.Heads*a.D:][:a.Heads*a.D])
	}
	requireSame(t, wantKeys.floats(), keys.floats())
	requireSame(t, wantValues.floats(), values.floats())
}

// requireSame requires equal numbers, NaN in the same places.
func requireSame(t testing.TB, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		require.True(t, w == got[i] || w != w && got[i] != got[i], "element %d: %g, want %g", i, got[i], w)
	}
}

// TestStepTunings: what is proposed for the models' shapes can be launched, with one launch where the last threadgroup
// puts blocks together.
func TestStepTunings(t *testing.T) {
	for _, a := range []kernels.AttentionStep{
		{Attention: kernels.Attention{D: 256, Heads: 16, KVHeads: 2, Slots: 262144, Scale: 1, Cache: kernels.BF16},
			Rope: kernels.Rope{Dims: 64}},
		{Attention: kernels.Attention{D: 256, Heads: 32, KVHeads: 16, Slots: 2047, Window: 1024, Scale: 1,
			Cache: kernels.BF16}, Rope: kernels.Rope{Dims: 256, Ring: true}},
		{Attention: kernels.Attention{D: 512, Heads: 32, KVHeads: 4, Slots: 262144, Scale: 1, Cache: kernels.BF16},
			Rope: kernels.Rope{Dims: 512}},
	} {
		a = stepOf(a)
		for _, target := range []kernels.Target{kernels.Metal, kernels.CUDA, kernels.CPU} {
			tunings := a.StepTunings(target)
			require.Greater(t, len(tunings), 4)
			require.Equal(t, target != kernels.Metal, tunings[0].Short > 0)
			for _, tuning := range tunings {
				a.Step = tuning
				one, _, blocks, err := a.Launches()
				require.NoError(t, err)
				require.Equal(t, target != kernels.Metal, tuning.Last)
				require.LessOrEqual(t, one.Threads[0], 1024)
				require.Equal(t, blocks, one.Groups[1])
				require.Equal(t, tuning.Blocks, blocks, "what is told before there are launches")
			}
			a.Step = kernels.StepTuning{}
		}
	}
}

// TestAttentionStepFitsRows: several rows share the multiprocessors, unless they must be like single ones. There is no
// kernel where rows cannot have a threadgroup for each head at a time.
func TestAttentionStepFitsRows(t *testing.T) {
	t.Parallel()
	blocks := func(d, kvHeads, window, rows int, alike bool) int {
		a := kernels.AttentionStep{Rows: rows, Alike: alike, Attention: kernels.Attention{D: d, Heads: 32, KVHeads: kvHeads,
			Window: window, Slots: 1 << 15, Cache: kernels.BF16}}
		if all := a.StepTunings(kernels.CUDA); len(all) > 0 {
			return all[0].Blocks
		}
		return 0
	}
	for rows, want := range map[int][2]int{1: {16, 8}, 2: {8, 8}, 4: {4, 4}, 5: {0, 3}, 8: {0, 2}} {
		require.Equal(t, want[0], blocks(512, 4, 0, rows, false), "%d rows of Gemma4-31B's full attention", rows)
		require.Equal(t, want[1], blocks(256, 16, 1024, rows, false), "%d rows, sliding", rows)
	}
	require.Equal(t, 16, blocks(512, 4, 0, 4, true))
	require.Equal(t, 8, blocks(256, 16, 1024, 8, true))
}

func TestAttentionStepRefusals(t *testing.T) {
	ok := stepOf(kernels.AttentionStep{Attention: kernels.Attention{D: 64, Heads: 4, KVHeads: 2, Slots: 8, Scale: 1,
		Cache: kernels.BF16}, Rope: kernels.Rope{Dims: 64}})
	for _, c := range []struct {
		change func(a *kernels.AttentionStep)
		err    string
	}{
		{func(a *kernels.AttentionStep) { a.D = 80 },
			"attention of heads of 80 elements, want a multiple of 32 up to 1024"},
		{func(a *kernels.AttentionStep) { a.Rope.Dims = 66 },
			"attention step: 66 dims are rotated, want an even number from 2 to 64"},
		{func(a *kernels.AttentionStep) { a.Rope.Slots = 9 },
			"attention step: 4+2 heads of 64 elements of bf16 in 9 slots are rotated, 4+2 of 64 of bf16 in 8 are attended to"},
		{func(a *kernels.AttentionStep) { a.Step.Keys = 3 },
			"attention step tuned to 2 heads and 3 keys of a simdgroup, want powers of two, 2 to 32 in product, heads that divide 2"},
		{func(a *kernels.AttentionStep) { a.Step.Simdgroups = 33 },
			"attention step tuned to 2 buffers, 33 simdgroups and 1 blocks of 264 positions, want 1 or 2, 1 to 32, and at least one of each"},
		{func(a *kernels.AttentionStep) { a.D, a.Rope.D, a.Step.Simdgroups = 1024, 1024, 16 },
			"attention step tuned to 16 simdgroups needs 65860 bytes of threadgroup memory, there are 32768"},
		{func(a *kernels.AttentionStep) { a.Rope.Blocks = kernels.Blocks{Rows: 4, Columns: 2, Cache: a.Cache} },
			"attention step over 2 blocks of 4 positions, want 8 slots, not 8, and no second launch"},
		{func(a *kernels.AttentionStep) { a.Rows = 2 },
			"attention step of 2 rows (bf16 false), want one in f32, or blocks"},
		{func(a *kernels.AttentionStep) {
			*a = inBlocks(*a, kernels.Blocks{Rows: 4, Columns: 2})
			a.Rows = 9
		}, "attention step of 9 rows of 256 elements (bf16 false, in the order of lanes false), want at most 8 rows, and " +
			"for that order bf16 and a multiple of 128 elements"},
		{func(a *kernels.AttentionStep) {
			a.Heads, a.Rope.QHeads = 32, 32
			*a = inBlocks(*a, kernels.Blocks{Rows: 4, Columns: 2})
			a.Rows, a.Step.Room = 5, 1
		}, "attention step of 5 rows of 32 heads with room for 128 threadgroups, want room for as many as there are heads"},
	} {
		a := ok
		c.change(&a)
		_, _, _, err := a.Launches()
		require.EqualError(t, err, c.err)
	}
}
