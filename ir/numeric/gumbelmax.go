package numeric

import (
	"math"
	"sync"
)

// GumbelMax is a search for the greatest x[i] + noise(word i), where the words are those of a draw of len(x)
// elements and the noise is -log(-log(u + shift) + shift) of u = [UniformFromBits] of the word: a sample of
// softmax(x) (Gumbel 1954; Maddison et al., A* Sampling, 2014). Elements of -Inf get no noise.
//
// The noise never decreases with the word, so a table of its greatest values by the word's first bits tells which
// elements cannot win. Logarithms are computed for the few others only; the result is the same.
type GumbelMax struct {
	x     []float32
	key   [2]uint32
	shift float32
	bound *[boundBuckets]float32
}

// NewGumbelMax prepares a search over x, which must not be empty, with the words that [FillWords] makes of
// key, and a shift of 0 or 1e-20.
func NewGumbelMax(x []float32, key [2]uint32, shift float32) GumbelMax {
	bound := plainBounds
	if shift != 0 {
		bound = shiftedBounds
	}
	return GumbelMax{x, key, shift, bound()}
}

const (
	boundBuckets = 1 << 12
	boundShift   = 32 - 12
	// boundSlack is more than logarithms that are rounded may fall short of growing.
	boundSlack = 1e-4
	// authorsShift is the shift of ExecuTorch's CUDA sampler.
	authorsShift = 1e-20
)

var (
	plainBounds   = sync.OnceValue(func() *[boundBuckets]float32 { return noiseBounds(0) })
	shiftedBounds = sync.OnceValue(func() *[boundBuckets]float32 { return noiseBounds(authorsShift) })
)

func noiseBounds(shift float32) *[boundBuckets]float32 {
	var b [boundBuckets]float32
	for i := range b {
		b[i] = GumbelNoise(uint32(i)<<boundShift|(1<<boundShift-1), shift) + boundSlack
	}
	return &b
}

// GumbelNoise returns the noise of a word: -log(-log(u + shift) + shift), each operation rounded to float32.
func GumbelNoise(word uint32, shift float32) float32 {
	return -Log32(-Log32(UniformFromBits(word)+shift) + shift)
}

// Greatest is an element of a search: the first of the greatest ones.
type Greatest struct {
	Value float32
	Index int
	// NaN says that one of the elements was not a number. Value and Index then mean nothing.
	NaN bool
}

// Or returns the greater of two elements; of equals, the one that comes first.
func (g Greatest) Or(o Greatest) Greatest {
	if g.NaN || !o.NaN && (g.Value > o.Value || g.Value == o.Value && g.Index < o.Index) {
		return g
	}
	return o
}

// Pairs returns the number of pairs of elements whose words come from one block of the generator: what a search can
// be divided by.
func (g *GumbelMax) Pairs() int { return (len(g.x) + 1) / 2 }

// Find searches the pairs from lo to hi, which must not be none.
func (g *GumbelMax) Find(lo, hi int) Greatest {
	upper := g.Pairs()
	best := Greatest{Value: float32(math.Inf(-1)), Index: lo}
	var words [2][256]uint32
	for ; lo < hi; lo += len(words[0]) {
		n := min(hi-lo, len(words[0]))
		for i := range n {
			counter := [2]uint32{uint32(lo + i), uint32(upper + lo + i)}
			if upper+lo+i >= len(g.x) { // the last of an odd number has a block of its own
				counter[1] = 0
			}
			block := Threefry2x32(g.key, counter)
			words[0][i], words[1][i] = block[0], block[1]
		}
		best = g.look(lo, words[0][:n], best)
		if first := upper + lo; first < len(g.x) {
			best = g.look(first, words[1][:min(n, len(g.x)-first)], best)
		}
	}
	return best
}

// look goes through the elements from first on, whose words are given.
func (g *GumbelMax) look(first int, words []uint32, best Greatest) Greatest {
	for i, x := range g.x[first:][:len(words)] {
		if x+g.bound[words[i]>>boundShift] < best.Value {
			continue
		}
		if x > float32(math.Inf(-1)) {
			x += GumbelNoise(words[i], g.shift)
		}
		best = best.Or(Greatest{x, first + i, x != x})
	}
	return best
}
