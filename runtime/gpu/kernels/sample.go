package kernels

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Sample chooses a token by logits [Vocab] with the Gumbel-max trick: the first of the largest logit/temperature +
// noise among the tokens that top-k and then top-p keep, or of the largest logits where the temperature is not above 0.
// The noise comes from MLX's random words for a seed, as in ir/eval. For equal logits the tokens are equal to the
// reference's, except where two candidates are closer than the last bit of a logarithm or of a probability. A NaN is
// never chosen.
type Sample struct {
	Vocab int
	// Greedy says that there is no temperature: the token is the argmax.
	Greedy bool
	// Filters says that there are top_k, top_p and a seed. Without filters the temperature is at least 1e-6, the noise
	// is −log(−log(u + 1e-20) + 1e-20), and the key of the random words is an input.
	Filters bool
	// Rows is the number of rows of logits that the runtime's own sampler draws from, each with its own settings; 0 for
	// a sampling head, which has one row. MinP says that there is min_p. The runtime's sampler has filters.
	Rows int
	MinP bool
}

// Parts returns the number of parts of the vocabulary, and the number of logits of each.
func (s Sample) Parts() (parts, each int) {
	each = max(32, ceil(ceil(s.Vocab, 1024), 32)*32)
	return ceil(s.Vocab, each), each
}

const sampleSimdgroups = 8

// maxSampleRows is the largest number of rows that one launch draws from.
const maxSampleRows = 1 << 12

// Launches are the dispatches; without Filters the second is not needed.
//
// They take SamplePartArguments, SampleCollectArguments and SampleChooseArguments: Temperature, TopP f32 [1], TopK i64
// [1], Seed i64 [1] (or the key, two u32, upper word first), Tops f32 and their places i32 [Parts], of the candidates
// Values f32 and Places i32 [Parts·each], Counts i32 [Parts], Sums u64 [Parts], Token i32 [1], and Next, the token
// again for the call that follows. Of rows, all of these for each, with MinP f32 [1] and as Seed the key i64 [1].
func (s Sample) Launches() (part, collect, choose Launch, err error) {
	if s.Vocab <= 0 || s.Vocab > 1<<19 || s.Greedy && s.Filters {
		return part, collect, choose, fmt.Errorf(
			"sampling of %d logits (greedy %t, filters %t), want 1 to 2^19, and no filters where it is greedy",
			s.Vocab, s.Greedy, s.Filters)
	}
	if s.Rows < 0 || s.Rows > maxSampleRows || s.Rows > 0 && !s.Filters || s.MinP && s.Rows == 0 {
		return part, collect, choose, fmt.Errorf(
			"sampling of %d rows (filters %t, min-p %t), want 1 to %d, with filters, or 0 without min-p", s.Rows,
			s.Filters, s.MinP, maxSampleRows)
	}
	parts, each := s.Parts()
	shift := float32(0)
	if !s.Greedy && !s.Filters {
		shift = sampleShift
	}
	defines := define("SAMPLE_VOCAB", s.Vocab, "SAMPLE_PARTS", parts, "SAMPLE_EACH", each, "SAMPLE_GREEDY", s.Greedy,
		"SAMPLE_FILTERS", s.Filters, "SAMPLE_SHIFT", shift)
	if s.Rows > 0 {
		defines = append(defines, define("SAMPLE_ROWS", 1, "SAMPLE_MIN_P", s.MinP)...)
	}
	launch := func(kernel string, groups, threads int) Launch {
		return Launch{File: "sample", Kernel: kernel, Defines: defines, Groups: [3]int{groups, max(s.Rows, 1), 1},
			Threads: [3]int{threads, 1, 1}}
	}
	groups := ceil(parts, sampleSimdgroups)
	part, collect, choose = launch("sample_part", groups, sampleSimdgroups*32),
		launch("sample_collect", groups, sampleSimdgroups*32), launch("sample_choose", 1, 1024)
	choose.Case = s.newCase
	return part, collect, choose, nil
}

// sampleShift keeps the noise finite for the sampler without filters.
const sampleShift = 1e-20

// Reference chooses the token of a row with full sorts. With a seed the key is computed from it, else Draw.Key is used.
func (s Sample) Reference(d Draw) int {
	logits, temperature, topK, topP, key := d.Logits, d.Temperature, d.TopK, d.TopP, d.Key
	shift := 0.0
	if !s.Greedy && !s.Filters {
		temperature, shift = max(temperature, 1e-6), sampleShift
	}
	if s.Greedy || !(temperature > 0) {
		return firstLargest(logits)
	}
	scaled := make([]float32, len(logits))
	for i, v := range logits {
		scaled[i] = v / temperature
	}
	drop := func(values []float32, least float32) {
		for i, v := range values {
			if v < least {
				scaled[i] = float32(math.Inf(-1))
			}
		}
	}
	if s.Filters && topK > 0 && topK < int64(len(logits)) {
		drop(scaled, descending(scaled)[topK-1])
	}
	if s.Filters && topP < 1 {
		p := softmax(scaled)
		drop(p, nucleus(p, topP))
	}
	if s.MinP && d.MinP > 0 {
		drop(scaled, scaled[firstLargest(scaled)]+float32(math.Log(float64(min(d.MinP, 1)))))
	}
	for i, v := range scaled {
		if !math.IsInf(float64(v), -1) {
			u := float64(min(float32(randomWord(key, s.Vocab, i))/(1<<32), 1-1.0/(1<<24)))
			scaled[i] += float32(-math.Log(float64(float32(-math.Log(u+shift) + shift))))
		}
	}
	return firstLargest(scaled)
}

// firstLargest returns the first index of the largest number; it is 0 where there is none above -∞.
func firstLargest(x []float32) (at int) {
	high := float32(math.Inf(-1))
	for i, v := range x {
		if v > high {
			at, high = i, v
		}
	}
	return at
}

// descending returns the numbers, sorted from the largest on.
func descending(x []float32) []float32 {
	out := slices.Clone(x)
	slices.SortFunc(out, func(a, b float32) int {
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	return out
}

// softmax returns the probabilities of logits: exponentials in float32, their sum in float64.
func softmax(x []float32) []float32 {
	p, z := make([]float32, len(x)), 0.0
	high := slices.Max(x)
	for i, v := range x {
		p[i] = float32(math.Exp(float64(v - high)))
		z += float64(p[i])
	}
	for i := range p {
		p[i] = float32(float64(p[i]) / z)
	}
	return p
}

// nucleus returns the smallest probability that top-p keeps.
func nucleus(p []float32, topP float32) float32 {
	least, sum := float32(math.Inf(1)), 0.0
	for _, v := range descending(p) {
		sum += float64(v)
		if !(float32(sum)-v > topP) {
			least = min(least, v)
		}
	}
	return least
}

// randomWord is word i of MLX's draw of n words: 20 rounds of Threefry-2x32 (Salmon et al., 2011) on the pair of
// counters that the word belongs to.
func randomWord(key [2]uint32, n, i int) uint32 {
	upper := (n + 1) / 2
	x, y, second := uint32(i), uint32(upper+i), i >= upper
	switch {
	case second:
		x, y = uint32(i-upper), uint32(i)
	case i >= n/2:
		y = 0
	}
	keys := [3]uint32{key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda}
	x, y = x+keys[0], y+keys[1]
	for round := range uint32(5) {
		for _, by := range [2][4]int{{13, 15, 26, 6}, {17, 29, 16, 24}}[round%2] {
			x += y
			y = bits.RotateLeft32(y, by) ^ x
		}
		x, y = x+keys[(round+1)%3], y+keys[(round+2)%3]+round+1
	}
	if second {
		return y
	}
	return x
}
