package kernels_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

func TestNear(t *testing.T) {
	first := kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 16}
	for name, c := range map[string]struct {
		other kernels.Tuning
		near  bool
	}{
		"itself":                   {first, false},
		"rows":                     {kernels.Tuning{Rows: 1, Lanes: 32, Split: 2, Sets: 8, Bytes: 16}, true},
		"sets":                     {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 4, Bytes: 16}, true},
		"split, as many threads":   {kernels.Tuning{Rows: 2, Lanes: 32, Split: 4, Sets: 4, Bytes: 16}, true},
		"split, as many sets":      {kernels.Tuning{Rows: 2, Lanes: 32, Split: 4, Sets: 8, Bytes: 16}, true},
		"split, neither":           {kernels.Tuning{Rows: 2, Lanes: 32, Split: 4, Sets: 2, Bytes: 16}, false},
		"lanes and split":          {kernels.Tuning{Rows: 2, Lanes: 16, Split: 4, Sets: 8, Bytes: 16}, true},
		"bytes":                    {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 8}, true},
		"rows and bytes":           {kernels.Tuning{Rows: 1, Lanes: 32, Split: 2, Sets: 8, Bytes: 8}, false},
		"permuted":                 {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 16, Permute: true}, true},
		"lanes":                    {kernels.Tuning{Rows: 2, Lanes: 16, Split: 2, Sets: 8, Bytes: 16}, true},
		"chunks of another length": {kernels.Tuning{Rows: 2, Lanes: 32, Split: 2, Sets: 8, Bytes: 16, Chunk: 512}, true},
	} {
		require.Equal(t, c.near, first.Near(c.other), name)
		require.Equal(t, c.near, c.other.Near(first), name)
	}
	require.True(t, kernels.Tile{BM: 16}.Near(kernels.Tile{BM: 32, BN: 64}))
}

// TestClimbable: a search that goes from way to way, each near the last one, gets everywhere, and what is near the
// default is listed before most of what is not.
func TestClimbable(t *testing.T) {
	experts := kernels.Experts{Format: affine4, Count: 256, Top: 8, Hidden: 2048, Inner: 512, Router: kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}, Shared: true}
	for _, target := range []kernels.Target{kernels.CUDA, kernels.Metal} {
		up, down := experts.Tunings(kernels.Machine{Target: target}, 1)
		lists := [][]kernels.Tuning{up, down}
		for _, v := range []kernels.Vectors{{Format: affine4, K: 2048, M: 1}, {Format: affine4, K: 21504, M: 1}, {Format: affine4, K: 2048, M: 4},
			{Format: kernels.Format{Bits: 8, Group: 64}, K: 2048, M: 1}, {Format: kernels.Format{Bits: 16}, K: 512, M: 2}} {
			lists = append(lists, kernels.MatVec{Vectors: v, N: 2048}.Tunings(kernels.Machine{Target: target}))
		}
		for i, all := range lists {
			reached := []int{0}
			seen := map[int]bool{0: true}
			for i := 0; i < len(reached); i++ {
				for j := range all {
					if !seen[j] && all[reached[i]].Near(all[j]) {
						seen[j] = true
						reached = append(reached, j)
					}
				}
			}
			require.Len(t, reached, len(all), "list %d", i)
			require.True(t, all[0].Near(all[1]) && all[0].Near(all[2]), "list %d", i)
		}
	}
}

// TestNumbersOfSimdgroups: on NVIDIA numbers of simdgroups between powers of two are tried, too, and grids of the experts' first
// product of which a multiprocessor of an H100 holds two or three threadgroups at once come early.
func TestNumbersOfSimdgroups(t *testing.T) {
	e := kernels.Experts{Format: affine4, Count: 256, Top: 8, Hidden: 2048, Inner: 512, Router: kernels.Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}, Shared: true}
	up, _ := e.Tunings(kernels.Machine{Target: kernels.CUDA}, 1)
	for i, most := range []int{2 * 132, 3 * 132} {
		l, err := e.LaunchUp(up[i+1], 1)
		require.NoError(t, err)
		groups := l.Groups[0] * l.Groups[1]
		require.True(t, groups <= most && groups > most*9/10, "%d threadgroups, want up to %d", groups, most)
		require.True(t, up[0].Near(up[i+1]))
	}
	for target, want := range map[kernels.Target][]int{kernels.Metal: {4, 8, 16}, kernels.CUDA: {4, 5, 6, 7, 8, 9, 10, 12, 16}} {
		for _, v := range []kernels.MatVec{{Vectors: kernels.Vectors{Format: affine4, K: 2048, M: 1}, N: 2048}, {Vectors: kernels.Vectors{Format: affine4, K: 2048, M: 1}, N: 8192}} {
			var got []int
			for _, w := range v.Tunings(kernels.Machine{Target: target}) {
				if w.Split <= 2 {
					got = append(got, w.Split*w.Sets)
				}
			}
			slices.Sort(got)
			require.Equal(t, want, slices.Compact(got))
		}
	}
}
