package batch

import (
	"math"
	"slices"

	"github.com/etc-ml/etc/ir/numeric"
)

var minusInfinity = float32(math.Inf(-1))

// choose draws a token from logits as the sampling head of a program does (operation sample of the IR): temperature,
// top-k, top-p, then the Gumbel-max trick with the noise of the seed, all in float32; after them min-p, if it is set.
// It does not change logits.
func (d Draw) choose(logits []float32) int { return d.chooseAbove(logits, d.MinP) }

// chooseAbove is choose with the given min-p: after the other filters it drops tokens that are less likely than minP
// times the most likely one.
func (d Draw) chooseAbove(logits []float32, minP float32) int {
	if !(d.Temperature > 0) {
		return greatest(logits)
	}
	scaled := make([]float32, len(logits))
	for i, v := range logits {
		scaled[i] = v / d.Temperature
	}
	if d.TopK > 0 && d.TopK < int64(len(scaled)) {
		drop(scaled, scaled, kth(scaled, int(d.TopK)))
	}
	if d.TopP < 1 {
		p := probabilities(scaled)
		drop(scaled, p, nucleus(p, d.TopP))
	}
	if minP > 0 {
		high := scaled[greatest(scaled)]
		for i, v := range scaled {
			if v != high && numeric.Exp32(v-high) < minP {
				scaled[i] = minusInfinity
			}
		}
	}
	key := numeric.Key(uint64(int32(d.Seed)))
	search := numeric.NewGumbelMax(scaled, key, 0)
	if best := search.Find(0, search.Pairs()); !best.NaN {
		return best.Index
	}
	for i, v := range scaled {
		if v > minusInfinity {
			scaled[i] += numeric.GumbelNoise(numeric.Word(key, len(scaled), i), 0)
		}
	}
	return greatest(scaled)
}

// greatest returns the first index of the greatest number, ignoring NaN.
func greatest(values []float32) int {
	best, at := minusInfinity, 0
	for i, v := range values {
		if v > best {
			best, at = v, i
		}
	}
	return at
}

// drop sets elements of scaled to −∞ where values is below a threshold.
func drop(scaled, values []float32, threshold float32) {
	for i, v := range values {
		if v < threshold {
			scaled[i] = minusInfinity
		}
	}
}

// heap holds the largest numbers seen so far; the smallest of them comes first.
type heap []float32

func (h heap) down() {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if h[child] >= h[i] {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// kth returns the k-th largest number, or NaN where there are fewer.
func kth(x []float32, k int) float32 {
	h := make(heap, 0, k)
	for _, v := range x {
		switch {
		case v != v:
		case len(h) < k:
			if h = append(h, v); len(h) == k {
				slices.Sort(h) // an ascending list is a heap
			}
		case v > h[0]:
			h[0] = v
			h.down()
		}
	}
	if len(h) < k {
		return float32(math.NaN())
	}
	return h[0]
}

// probabilities returns the softmax: exponentials in float32, their sum in float64 from left to right, as in the
// reference implementation.
func probabilities(x []float32) []float32 {
	high := minusInfinity
	for _, v := range x {
		if v > high || v != v {
			high = v
		}
	}
	out := make([]float32, len(x))
	sum := 0.0
	for i, v := range x {
		if v == minusInfinity && !math.IsInf(float64(high), 0) {
			continue
		}
		out[i] = numeric.Exp32(v - high)
		sum += float64(out[i])
	}
	for i, v := range out {
		out[i] = float32(float64(v) / sum)
	}
	return out
}

// nucleus returns the smallest probability that top-p keeps. Top-p keeps a token if the tokens more likely than it have
// at most topP together.
func nucleus(probabilities []float32, topP float32) float32 {
	sorted := make([]float32, 0, len(probabilities))
	for _, v := range probabilities {
		if v != v {
			return v // a NaN compares as false, so nothing is dropped
		}
		if v != 0 {
			sorted = append(sorted, v)
		}
	}
	slices.SortFunc(sorted, func(a, b float32) int {
		if a > b {
			return -1
		} else if a < b {
			return 1
		}
		return 0
	})
	threshold, sum := float32(math.Inf(1)), 0.0
	for _, v := range sorted {
		sum += float64(v)
		if before := float32(sum) - v; !(before > topP) {
			threshold = v
		}
	}
	if len(sorted) < len(probabilities) && !(float32(sum) > topP) {
		return 0 // tokens of probability 0 are kept too
	}
	return threshold
}

// Split returns the seed of answer j of several answers to one prompt. Answer 0 has the seed itself. The others have
// words derived from the seed's key, so that no answer repeats the draws of another, shifted by a token.
func Split(seed int64, j int) int64 {
	if j == 0 {
		return seed
	}
	const choices = 1 << 16
	return int64(int32(numeric.Word(numeric.Key(uint64(int32(seed))), choices, j%choices)))
}
