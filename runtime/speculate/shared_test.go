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

// crowd is some sequences on a machine whose calls take call and as many times row as they have rows, and whose draft
// takes chain for each step. acceptance is the chance of each draft of a sequence.
type crowd struct {
	acceptance       []float64
	call, row, chain float64 // seconds
	fixed            bool
}

// answer gives tokens to each sequence, and tells what that takes as a part of what it takes without drafts.
func (c crowd) answer(tokens int) (part float64, members []*speculate.Member) {
	s := speculate.NewShared(4, c.fixed)
	r := rand.New(rand.NewPCG(1, uint64(len(c.acceptance))))
	have := make([]int, len(c.acceptance))
	for range have {
		members = append(members, &speculate.Member{})
	}
	took, plain := 0.0, 0.0
	for slices.Min(have) < tokens {
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
		took += seconds
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
