package speculate_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/speculate"
)

// cost is what a round takes, in rounds without drafts.
type cost func(drafts, accepted int) float64

// costs are those of machines: rows of a call cost little on a GPU, more with experts, as much as the first on a
// slow CPU.
var costs = map[string]cost{
	"cheap": func(k, _ int) float64 { return 1 + 0.05*float64(k) },
	"experts": func(k, _ int) float64 {
		return []float64{1, 1.35, 1.7, 2, 2.3, 2.6, 2.9, 3.1, 3.3}[k]
	},
	"steep":   func(k, _ int) float64 { return 1 + 0.8*float64(k) },
	"no gain": func(k, _ int) float64 { return 1 + 1.1*float64(k) },
	"step": func(k, _ int) float64 {
		if k == 0 {
			return 1
		}
		return 1.6 + 0.02*float64(k)
	},
	"recomputed": func(k, accepted int) float64 {
		c := 1 + 0.2*float64(k)
		if accepted < k {
			c += 0.5
		}
		return c
	},
}

// one is a sequence that has its calls for itself.
type one struct {
	shared *speculate.Shared
	member speculate.Member
}

func newOne(most int, fixed bool) *one { return &one{shared: speculate.NewShared(most, fixed)} }

// Next gives the number of tokens to draft, at most left.
func (o *one) Next(left int) int {
	return o.shared.Next([]*speculate.Member{&o.member}, []int{left})[0]
}

// Done books a round.
func (o *one) Done(drafted, accepted int, took time.Duration) {
	o.shared.Done([]*speculate.Member{&o.member}, []int{drafted}, []int{accepted}, took)
}

// accepts tells how many of k drafts are right, after tokens of the text.
type accepts func(tokens, k int) int

// stationary accepts each draft with a chance, as long as those before it are right.
func stationary(r *rand.Rand, chance float64) accepts {
	return func(_, k int) int {
		n := 0
		for n < k && r.Float64() < chance {
			n++
		}
		return n
	}
}

// simulate gives the time that tokens take, in rounds without drafts, and the drafts of each round.
func simulate(c *one, cost cost, a accepts, tokens int, noise func() float64) (took float64, rounds []int) {
	for n := 0; n < tokens; {
		k := c.Next(tokens - n - 1)
		ok := 0
		if k > 0 {
			ok = a(n, k)
		}
		t := cost(k, ok) * noise()
		c.Done(k, ok, time.Duration(t*float64(10*time.Millisecond)))
		took += t
		n += ok + 1
		rounds = append(rounds, k)
	}
	return took, rounds
}

func exact() float64 { return 1 }

// adversaries choose what is accepted so that it costs most.
func adversaries() map[string]accepts {
	all := func(_, k int) int { return k }
	none := func(int, int) int { return 0 }
	out := map[string]accepts{
		"none":      none,
		"all":       all,
		"not last":  func(_, k int) int { return k - 1 },
		"one only":  func(_, k int) int { return min(1, k) },
		"only ones": func(_, k int) int { return map[bool]int{true: 1}[k == 1] },
	}
	for _, length := range []int{3, 10, 40, 100, 250} {
		out[fmt.Sprintf("phases of %d", length)] = func(tokens, k int) int {
			if tokens/length%2 == 0 {
				return k
			}
			return 0
		}
		out[fmt.Sprintf("good for %d", length)] = func(tokens, k int) int {
			if tokens < length {
				return k
			}
			return 0
		}
	}
	for _, run := range []int{1, 2, 4, 8, 16} { // accepts until drafts are had, then turns
		asked := 0
		out[fmt.Sprintf("turns after %d", run)] = func(_, k int) int {
			if asked++; asked%(2*run) < run {
				return k
			}
			return 0
		}
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		chance := 0.5
		out[fmt.Sprintf("walk %d", seed)] = func(_, k int) int {
			chance = min(1, max(0, chance+0.2*(r.Float64()-0.5)))
			return stationary(r, chance)(0, k)
		}
	}
	return out
}

// TestControlNeverLoses: whatever is accepted, 512 tokens take at most 1/0.98 of the time that they take without
// drafts.
func TestControlNeverLoses(t *testing.T) {
	for name, cost := range costs {
		for pattern := range adversaries() {
			for _, most := range []int{1, 3, speculate.MostDrafts} {
				a := adversaries()[pattern]
				took, rounds := simulate(newOne(most, false), cost, a, 512, exact)
				require.LessOrEqual(t, took, 512/0.98, "%s, %s, at most %d: %v", name, pattern, most, rounds)
			}
		}
	}
}

// TestControlNeverLosesShort: nor do shorter texts lose more than two tokens beside that.
func TestControlNeverLosesShort(t *testing.T) {
	for name, cost := range costs {
		for pattern := range adversaries() {
			for _, tokens := range []int{1, 4, 11, 25, 60, 120, 200} {
				a := adversaries()[pattern]
				took, _ := simulate(newOne(4, false), cost, a, tokens, exact)
				require.LessOrEqual(t, took, 1.02*float64(tokens)+2.1, "%s, %s, %d tokens", name, pattern, tokens)
			}
		}
	}
}

// TestControlNearBest: where chances stay the same, the time is near that of the best fixed number of drafts.
func TestControlNearBest(t *testing.T) {
	const tokens = 3000
	for name, cost := range costs {
		for _, chance := range []float64{0, 0.2, 0.4, 0.5, 0.61, 0.75, 0.91, 0.98, 1} {
			best, bestK := float64(tokens), 0
			for k := 1; k <= 4; k++ {
				took, _ := simulate(newOne(k, true), cost,
					stationary(rand.New(rand.NewPCG(1, 1)), chance), tokens, exact)
				if took < best {
					best, bestK = took, k
				}
			}
			var times []float64
			for seed := range uint64(3) {
				r := rand.New(rand.NewPCG(seed, 2))
				took, _ := simulate(newOne(4, false), cost,
					stationary(r, chance), tokens, exact)
				times = append(times, took)
			}
			slices.Sort(times)
			t.Logf("%-10s %.2f: best %.0f with %d, median %.0f, %.3f", name, chance, best, bestK,
				times[1], best/times[1])
			require.GreaterOrEqual(t, best/times[1], 0.94, "%s at %g: best %.0f with %d, took %.0f", name,
				chance, best, bestK, times)
		}
	}
}

// TestControlComesBack: after a long text without a right draft a good one is noticed.
func TestControlComesBack(t *testing.T) {
	good := func(tokens, k int) int {
		if tokens < 2000 {
			return 0
		}
		return k
	}
	c := newOne(3, false)
	took, rounds := simulate(c, costs["experts"], good, 4000, exact)
	require.Less(t, took, 2000*1.02+400+1600*0.52)
	tried := 0
	for _, k := range rounds[:1500] {
		if k > 0 {
			tried++
		}
	}
	require.Positive(t, tried)
	require.Less(t, tried, 60, "drafts that do not pay are tried now and then only")
}

// TestControlNoise: times that vary, with outliers, change little.
func TestControlNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	noise := func() float64 {
		if r.IntN(50) == 0 {
			return 4
		}
		return 0.9 + 0.2*r.Float64()
	}
	off := newOne(0, false)
	plain, _ := simulate(off, costs["experts"], stationary(r, 0), 3000, noise)
	for _, chance := range []float64{0, 0.5, 0.9} {
		c := newOne(3, false)
		took, _ := simulate(c, costs["experts"], stationary(r, chance), 3000, noise)
		require.Less(t, took, 1.05*plain, "%g", chance)
		if chance == 0.9 {
			require.Less(t, took, 0.78*plain)
		}
	}
}

// TestControlLimits: no round drafts more than what is left, a fixed number never changes, and a round without
// drafts is measured now and then.
func TestControlLimits(t *testing.T) {
	c := newOne(3, true)
	for left := range 6 {
		require.Equal(t, min(3, left), c.Next(left))
		c.Done(min(3, left), 0, time.Millisecond)
	}
	require.Equal(t, speculate.Totals{Rounds: 5, Drafted: 12}, c.shared.Totals())
	require.Zero(t, c.shared.Totals().Acceptance())
	c = newOne(3, false)
	_, rounds := simulate(c, costs["cheap"], stationary(rand.New(rand.NewPCG(1, 1)), 1), 2000, exact)
	plain := 0
	for _, k := range rounds {
		if k == 0 {
			plain++
		}
	}
	require.InDelta(t, 2000/160, plain, 4)
}

// TestLog: rounds as --draft-log writes them.
func TestLog(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, speculate.Log(nil).Write(&b))
	require.Equal(t, "[]\n", b.String())
	b.Reset()
	require.NoError(t, speculate.Log{{At: 8, Draft: []int32{3, 4}, Accepted: 1}, {At: 10}}.Write(&b))
	require.Equal(t, `[{"at":8,"draft":[3,4],"accepted":1},{"at":10,"draft":[],"accepted":0}]`+"\n", b.String())
}

// TestControlFirstCalls: what an engine plans once, before the first call of a number of rows, does not count against
// drafts.
func TestControlFirstCalls(t *testing.T) {
	seen := map[int]bool{}
	first := func(k, accepted int) float64 {
		c := costs["experts"](k, accepted)
		if !seen[k] {
			seen[k] = true
			c += 200
		}
		return c
	}
	r := rand.New(rand.NewPCG(7, 8))
	took, _ := simulate(newOne(3, false), first, stationary(r, 0.91), 3000, exact)
	require.Less(t, took-200*float64(len(seen)), 0.65*3000)
}
