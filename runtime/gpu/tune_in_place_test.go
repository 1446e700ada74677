package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWindow: a window holds what is before a product, two of its steps where there are two, more than caches hold, and
// what is after; it ends where the steps do, and is bounded.
func TestWindow(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		count    int         // of steps, of which each reads
		bytes    int         // so much
		product  []int       // its steps
		reads    map[int]int // of single steps
		from, to int
	}{
		"layers":             {count: 100, bytes: 10 * mb, product: []int{10, 20, 30, 40, 50}, from: 8, to: 34},
		"one behind the end": {count: 100, bytes: 10 * mb, product: []int{10, 32, 33, 34}, from: 8, to: 37},
		"the first step":     {count: 100, bytes: 10 * mb, product: []int{0, 20}, from: 0, to: 26},
		"few, far apart":     {count: 100, bytes: 10 * mb, product: []int{10, 60}, from: 8, to: 63},
		"too far apart":      {count: 1000, bytes: 10 * mb, product: []int{10, 600}, from: 8, to: 8 + tuneRuns},
		"one":                {count: 100, bytes: 10 * mb, product: []int{10}, from: 8, to: 34},
		"a large one near the end": {count: 100, bytes: mb, product: []int{97}, reads: map[int]int{97: 300 * mb},
			from: 95, to: 100},
		"one at the end":            {count: 100, bytes: 10 * mb, product: []int{99}, from: 74, to: 100},
		"all are less than a cache": {count: 100, bytes: mb, product: []int{10, 20}, from: 0, to: 100},
		"so is what is behind":      {count: 100, bytes: 10 * mb, product: []int{80, 85}, from: 74, to: 100},
		"many small ones": {count: 1000, bytes: 1000, product: []int{300, 310},
			from: 298, to: 298 + tuneRuns},
		"a single step": {count: 1, bytes: mb, product: []int{0}, from: 0, to: 1},
	} {
		list := make([]step, c.count)
		steps, of := make([]*step, c.count), map[*step]bool{}
		for i := range list {
			steps[i], list[i].bytes = &list[i], c.bytes
		}
		for i, n := range c.reads {
			list[i].bytes = n
		}
		for _, i := range c.product {
			of[steps[i]] = true
		}
		from, to := benchmarkRange(steps, func(s *step) bool { return of[s] })
		require.Equal(t, [2]int{c.from, c.to}, [2]int{from, to}, name)
	}
}
