package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// randomLogits are rows of logits that are unlike each other, with ties.
func randomLogits(r *rand.Rand, rows, vocab int) *Tensor {
	v := make([]float32, rows*vocab)
	for i := range v {
		v[i] = float32(int(r.NormFloat64()*16)) / 8
	}
	return Floats(ir.F32, []int{rows, vocab}, v)
}

// drawSettings are the settings of one row.
type drawSettings struct {
	temperature, topP, minP float32
	topK, key               int64
}

// drawArgs are the operands of draw; without any min-p, that one is not there.
func drawArgs(logits *Tensor, rows ...drawSettings) []any {
	n := len(rows)
	temperature, topP, minP := make([]float32, n), make([]float32, n), make([]float32, n)
	topK, key := make([]int64, n), make([]int64, n)
	limited := false
	for i, s := range rows {
		temperature[i], topP[i], minP[i], topK[i], key[i] = s.temperature, s.topP, s.minP, s.topK, s.key
		limited = limited || s.minP > 0
	}
	args := []any{logits, Floats(ir.F32, []int{n}, temperature), list(ir.I64, topK...), Floats(ir.F32, []int{n}, topP),
		nil, list(ir.I64, key...)}
	if limited {
		args[4] = Floats(ir.F32, []int{n}, minP)
	}
	return args
}

// TestDrawIsSample: with the options of a sampling head alone, every row gets the token that the head gives it by
// itself.
func TestDrawIsSample(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, vocab := range []int{1, 2, 7, 300} {
		logits := randomLogits(r, 4, vocab)
		for range 60 {
			rows := make([]drawSettings, 4)
			want := make([]int64, 4)
			for i := range rows {
				seed := r.Int64() - r.Int64()
				rows[i] = drawSettings{temperature: []float32{0, -1, 0.3, 1, 4}[r.IntN(5)],
					topP: []float32{1, 0.9, 0.2, 2}[r.IntN(4)],
					topK: []int64{0, -1, 1, 3, 50, math.MaxInt64}[r.IntN(6)], key: int64(int32(seed))}
				row := Floats(ir.F32, []int{1, vocab}, logits.F[i*vocab:(i+1)*vocab])
				want[i] = run(t, "sample", nil, FP32,
					sampleArgs(row, rows[i].temperature, rows[i].topK, rows[i].topP, seed)...)[0].I[0]
			}
			require.Equal(t, want, run(t, "draw", nil, FP32, drawArgs(logits, rows...)...)[0].I, "%+v", rows)
		}
	}
}

// TestDrawMinP: min-p alone keeps exactly the tokens that are likely enough, and comes after top-k and top-p.
func TestDrawMinP(t *testing.T) {
	logits := Floats(ir.F32, []int{1, 6}, []float32{2, 1, float32(2 + math.Log(0.25)), 0, 3, float32(math.NaN())})
	for _, c := range []struct {
		s    drawSettings
		want []int64
	}{
		{drawSettings{temperature: 1, topP: 1, minP: 0.3}, []int64{0, 4}},
		{drawSettings{temperature: 1, topP: 1, minP: 0.1}, []int64{0, 1, 4}},
		{drawSettings{temperature: 3, topP: 1, minP: 0.3}, []int64{0, 1, 2, 3, 4}}, // after the temperature
		{drawSettings{temperature: 1, topP: 1, minP: 1}, []int64{4}},
		{drawSettings{temperature: 1, topP: 1, minP: 7}, []int64{4}},
		{drawSettings{temperature: 1, topP: 1, minP: -1}, []int64{0, 1, 2, 3, 4}},
		{drawSettings{temperature: 3, topP: 1, minP: 0.1, topK: 2}, []int64{0, 4}},
		{drawSettings{temperature: 3, topP: 0.3, minP: 0.1}, []int64{4}},
		{drawSettings{temperature: 0, topP: 1, minP: 0.1}, []int64{4}},
	} {
		found := map[int64]bool{}
		for key := range int64(400) {
			c.s.key = key
			if c.s.topP < 1 { // no sum of probabilities with a NaN is one
				logits = Floats(ir.F32, []int{1, 6}, append(slices.Clone(logits.F[:5]), float32(math.Inf(-1))))
			}
			args := drawArgs(logits, c.s)
			args[4] = Floats(ir.F32, []int{1}, []float32{c.s.minP})
			if c.s.minP == 0.3 && c.s.topK == 0 { // a NaN must not hide the others
				require.NotEqual(t, int64(5), run(t, "draw", nil, FP32, args...)[0].I[0])
			}
			found[run(t, "draw", nil, FP32, args...)[0].I[0]] = true
		}
		got := []int64{}
		for id := range int64(6) {
			if found[id] {
				got = append(got, id)
			}
		}
		require.Equal(t, c.want, got, "%+v", c.s)
	}
}

func TestAdjustLogits(t *testing.T) {
	minusInf := float32(math.Inf(-1))
	logits := Floats(ir.F32, []int{2, 4}, []float32{1, -1, 2, 0, 1, -1, 2, 0})
	ids, bias := Ints(ir.I64, []int{2, 2}, []int64{2, 1, -1, 0}),
		Floats(ir.F32, []int{2, 2}, []float32{0.5, -3, 9, minusInf})
	counts := Ints(ir.I64, []int{2, 2, 2}, []int64{3, 2, 1, 0, 5, 5, 0, 0})
	penalties := Floats(ir.F32, []int{2, 3}, []float32{2, 0.25, 0.5, 1.5, 1, 0})
	mask := Ints(ir.I64, []int{2, 1}, []int64{0b0101, 0b1110})
	for name, c := range map[string]struct {
		operands []any
		want     []float32
	}{
		"nothing": {[]any{logits}, logits.F},
		"bias":    {[]any{logits, ids, bias}, []float32{1, -4, 2.5, 0, minusInf, -1, 2, 0}},
		"penalties": {[]any{logits, ids, nil, counts, penalties},
			[]float32{1, -2, 2./2 - 2*0.5 - 0.25, 0, 1, -1, 2, 0}},
		// The bias comes first: 2.5 is divided, and -4 multiplied by the penalty.
		"both": {[]any{logits, ids, bias, counts, penalties},
			[]float32{1, -8, 2.5/2 - 2*0.5 - 0.25, 0, minusInf, -1, 2, 0}},
		// Row 0 fed token 2, which the list holds; row 1 token 2, which it does not.
		"fed": {[]any{logits, ids, nil, counts, penalties, list(ir.I64, 2, 2)},
			[]float32{1, -2, 2./2 - 3*0.5 - 0.25, 0, 1, -1, 2/1.5 - 1, 0}},
		"fed first": {[]any{logits, ids, nil, counts, penalties, list(ir.I64, -1, 0)},
			[]float32{1, -2, 2./2 - 2*0.5 - 0.25, 0, 1/1.5 - 1, -1, 2, 0}},
		"mask": {[]any{logits, nil, nil, nil, nil, nil, mask, list(ir.I64, 1, -1)},
			[]float32{minusInf, -1, 2, 0, 1, -1, 2, 0}},
		"all": {[]any{logits, ids, bias, counts, penalties, nil, mask, list(ir.I64, 0, 0)},
			[]float32{1, minusInf, 2.5/2 - 2*0.5 - 0.25, minusInf, minusInf, minusInf, 2, minusInf}},
	} {
		got := run(t, "adjust_logits", nil, Strict, c.operands...)[0]
		require.Equal(t, []int{2, 4}, got.Shape, name)
		for i, want := range c.want {
			if want == minusInf {
				require.Equal(t, want, got.F[i], name)
			} else {
				require.InDelta(t, want, got.F[i], 1e-6, "%s, element %d", name, i)
			}
		}
	}
	requireError(t, "ids: row 0 has id", "adjust_logits", nil, logits,
		Ints(ir.I64, []int{2, 2}, []int64{1, 1, 0, 0}), bias)
	requireError(t, "ids: row 0 has id", "adjust_logits", nil, logits,
		Ints(ir.I64, []int{2, 2}, []int64{1, 4, 0, 0}), bias)
	requireError(t, "mask_row is 2 of 2 masks", "adjust_logits", nil, logits, nil, nil, nil, nil, nil,
		mask, list(ir.I64, 1, 2))
	requireError(t, "token 4 was fed", "adjust_logits", nil, logits, ids, nil, counts, penalties, list(ir.I64, -1, 4))
	requireError(t, "mask needs mask_row", "adjust_logits", nil, logits, nil, nil, nil, nil, nil, mask)
}

// TestLogprobs: the probabilities are those of a softmax in float64; the most likely come first.
func TestLogprobs(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, vocab := range []int{1, 5, 400} {
		logits := randomLogits(r, 3, vocab)
		top := min(vocab, 4)
		token, wanted := make([]int64, 3), []int64{int64(min(top, 2)), -1, 1 << 40}
		for i := range token {
			token[i] = r.Int64N(int64(vocab))
		}
		got := run(t, "logprobs", &ir.LogprobsAttrs{Top: top}, FP32, logits, list(ir.I64, token...),
			list(ir.I64, wanted...))
		for row := range 3 {
			x := logits.F[row*vocab : (row+1)*vocab]
			sum := 0.0
			order := make([]int, vocab)
			for i, v := range x {
				sum += math.Exp(float64(v))
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int { return int(8 * (x[b] - x[a])) })
			logprob := func(id int64) float64 { return float64(x[id]) - math.Log(sum) }
			what := fmt.Sprintf("row %d of %d logits", row, vocab)
			if wanted[row] < 0 {
				require.Zero(t, got[0].F[row], what)
			} else {
				require.InDelta(t, logprob(token[row]), got[0].F[row], 1e-5, what)
			}
			for i := range top {
				id, p := got[1].I[row*top+i], got[2].F[row*top+i]
				if int64(i) >= wanted[row] {
					require.Equal(t, []any{int64(-1), float32(0)}, []any{id, p}, what)
					continue
				}
				require.Equal(t, int64(order[i]), id, what)
				require.InDelta(t, logprob(id), p, 1e-5, what)
			}
		}
	}
	x := Floats(ir.F32, []int{1, 3}, []float32{float32(math.NaN()), 0, 0})
	got := run(t, "logprobs", &ir.LogprobsAttrs{Top: 3}, FP32, x, list(ir.I64, 2), list(ir.I64, 3))
	require.Equal(t, []int64{1, 2, -1}, got[1].I)
	require.InDelta(t, -math.Ln2, got[0].F[0], 1e-6)
	requireError(t, "token 3 of row 0 is outside", "logprobs", &ir.LogprobsAttrs{Top: 1}, x,
		list(ir.I64, 3), list(ir.I64, 0))
}
