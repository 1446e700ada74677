package cpu

import (
	"math"
	"slices"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/cpu/pool"
)

// bindSample binds the sampling head. It uses the same random words as the reference kernel of sample and gives the
// same tokens for the same logits. Where the reference sorts, it selects; and it draws noise only for tokens that the
// filters keep.
func bindSample(b *binder) bool {
	logits, temperature := b.Input("logits"), b.Input("temperature")
	if logits == nil || !logits.isFloats() || len(logits.shape) != 2 || logits.shape[1] == 0 ||
		!isNumber(temperature, ir.F32) {
		return false
	}
	var others [3]*value // top_k, top_p, seed
	for i, name := range []string{"top_k", "top_p", "seed"} {
		if b.Op.Input(name) == nil {
			continue
		}
		d := ir.I64
		if name == "top_p" {
			d = ir.F32
		}
		if others[i] = b.Input(name); !isNumber(others[i], d) {
			return false
		}
	}
	rows, vocab := logits.shape[0], logits.shape[1]
	logits = b.denseFloats(logits)
	tokens := &value{dtype: ir.I64, slot: &slot{i: make([]int64, rows)}, shape: []int{rows}, stride: []int{1}}
	b.Values[b.Op.Result()] = tokens
	s := &sampler{pool: b.x.exe.pool, vocab: vocab, bits: b.x.bits, scaled: b.scratch(vocab), other: b.scratch(vocab)}
	b.do("sample", func() {
		s.temperature, s.topK, s.topP = temperature.floats()[0], 0, 1
		if others[0] != nil {
			s.topK = others[0].ints()[0]
		}
		if others[1] != nil {
			s.topP = others[1].floats()[0]
		}
		s.words(rows*vocab, others)
		for r := range rows {
			tokens.slot.i[r] = int64(s.token(logits.floats()[r*vocab:(r+1)*vocab], r*vocab))
		}
	})
	return true
}

func isNumber(v *value, d ir.DType) bool {
	return v != nil && v.kind == dense && v.dtype == d && v.len() == 1
}

// sampler has the parameters and the scratch memory of a draw.
type sampler struct {
	pool          *pool.Pool
	bits          func(n int) []uint32
	vocab         int
	scaled, other *slot
	heap          []float32
	indices       []int32

	temperature, topP float32
	minP              float32 // ≤ 0: off
	topK              int64
	shift             float32
	word              func(i int) uint32
	key               [2]uint32
	keyed             bool // the random words are those of key
	mu                sync.Mutex
}

// words sets the random words: MLX's for a seed, unseeded ones without. It also sets the form of the noise, which is
// another one for a sampler with a temperature only (see eval's sample).
func (s *sampler) words(n int, others [3]*value) {
	s.shift, s.keyed = 0, false
	if others[0] == nil && others[1] == nil && others[2] == nil {
		s.temperature, s.shift = max(s.temperature, 1e-6), 1e-20
	}
	switch {
	case !(s.temperature > 0):
	case others[2] != nil:
		s.key, s.keyed = numeric.Key(uint64(int32(others[2].ints()[0]))), n == s.vocab
		s.word = func(i int) uint32 { return numeric.Word(s.key, n, i) }
	default:
		words := s.bits(n)
		s.word = func(i int) uint32 { return words[i] }
	}
}

// token draws a token for one row of logits. first is the number of its first random word.
func (s *sampler) token(logits []float32, first int) int {
	if !(s.temperature > 0) {
		return kernel.ArgMax(logits)
	}
	limited := s.topK > 0 && s.topK < int64(len(logits))
	if limited && s.topK <= maxSelected || !limited && s.minP > 0 && s.topP >= 1 {
		if token, ok := s.selected(logits, first); ok {
			return token
		}
	}
	scaled := s.scaled.f[:s.vocab]
	s.pool.Run(s.vocab, elementGrain, func(lo, hi int) {
		for i, v := range logits[lo:hi] {
			scaled[lo+i] = v / s.temperature
		}
	})
	s.filter(scaled)
	if s.keyed {
		if best := s.noisiest(scaled); !best.NaN {
			return best.Index
		}
	}
	const grain = 2 << 10
	noise := s.other.f[:s.vocab]
	s.pool.Run(s.vocab, grain, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if noise[i] = scaled[i]; scaled[i] > float32(math.Inf(-1)) {
				noise[i] += s.gumbel(s.word(first + i))
			}
		}
	})
	return kernel.ArgMax(noise)
}

// noisiest returns the greatest sum of a logit and its noise.
func (s *sampler) noisiest(scaled []float32) numeric.Greatest {
	search := numeric.NewGumbelMax(scaled, s.key, s.shift)
	best := search.Find(0, 1)
	const grain = 1 << 10
	s.pool.Run(search.Pairs(), grain, func(lo, hi int) {
		found := search.Find(lo, hi)
		s.mu.Lock()
		defer s.mu.Unlock()
		best = best.Or(found)
	})
	return best
}

// maxSelected is the largest k for which the tokens that top-k keeps are extracted from the logits.
const maxSelected = 1024

// selected is token for filters that keep few tokens: top-k, or min-p alone. It then looks at these only. The
// temperature does not change the order, so the k-th largest logit is also the k-th largest scaled logit. It returns
// false where logits are not finite.
func (s *sampler) selected(logits []float32, first int) (int, bool) {
	if sum := kernel.Sum(logits); math.IsNaN(float64(sum)) || math.IsInf(float64(sum), 0) {
		return 0, false
	}
	threshold := s.leastLikely(kernel.Max(logits) / s.temperature)
	if s.topK > 0 && s.topK < int64(len(logits)) {
		s.indices = slices.Grow(s.indices[:0], int(s.topK))[:s.topK]
		kernel.TopK(s.indices, logits)
		threshold = logits[s.indices[len(s.indices)-1]] / s.temperature
	}
	// In the order of the vocabulary, since sums depend on it, with all tokens that are equal to the last one.
	s.indices = s.indices[:0]
	values := s.scaled.f[:0]
	const block = 1024
	for lo := 0; lo < len(logits); lo += block {
		part := logits[lo:min(lo+block, len(logits))]
		if kernel.Max(part)/s.temperature < threshold {
			continue
		}
		for i, v := range part {
			if v /= s.temperature; v >= threshold {
				s.indices = append(s.indices, int32(lo+i))
				values = append(values, v)
			}
		}
	}
	if s.topP < 1 {
		probabilities := s.other.f[:len(values)]
		s.softmax(probabilities, values)
		drop(values, probabilities, s.nucleus(probabilities))
	}
	if s.minP > 0 {
		drop(values, values, s.leastLikely(kernel.Max(values)))
	}
	for i, v := range values {
		if v > float32(math.Inf(-1)) {
			values[i] += s.gumbel(s.word(first + int(s.indices[i])))
		}
	}
	best := kernel.ArgMax(values)
	if math.IsInf(float64(values[best]), -1) {
		return 0, true // a negative top_p drops all tokens; then the first one is chosen
	}
	return int(s.indices[best]), true
}

// gumbel turns a random word into a number of the standard Gumbel distribution.
func (s *sampler) gumbel(word uint32) float32 {
	return numeric.GumbelNoise(word, s.shift)
}

// filter sets the logits of the tokens that top-k and top-p drop to −∞.
func (s *sampler) filter(scaled []float32) {
	if s.topK > 0 && s.topK < int64(len(scaled)) {
		threshold := s.kth(scaled, int(s.topK))
		drop(scaled, scaled, threshold)
	}
	if s.topP < 1 {
		probabilities := s.other.f[:len(scaled)]
		s.softmax(probabilities, scaled)
		drop(scaled, probabilities, s.nucleus(probabilities))
	}
	if s.minP > 0 {
		drop(scaled, scaled, s.leastLikely(kernel.Max(scaled)))
	}
}

// leastLikely returns the smallest scaled logit that min-p keeps, where highest is the largest one.
func (s *sampler) leastLikely(highest float32) float32 {
	if !(s.minP > 0) {
		return float32(math.Inf(-1))
	}
	return highest + numeric.Log32(min(s.minP, 1))
}

func drop(scaled, values []float32, threshold float32) {
	for i, v := range values {
		if v < threshold {
			scaled[i] = float32(math.Inf(-1))
		}
	}
}

// kth returns the k-th largest element; NaN counts as smallest. The k largest so far are in a heap, negated, so that
// the smallest comes first.
func (s *sampler) kth(x []float32, k int) float32 {
	h := s.heap[:0]
	for _, v := range x {
		switch {
		case v != v:
		case len(h) < k:
			if h = append(h, -v); len(h) == k {
				heapify(h)
			}
		case v > -h[0]:
			h[0] = -v
			siftDown(h, 0)
		}
	}
	s.heap = h
	if len(h) < k {
		return float32(math.NaN())
	}
	return -h[0]
}

// heapify turns h into a heap with the largest element first.
func heapify(h []float32) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
}

func siftDown(h []float32, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1] > h[child] {
			child++
		}
		if !(h[child] > h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// softmax gives the same bits as the reference kernel: exponentials in float32, their sum in float64 from left to
// right.
func (s *sampler) softmax(dst, x []float32) {
	high := float32(math.Inf(-1))
	for _, v := range x {
		if v > high || v != v {
			high = v
		}
	}
	s.pool.Run(len(x), 4<<10, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if math.IsInf(float64(x[i]), -1) && !math.IsInf(float64(high), 0) {
				dst[i] = 0
				continue
			}
			dst[i] = numeric.Exp32(x[i] - high)
		}
	})
	sum := 0.0
	for _, v := range dst {
		sum += float64(v)
	}
	s.pool.Run(len(x), elementGrain, func(lo, hi int) {
		for i, v := range dst[lo:hi] {
			dst[lo+i] = float32(float64(v) / sum)
		}
	})
}

// nucleus returns the smallest probability that top-p keeps. Top-p keeps a token if the tokens more likely than it have
// at most topP together. It takes probabilities from a heap until the result is certain.
func (s *sampler) nucleus(probabilities []float32) float32 {
	// Above this sum the result is certain, whatever the rounding.
	limit := float64(s.topP) + 1e-5
	h := s.heap[:0]
	for _, v := range probabilities {
		if v != v {
			return v // as the reference: a NaN compares as false, so nothing is dropped
		}
		if v != 0 {
			h = append(h, v)
		}
	}
	s.heap = h
	heapify(h)
	threshold, sum := float32(math.Inf(1)), 0.0
	for ; len(h) > 0; h = h[:len(h)-1] {
		v := h[0]
		before := float32(sum+float64(v)) - v
		if !(before > s.topP) {
			threshold = min(threshold, v)
		}
		if sum > limit {
			return threshold
		}
		sum += float64(v)
		h[0] = h[len(h)-1]
		siftDown(h[:len(h)-1], 0)
	}
	if len(s.heap) < len(probabilities) && !(float32(sum) > s.topP) {
		return 0 // tokens of probability 0 are kept too
	}
	return threshold
}
