package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rounding to 8 bits gives the same codes and scales at every level, in every order, for numbers that are not
// finite too, and the same sums of them.
func TestQuantizeActivations(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(1, 2))
		for _, group := range []int{32, 64, 128} {
			for _, cols := range []int{group, 3 * group, 7 * group, 32 * group} {
				for _, block := range []int{1, tileCodeBlock, active.codeBlock} {
					for _, x := range [][]float32{floats(r, cols), arguments(r, cols), make([]float32, cols)} {
						groups, whole := cols/group, roundUp(cols, 128)
						want, wantScales, wantSums := make([]int8, whole), make([]float32, groups),
							make([]float32, groups)
						got, scales, sums := guarded[int8](whole), guarded[float32](groups), guarded[float32](groups)
						quantizeGeneric(want, wantScales, wantSums, x, group, block)
						active.quantize(got, scales, sums, x, group, block)
						require.Equal(t, want, got, "group %d, cols %d, block %d", group, cols, block)
						requireSame(t, wantScales, scales, "scales")
						requireSame(t, wantSums, sums, "sums")
					}
				}
				release()
			}
		}
	})
}

// The codes are the nearest ones: half a step from the numbers at most. Sums are those of the codes; NaN
// stays.
func TestQuantizeActivationsError(t *testing.T) {
	defer release()
	r := rand.New(rand.NewPCG(3, 4))
	x := floats(r, 256)
	codes, scales, sums := make([]int8, 256), make([]float32, 4), make([]float32, 4)
	quantizeGeneric(codes, scales, sums, x, 64, 1)
	for i, v := range x {
		require.InDelta(t, float64(v), float64(codes[i])*float64(scales[i/64]), float64(scales[i/64])*0.50001)
	}
	for g, sum := range sums {
		total := 0
		for _, c := range codes[g*64 : (g+1)*64] {
			total += int(c)
		}
		require.InEpsilon(t, float64(total)*float64(scales[g]), float64(sum), 1e-6)
	}
	x[70] = float32(math.NaN())
	quantizeGeneric(codes, scales, sums, x, 64, 1)
	require.True(t, math.IsNaN(float64(sums[1])))
	require.False(t, math.IsNaN(float64(sums[0])))
}

func TestSpreadAndBlocks(t *testing.T) {
	require.Equal(t, []int{0, 4, 1, 5, 2, 6, 3, 7, 8, 12}, func() (places []int) {
		for i := range 10 {
			places = append(places, blockPlace(i, 8))
		}
		return places
	}())
	src, dst, back := make([]int8, 256), make([]int8, 256), make([]int8, 256)
	for i := range src {
		src[i] = int8(i)
	}
	for _, block := range []int{1, 8, 32, 64, 128} {
		t.Run(fmt.Sprint(block), func(t *testing.T) {
			reblock(dst, src, block, 8)
			for i := range dst {
				require.Equal(t, src[blockPlace(i, 8)], dst[blockPlace(i, block)])
			}
			reblock(back, dst, 8, block)
			require.Equal(t, src, back)
			reblock(dst, src, block, 1)
			require.Equal(t, src[0], dst[0])
			if block > 1 {
				require.Equal(t, src[2], dst[1])
				require.Equal(t, src[1], dst[block/2])
			}
		})
	}
}

func TestGroupSums(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(5, 6))
		for _, group := range []int{32, 64, 128} {
			for _, groups := range []int{0, 1, 5} {
				x, sums := floats(r, group*groups), floats(r, groups)
				active.groupSums(sums, x, group)
				for g := range sums {
					require.InDelta(t, float64(Sum(x[g*group:(g+1)*group])), float64(sums[g]), 1e-4)
				}
			}
		}
	})
}
