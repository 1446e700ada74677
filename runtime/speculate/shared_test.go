package speculate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/speculate"
)

// crowd is some sequences on a machine whose calls take call and as many times row as they have rows, whose draft takes
// chain for each step, and whose calls with drafts take several besides. acceptance is the chance of each draft of a
// sequence.
type crowd struct {
	acceptance                []float64
	call, row, chain, several float64 // seconds
	fixed                     bool
	renewed                   int // tokens after which other sequences take the places of these; 0: never
	delayed                   int // the first calls of each size take much longer, which part leaves out
}

// answer gives tokens to each sequence, and tells what that takes as a part of what it takes without drafts.
func (c crowd) answer(tokens int) (part float64, members []*speculate.Member) {
	s := speculate.NewShared(4, c.fixed)
	r := rand.New(rand.NewPCG(1, uint64(len(c.acceptance))))
	have := make([]int, len(c.acceptance))
	for range have {
		members = append(members, &speculate.Member{})
	}
	took, plain, sizes := 0.0, 0.0, map[[2]int]int{}
	for age := 0; slices.Min(have) < tokens; {
		if c.renewed > 0 && slices.Min(have)-age >= c.renewed {
			age = slices.Min(have)
			for i := range members {
				members[i] = &speculate.Member{}
			}
		}
		left := slices.Repeat([]int{4}, len(have))
		drafted := s.Next(members, left)
		accepted := make([]int, len(have))
		rows, given := len(have), 0
		for i, k := range drafted {
			rows += k
			for accepted[i] < k && r.Float64() < c.acceptance[i] {
				accepted[i]++
			}
			have[i] += accepted[i] + 1
			given += accepted[i] + 1
		}
		seconds := c.call + c.row*float64(rows) + c.chain*float64(slices.Max(drafted))
		if rows > len(have) {
			seconds += c.several
		}
		took += seconds
		size := [2]int{rows, slices.Max(drafted)}
		if sizes[size]++; sizes[size] <= c.delayed {
			seconds *= 50
		}
		plain += (c.call + c.row*float64(len(have))) * float64(given) / float64(len(have))
		s.Done(members, drafted, accepted, time.Duration(seconds*1e9))
	}
	return took / plain, members
}

// TestSharedDrafts: sequences that share calls draft where that pays, each for itself, and lose no more than 2 % where
// it does not.
func TestSharedDrafts(t *testing.T) {
	for _, n := range []int{1, 3, 8} {
		all := func(a float64) []float64 { return slices.Repeat([]float64{a}, n) }
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			cheap := crowd{acceptance: all(0.9), call: 1e-2, row: 1e-3 / float64(n), chain: 5e-4}
			part, _ := cheap.answer(512)
			require.Less(t, part, 0.6)
			cheap.acceptance = all(0)
			part, _ = cheap.answer(512)
			require.Less(t, part, 1.02)
			dear := crowd{acceptance: all(0.9), call: 0, row: 1e-2, chain: 1e-2} // a row costs as much as a token
			part, _ = dear.answer(512)
			require.Less(t, part, 1.02)
			fixed := crowd{acceptance: all(0), call: 1e-2, row: 1e-3, chain: 1e-3, fixed: true}
			_, members := fixed.answer(64)
			for _, m := range members {
				require.GreaterOrEqual(t, m.Totals().Drafted, 4*64)
			}
		})
	}
	// Of two, the one whose drafts are right has most of them.
	_, members := crowd{acceptance: []float64{0.95, 0}, call: 1e-2, row: 2e-3, chain: 1e-3}.answer(512)
	require.Greater(t, members[0].Totals().Drafted, 8*members[1].Totals().Drafted)
}

// TestSharedSavesForMany: where one draft never pays and three do, as on a GPU whose calls of one row have kernels of
// their own, three are tried as soon as the account allows that. One would spend it again and again.
func TestSharedSavesForMany(t *testing.T) {
	c := crowd{acceptance: []float64{1}, call: 0.5e-3, row: 0.02e-3, chain: 0.16e-3, several: 0.5e-3}
	part, members := c.answer(2048)
	require.Less(t, part, 0.85)
	require.Greater(t, members[0].Totals().Drafted, 3*members[0].Totals().Rounds)
	c.acceptance = []float64{0}
	part, _ = c.answer(512)
	require.Less(t, part, 1.02)

	// Short answers one behind the other: what is known of the drafts of the first ones counts for the others.
	c = crowd{acceptance: []float64{1}, call: 0.5e-3, row: 0.02e-3, chain: 0.16e-3, several: 0.5e-3, renewed: 128}
	part, _ = c.answer(4096)
	require.Less(t, part, 0.85)
	c.acceptance = []float64{0}
	part, _ = c.answer(4096)
	require.Less(t, part, 1.02)
}

// TestSharedAfterDelays: the engine compiles kernels for the first calls of a size. That they take long says nothing of
// later ones.
func TestSharedAfterDelays(t *testing.T) {
	for _, n := range []int{1, 8} {
		c := crowd{acceptance: slices.Repeat([]float64{1}, n), call: 0.5e-3, row: 0.02e-3 / float64(n), chain: 0.1e-3,
			several: 0.3e-3, delayed: 2}
		part, _ := c.answer(2048)
		require.Less(t, part, 0.8, "%d sequences", n)
	}
}

// TestSharedPause: calls of a pause have no drafts, whatever they are timed, and the pause ends.
func TestSharedPause(t *testing.T) {
	s, members, left := speculate.NewShared(3, false), []*speculate.Member{{}}, []int{3}
	none, drafted, calls, longest := []int{0}, 0, 0, 0
	for pause := 0; calls < 3000; calls++ {
		next := s.Next(members, left)
		if pause > 2 { // it may end a call early where a time was to be measured
			require.Equal(t, none, next, "call %d", calls)
		}
		longest, pause = max(longest, s.Pause()), s.Pause()
		took := time.Millisecond
		if drafted += next[0]; next[0] > 0 {
			require.Zero(t, pause, "call %d", calls)
			took = 2 * time.Millisecond
		} else if calls%3 == 0 {
			took = 0 // says nothing
		}
		s.Done(members, next, none, took)
	}
	require.Greater(t, drafted, 10)
	require.Less(t, drafted, 100)
	require.Greater(t, longest, 100)
}
