package kernel

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// deltaCase is a run with the rule in float64 beside it.
type deltaCase struct {
	run DeltaRun
	// state of each head, y, and the sizes that errors are measured by, see DeltaRule.
	states, ys, stateSizes, ySizes [][]float64
}

// decays of token t, from all that a gate gives: log g is −softplus(x)·rate.
var deltaDecays = map[string]func(r *rand.Rand, t int) float32{
	"random":    func(r *rand.Rand, t int) float32 { return r.Float32() },
	"zero":      func(r *rand.Rand, t int) float32 { return 0 },
	"one":       func(r *rand.Rand, t int) float32 { return 1 },
	"near one":  func(r *rand.Rand, t int) float32 { return 1 - 1e-4*r.Float32() },
	"negative":  func(r *rand.Rand, t int) float32 { return -r.Float32() },
	"near zero": func(r *rand.Rand, t int) float32 { return 1e-20 * r.Float32() },
	"vanishing": func(r *rand.Rand, t int) float32 { return 1e-3 },
	"subnormal": func(r *rand.Rand, t int) float32 { return 1e-42 },
	"mixed": func(r *rand.Rand, t int) float32 {
		return []float32{0, 1, 0.999, 0.5, 1e-10, 1e-38, math.SmallestNonzeroFloat32}[r.IntN(7)]
	},
	"one reset": func(r *rand.Rand, t int) float32 { return []float32{1, 0}[b2i(t == 19)] },
}

var deltaBetas = map[string]func(r *rand.Rand, t int) float32{
	"random": func(r *rand.Rand, t int) float32 { return r.Float32() },
	"zero":   func(r *rand.Rand, t int) float32 { return 0 },
	"one":    func(r *rand.Rand, t int) float32 { return 1 },
	"mixed":  func(r *rand.Rand, t int) float32 { return float32(r.IntN(2)) },
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// newDeltaCase has keys of norm 1, or with same one key for all tokens of norm √2.
func newDeltaCase(r *rand.Rand, tokens, keys int, rows []int, decay, beta string, same bool) *deltaCase {
	stride := func(n int) int { return n + r.IntN(9) }
	c := &deltaCase{run: DeltaRun{Tokens: tokens, Keys: keys, QStride: stride(keys), KStride: stride(keys),
		DecayStride: stride(1), BetaStride: stride(1)}}
	d := &c.run
	most := 0
	for _, n := range rows {
		most = max(most, n)
	}
	d.VStride, d.YStride = stride(most), stride(most)
	vectors := func(stride, width int) []float32 { return floats(r, max((tokens-1)*stride+width, 0)) }
	d.Q, d.K = vectors(d.QStride, keys), vectors(d.KStride, keys)
	for t := range tokens {
		k, norm := d.K[t*d.KStride:][:keys], float32(1)
		if same {
			copy(k, d.K[:keys])
			norm = math.Sqrt2 * 0.999
		}
		if t == 0 || !same {
			Scale(k, k, norm/float32(math.Sqrt(float64(Dot(k, k)))))
		}
	}
	for _, n := range rows {
		h := DeltaHead{Rows: n, State: floats(r, n*keys), V: vectors(d.VStride, n), Y: vectors(d.YStride, n),
			Decay: vectors(d.DecayStride, 1), Beta: vectors(d.BetaStride, 1)}
		for t := range tokens {
			h.Decay[t*d.DecayStride], h.Beta[t*d.BetaStride] = deltaDecays[decay](r, t), deltaBetas[beta](r, t)
		}
		d.Heads = append(d.Heads, h)
		c.add(&h)
	}
	return c
}

// add runs the rule in float64 for a head.
func (c *deltaCase) add(h *DeltaHead) {
	d, keys := &c.run, c.run.Keys
	state, stateSize := make([]float64, len(h.State)), make([]float64, len(h.State))
	y, ySize := make([]float64, d.Tokens*h.Rows), make([]float64, d.Tokens*h.Rows)
	norm := func(x []float64) float64 {
		sum := 0.0
		for _, v := range x {
			sum += v * v
		}
		return math.Sqrt(sum)
	}
	q, k := make([]float64, keys), make([]float64, keys)
	widen := func(dst []float64, src []float32) {
		for i := range dst {
			dst[i] = float64(src[i])
		}
	}
	for r := range h.Rows {
		row := state[r*keys:][:keys]
		widen(row, h.State[r*keys:])
		size := norm(row)
		for t := range d.Tokens {
			widen(q, d.Q[t*d.QStride:])
			widen(k, d.K[t*d.KStride:])
			seen := 0.0
			for i := range row {
				row[i] *= float64(h.Decay[t*d.DecayStride])
				seen += row[i] * k[i]
			}
			v := float64(h.V[t*d.VStride+r])
			for i := range row {
				row[i] += (v - seen) * float64(h.Beta[t*d.BetaStride]) * k[i]
				y[t*h.Rows+r] += row[i] * q[i]
			}
			size = max(size, norm(row)+math.Abs(v))
			ySize[t*h.Rows+r] = size * norm(q)
		}
		for i := range row {
			stateSize[r*keys+i] = size
		}
	}
	c.states, c.ys = append(c.states, state), append(c.ys, y)
	c.stateSizes, c.ySizes = append(c.stateSizes, stateSize), append(c.ySizes, ySize)
}

// check compares what a function made of the run.
func (c *deltaCase) check(t *testing.T, tolerance float64, what string) {
	t.Helper()
	d := &c.run
	for i, h := range d.Heads {
		requireClose(t, c.states[i], c.stateSizes[i], h.State, tolerance, what+": state")
		for at := range d.Tokens {
			requireClose(t, c.ys[i][at*h.Rows:][:h.Rows], c.ySizes[i][at*h.Rows:], h.Y[at*d.YStride:][:h.Rows],
				tolerance, fmt.Sprintf("%s: y of token %d", what, at))
		}
	}
}

// part is tokens [lo, hi) of rows [from, to) of every head, and copies of their states.
func (d *DeltaRun) part(lo, hi, from, to int) *DeltaRun {
	p := *d
	p.Tokens, p.Heads = hi-lo, nil
	p.Q, p.K = d.Q[lo*d.QStride:], d.K[lo*d.KStride:]
	for _, h := range d.Heads {
		p.Heads = append(p.Heads, DeltaHead{Rows: to - from,
			State: append([]float32{}, h.State[from*d.Keys:to*d.Keys]...), V: h.V[lo*d.VStride+from:],
			Y: make([]float32, (hi-lo)*d.YStride), Decay: h.Decay[lo*d.DecayStride:], Beta: h.Beta[lo*d.BetaStride:]})
	}
	return &p
}

// Steps and chunks against the rule in float64, with the same tolerance, for any number of tokens and for decays
// and rates at the ends of their ranges.
func TestDeltaChunks(t *testing.T) {
	const tolerance = 3e-6
	atEachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(17, 18))
		try := func(tokens, keys int, rows []int, decay, beta string, same bool) {
			defer release()
			seed := r.Uint64()
			what := fmt.Sprintf("%d tokens, %d keys, rows %v, decays %s, rates %s, same key %v", tokens, keys,
				rows, decay, beta, same)
			c := newDeltaCase(rand.New(rand.NewPCG(seed, 0)), tokens, keys, rows, decay, beta, same)
			c.run.chunks()
			c.check(t, tolerance, what+", chunks")
			c = newDeltaCase(rand.New(rand.NewPCG(seed, 0)), tokens, keys, rows, decay, beta, same)
			c.run.steps()
			c.check(t, tolerance, what+", steps")
		}
		for _, decay := range slices.Sorted(maps.Keys(deltaDecays)) {
			for _, beta := range slices.Sorted(maps.Keys(deltaBetas)) {
				try(67, 32, []int{9}, decay, beta, false)
				try(40, 16, []int{3}, decay, beta, true)
			}
		}
		for _, tokens := range []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 200} {
			try(tokens, 24, []int{33, 5}, "random", "random", false)
		}
		for _, shape := range []struct {
			keys int
			rows []int
		}{{1, []int{1}}, {5, []int{3}}, {128, []int{64}}, {128, []int{40, 0, 32}}, {200, []int{2}}} {
			try(70, shape.keys, shape.rows, "near one", "random", false)
		}
	})
}

// Rows do not depend on the rows beside them, and a run may be cut anywhere.
func TestDeltaChunksInParts(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		const rows, keys, tokens = 80, 32, 100
		whole := newDeltaCase(rand.New(rand.NewPCG(19, 20)), tokens, keys, []int{rows, rows}, "random", "random", false)
		var parts []*DeltaRun
		cuts := []int{0, 1, 32, 47, rows}
		for i := range cuts[1:] {
			p := whole.run.part(0, tokens, cuts[i], cuts[i+1])
			p.chunks()
			parts = append(parts, p)
		}
		first := whole.run.part(0, 37, 0, rows)
		first.chunks()
		second := whole.run.part(37, tokens, 0, rows)
		for i := range second.Heads {
			second.Heads[i].State = first.Heads[i].State
		}
		second.chunks()
		whole.run.chunks()
		whole.check(t, 3e-6, "whole")
		for i, h := range whole.run.Heads {
			for j, p := range parts {
				require.Equal(t, h.State[cuts[j]*keys:cuts[j+1]*keys], p.Heads[i].State, "rows from %d", cuts[j])
				for at := range tokens {
					require.Equal(t, h.Y[at*whole.run.YStride+cuts[j]:][:p.Heads[i].Rows],
						p.Heads[i].Y[at*p.YStride:][:p.Heads[i].Rows], "y from row %d", cuts[j])
				}
			}
			copy(h.State, second.Heads[i].State)
			for at := range tokens {
				from := first.Heads[i].Y[min(at, 36)*first.YStride:]
				if at >= 37 {
					from = second.Heads[i].Y[(at-37)*second.YStride:]
				}
				copy(h.Y[at*whole.run.YStride:][:rows], from)
			}
		}
		whole.check(t, 3e-6, "two calls")
	})
}

// What is not a number stays in its row of the state, and in its own run of tokens.
func TestDeltaChunksNaN(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		c := newDeltaCase(rand.New(rand.NewPCG(21, 22)), 50, 32, []int{40}, "random", "random", false)
		h := &c.run.Heads[0]
		h.V[3*c.run.VStride+7] = float32(math.NaN())
		c.run.chunks()
		for i, s := range h.State {
			require.Equal(t, i/32 == 7, s != s, "element %d", i)
		}
		c = newDeltaCase(rand.New(rand.NewPCG(21, 22)), 50, 32, []int{40}, "random", "random", false)
		c.run.chunks()
		c.check(t, 3e-6, "after a run with NaN")
		require.Zero(t, testing.AllocsPerRun(5, c.run.chunks))
	})
}

func TestDeltaChunksChecks(t *testing.T) {
	for _, damage := range []func(d *DeltaRun){
		func(d *DeltaRun) { d.Q = d.Q[1:] }, func(d *DeltaRun) { d.KStride++ }, func(d *DeltaRun) { d.Tokens++ },
		func(d *DeltaRun) { d.Keys = 0 },
		func(d *DeltaRun) { d.Heads[0].State = d.Heads[0].State[1:] },
		func(d *DeltaRun) { d.Heads[0].V = d.Heads[0].V[1:] },
		func(d *DeltaRun) { d.Heads[0].Y = d.Heads[0].Y[1:] }, func(d *DeltaRun) { d.Heads[0].Decay = nil },
		func(d *DeltaRun) { d.BetaStride = -1 },
	} {
		c := newDeltaCase(rand.New(rand.NewPCG(1, 2)), 4, 8, []int{3}, "one", "one", false)
		damage(&c.run)
		require.Panics(t, func() { DeltaRule(&c.run) })
		release()
	}
}
