package quantize

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// torchSum adds a row as SumKernel.cpp does, written after that file's structure rather than ours:
// vectors of 8, four interleaved rows of vectors, four levels. len(x) is a multiple of 32.
func torchSum(x []float32) float32 {
	type vector [8]float32
	add := func(a, b vector) vector {
		for i := range a {
			a[i] += b[i]
		}
		return a
	}
	load := func(i int) (v vector) { copy(v[:], x[8*i:]); return v }
	size := len(x) / 8 / 4
	ceilLog2 := 1
	for 1<<ceilLog2 < size {
		ceilLog2++
	}
	power := max(4, ceilLog2/4)
	step := 1 << power
	var acc [4][4]vector
	i := 0
	for i+step <= size {
		for range step {
			for k := range 4 {
				acc[0][k] = add(acc[0][k], load(4*i+k))
			}
			i++
		}
		for j := 1; j < 4; j++ {
			for k := range 4 {
				acc[j][k] = add(acc[j][k], acc[j-1][k])
				acc[j-1][k] = vector{}
			}
			if i&((step-1)<<(j*power)) != 0 {
				break
			}
		}
	}
	for ; i < size; i++ {
		for k := range 4 {
			acc[0][k] = add(acc[0][k], load(4*i+k))
		}
	}
	for j := 1; j < 4; j++ {
		for k := range 4 {
			acc[0][k] = add(acc[0][k], acc[j][k])
		}
	}
	all := add(add(add(acc[0][0], acc[0][1]), acc[0][2]), acc[0][3])
	var sum float32
	for _, lane := range all {
		sum += lane
	}
	return sum
}

// torchHQQ is the search as torchao runs it: every update over the whole tensor, then the stop test.
func torchHQQ(w []float32, group, bits int) (scales []float32, updates int) {
	limit := float64(int(1) << (bits - 1))
	for start := 0; start < len(w); start += group {
		largest := 0.0
		for _, x := range w[start : start+group] {
			largest = max(largest, math.Abs(float64(x)))
		}
		scales = append(scales, max(float32(largest)/float32(limit), 0x1p-23))
	}
	products, squares := make([]float32, group), make([]float32, group)
	for updates = 1; updates <= 20; updates++ {
		change := float32(0)
		for g, previous := range scales {
			for i, x := range w[g*group : (g+1)*group] {
				q := float32(min(max(math.RoundToEven(float64(x/previous)), -limit), limit-1))
				products[i], squares[i] = x*q, q*q
			}
			scale := previous
			if den := torchSum(squares); den > 0 {
				scale = torchSum(products) / den
			}
			scale = float32(math.Abs(float64(max(scale, 0x1p-23))))
			change = max(change, float32(math.Abs(float64(scale-previous)))/max(previous, 0x1p-23))
			scales[g] = scale
		}
		if change < 1e-5 {
			return scales, updates
		}
	}
	return scales, 20
}

func TestHQQEqualsWholeTensorLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Scheme{Method: HQQ, Bits: rapid.SampledFrom([]int{4, 8}).Draw(t, "bits"), Params: F32}
		cols := rapid.SampledFrom([]int{128, 384, 512, 1152, 5376}).Draw(t, "cols")
		if rapid.Bool().Draw(t, "grouped") {
			s.GroupSize = rapid.SampledFrom([]int{32, 64, 128}).Draw(t, "group")
		}
		rows := rapid.IntRange(1, 4).Draw(t, "rows")
		w := weights(t, rows*cols)
		want, updates := torchHQQ(w, s.group(cols), s.Bits)

		var search Search
		require.NoError(t, search.Observe(w, rows, cols, s, nil))
		require.Equal(t, updates, search.Iterations())
		r := quantizedRapid(t, w, cols, s)
		for i, scale := range r.Scales {
			require.Equal(t, want[i*r.GroupSize/s.group(cols)], scale, "scale %d", i)
		}
	})
}

// TestSumOrder has groups on both sides of the length from which torch's sum has two levels.
func TestSumOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{32, 96, 512, 544, 1024, 1152, 5376} {
		w := make([]float32, 16*n)
		for i := range w {
			w[i] = float32(rng.NormFloat64())
		}
		for _, bits := range []int{4, 8} {
			want, _ := torchHQQ(w, n, bits)
			r := quantized(t, w, n, Scheme{Method: HQQ, Bits: bits, Params: F32})
			for i, scale := range want {
				require.Equal(t, scale, r.Scales[i*n/r.GroupSize], "%d bits, row %d of %d weights", bits, i, n)
			}
		}
	}
}

func TestSearchStops(t *testing.T) {
	below := math.Nextafter32(hqqTolerance, 0)
	for want, change := range map[int][]float32{
		1:  nil,
		2:  {hqqTolerance},
		3:  {1, hqqTolerance, below, 1},
		4:  {1, 1, float32(math.NaN())},
		20: {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
	} {
		var s, merged Search
		copy(s.change[:], change)
		require.Equal(t, want, s.Iterations())
		merged.Merge(&s)
		require.Equal(t, want, merged.Iterations())
	}
	require.Equal(t, float32(1e-5), float32(hqqTolerance))
}

// TestGlobalStop has rows that alone would stop after another number of updates than the tensor, and
// scales for which that matters.
func TestGlobalStop(t *testing.T) {
	const rows, cols = 8, 5376
	rng := rand.New(rand.NewPCG(3, 4))
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	s := Scheme{Method: HQQ, Bits: 8, Params: F32}
	whole := quantized(t, w, cols, s)
	differing := 0
	for r := range rows {
		alone := quantized(t, w[r*cols:(r+1)*cols], cols, s)
		if alone.Scales[0] != whole.Scales[r*len(alone.Scales)] {
			differing++
		}
	}
	require.Positive(t, differing, "the stop test of a row alone gave the scales of the whole tensor everywhere")
}

func TestCascadeEqualsTorch(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{32, 64, 480, 512, 544, 1024, 8192, 8224, 16384, 131072 + 32, 1 << 20} {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		c := newCascade(n)
		for rest := x; len(rest) > 0; rest = rest[sumLanes:] {
			for i := range sumLanes {
				c.level[0][i] += rest[i]
			}
			c.advance()
		}
		require.Equal(t, torchSum(x), c.sum(), "%d values", n)
	}
}
