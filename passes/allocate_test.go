package passes

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/passes/quantize"
)

// TestSpend: the bytes suffice, and no choice of as many bytes is better by more than a step of a hull.
func TestSpend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var choices []*choice
		var all [][]option
		for range rapid.IntRange(1, 4).Draw(t, "weights") {
			c := &choice{}
			for range rapid.IntRange(1, 4).Draw(t, "options") {
				c.options = append(c.options,
					option{bytes: rapid.Int64Range(1, 20).Draw(t, "bytes"),
						error: float64(rapid.IntRange(0, 100).Draw(t, "error"))})
			}
			all = append(all, append([]option{}, c.options...))
			c.hull()
			choices = append(choices, c)
		}
		least := int64(0)
		for _, c := range choices {
			least += c.options[0].bytes
			for i := 1; i < len(c.options); i++ {
				require.Less(t, c.options[i-1].bytes, c.options[i].bytes)
				require.Greater(t, c.options[i-1].error, c.options[i].error)
			}
		}
		budget := rapid.Int64Range(0, 60).Draw(t, "budget")
		spend(choices, budget)
		used, sum := -least, 0.0
		for _, c := range choices {
			used += c.options[c.chosen].bytes
			sum += c.options[c.chosen].error
		}
		require.LessOrEqual(t, used, budget)
		require.LessOrEqual(t, leastError(all, least+used), sum)
		require.LessOrEqual(t, sum, leastError(all, least+used)+worstStep(choices))
	})
}

// leastError is the least sum of errors of any choice of at most so many bytes.
func leastError(all [][]option, bytes int64) float64 {
	if bytes < 0 {
		return math.Inf(1)
	}
	if len(all) == 0 {
		return 0
	}
	best := math.Inf(1)
	for _, o := range all[0] {
		best = min(best, o.error+leastError(all[1:], bytes-o.bytes))
	}
	return best
}

// worstStep bounds what the greedy walk can miss: the error of one step of a hull.
func worstStep(choices []*choice) (worst float64) {
	for _, c := range choices {
		for i := 1; i < len(c.options); i++ {
			worst = max(worst, c.options[i-1].error-c.options[i].error)
		}
	}
	return worst
}

const twoLinears = `module {
  symbol s0 [1, 8]
  constant @a.weight : bf16[16,64]
  constant @b.weight : bf16[16,64]
  entry forward(%x: bf16[1,s0,64]) {
    %0 = linear(x=%x, weight=@a.weight) : bf16[1,s0,16]
    %1 = linear(x=%x, weight=@b.weight) : bf16[1,s0,16]
    return %0: bf16[1,s0,16], %1: bf16[1,s0,16]
  }
}
`

// TestAllocate: the report says what was chosen; the bits stay under the target; a target below the least is refused.
func TestAllocate(t *testing.T) {
	schemes := []quantize.Scheme{*minMax(4, 64), *minMax(8, 64)}
	for _, test := range []struct {
		target float64
		bits   []float64
	}{{4.5, []float64{4.5, 4.5}}, {6.5, []float64{4.5, 8.5}}, {8.5, []float64{8.5, 8.5}}, {13, []float64{8.5, 16}},
		{16, []float64{16, 16}}, {99, []float64{16, 16}}} {
		report := &Report{}
		require.NoError(t, Run(parse(t, twoLinears),
			&Options{Allocate: &Allocation{test.target, schemes}, Report: report}))
		var bits []float64
		for _, w := range report.Weights {
			bits = append(bits, w.BitsPerWeight())
		}
		require.ElementsMatch(t, test.bits, bits, "%g", test.target)
	}
	err := Run(parse(t, twoLinears), &Options{Allocate: &Allocation{4.4, schemes}})
	require.EqualError(t, err, "pass allocate-bits: 4.4 bits a weight: the least for these linears is 4.5")
	var budget *BudgetError
	require.ErrorAs(t, err, &budget)
	require.Equal(t, BudgetError{4.4, 4.5}, *budget)
}

// TestAllocateByDamage: bits go to the weight that counts, and gate and up projections of experts get the same form.
func TestAllocateByDamage(t *testing.T) {
	schemes := []quantize.Scheme{*minMax(4, 64), *minMax(8, 64)}
	bits := func(text string, target float64, damage map[string]float64) map[string]float64 {
		report := &Report{}
		require.NoError(t, Run(parse(t, text),
			&Options{Allocate: &Allocation{target, schemes}, Damage: damage, Report: report}))
		out := map[string]float64{}
		for _, w := range report.Weights {
			out[w.Name] = w.BitsPerWeight()
		}
		return out
	}
	require.Equal(t, map[string]float64{"a.weight": 8.5, "b.weight": 4.5},
		bits(twoLinears, 6.5, map[string]float64{"a.weight": 1, "b.weight": 0.01}))
	require.Equal(t, map[string]float64{"a.weight": 4.5, "b.weight": 8.5},
		bits(twoLinears, 6.5, map[string]float64{"a.weight": 0.01, "b.weight": 1}))

	const mixture = `module {
  symbol s0 [1, 8]
  constant @gate : bf16[2,64,64]
  constant @up : bf16[2,64,64]
  constant @down : bf16[2,64,64]
  entry forward(%x: bf16[1,s0,64], %indices: u32[1,s0,1], %scores: bf16[1,s0,1]) {
    %0 = switch_mlp(x=%x, gate=@gate, up=@up, down=@down, indices=%indices, scores=%scores) : bf16[1,s0,64]
    return %0: bf16[1,s0,64]
  }
}
`
	// The up projection alone would not be worth its bits.
	require.Equal(t, map[string]float64{"gate": 8.5, "up": 8.5, "down": 4.5},
		bits(mixture, 8, map[string]float64{"gate": 1, "up": 0.001, "down": 0.1}))
	require.Equal(t, map[string]float64{"gate": 4.5, "up": 4.5, "down": 8.5},
		bits(mixture, 6, map[string]float64{"gate": 1, "up": 0.001, "down": 0.1}))
	// Without a text too: gate and up have the same form although there are bits for one of them.
	for _, target := range []float64{6, 8} {
		got := bits(mixture, target, nil)
		require.Equal(t, got["gate"], got["up"], "%g", target)
	}
}

// TestSchemeError: a group that does not divide a row is an error of its own type, from either pass that may find it.
func TestSchemeError(t *testing.T) {
	wide := minMax(4, 128) // the rows have 64
	for pass, o := range map[string]*Options{
		"quantize": {Recipe: DefaultRecipe(wide, nil)},
		"allocate-bits": {Recipe: Recipe{Rules: []Rule{{Kind: LinearWeight, Scheme: wide}}},
			Allocate: &Allocation{16, []quantize.Scheme{*minMax(4, 64)}}},
	} {
		err := Run(parse(t, twoLinears), o)
		var scheme *SchemeError
		require.ErrorAs(t, err, &scheme)
		require.Equal(t, int64(64), scheme.Shape[len(scheme.Shape)-1])
		require.EqualError(t, scheme.Err, wide.Check(64).Error())
		require.EqualError(t, err, fmt.Sprintf("pass %s: tensor %s %v: %v", pass, scheme.Tensor,
			scheme.Shape, scheme.Err))
	}
}

// TestReportErrors: the error of a weight is that of the stored form, known once blocks have been computed.
func TestReportErrors(t *testing.T) {
	report := &Report{}
	m := parse(t, twoLinears)
	require.NoError(t, Run(m, &Options{Recipe: Recipe{Name: "one",
		Rules: []Rule{{Pattern: "a.*", Scheme: minMax(4, 32)}}}, Report: report}))
	require.Len(t, report.Weights, 2)
	a, b := report.Weights[0], report.Weights[1]
	require.Equal(t, "b.weight", b.Name)
	require.Zero(t, b.Bits)
	_, known := b.Error()
	require.False(t, known)
	_, known = a.Error()
	require.False(t, known, "nothing has been computed")
	require.InDelta(t, 5.0, a.BitsPerWeight(), 0)
	require.NoError(t, a.computed.Produce(func(int, int64, []byte) error { return nil }))
	got, known := a.Error()
	require.True(t, known)
	var r quantize.Result
	w := make([]float32, 16*64)
	raw := make([]byte, 2*len(w))
	_, err := a.computed.source.ReadAt(raw, 0)
	require.NoError(t, err)
	quantize.BF16.Decode(w, raw)
	require.NoError(t, quantize.Quantize(&r, w, 16, 64, *minMax(4, 32)))
	stored := make([]float32, len(w))
	require.NoError(t, r.Dequantize(stored))
	noise, signal := 0.0, 0.0
	for i := range w {
		noise += float64(stored[i]-w[i]) * float64(stored[i]-w[i])
		signal += float64(w[i]) * float64(w[i])
	}
	require.InEpsilon(t, math.Sqrt(noise/signal), got, 1e-9)
}
