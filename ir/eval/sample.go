package eval

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	register(map[string]Kernel{"sample": sample})
}

// sampling are the parameters of one call of sample.
type sampling struct {
	temperature float32
	topK        int64   // ≤ 0 or ≥ the vocabulary: off
	topP        float32 // ≥ 1: off
	minP        float32 // ≤ 0: off
	// shift keeps the noise's logarithms finite. Only the sampler without filters, below, has it.
	shift float32
	// word gives random word i of the draw for all logits.
	word func(i int) uint32
}

// sample chooses a token for every row of logits [..., V] with the Gumbel-max trick (Gumbel 1954; Maddison
// et al., A* Sampling, 2014): the argmax of logits/temperature − log(−log(u)) over the tokens that the
// filters keep, all in float32. Temperature ≤ 0 is the plain argmax.
//
// Order: temperature, top-k, top-p. Top-k keeps every token whose logit is not below the k-th largest;
// top-p keeps every token that is as likely as the least likely of those before which less than or just
// top_p of the probability lies. u is made of MLX's random bits under the key of the seed (32 bits,
// sign-extended), or of c.Bits without one.
//
// Without top_k, top_p and seed it is the sampler of ExecuTorch's CUDA models (examples/models/*/sampler.py):
// the temperature is at least 1e-6 and the noise −log(−log(u + 1e-20) + 1e-20).
func sample(c *Call) ([]Value, error) {
	logits := c.Tensor("logits")
	rank := len(logits.Shape)
	if rank == 0 || logits.Shape[rank-1] == 0 {
		return nil, fmt.Errorf("logits have shape %v, want a vocabulary in the last dim", logits.Shape)
	}
	n := logits.Shape[rank-1]
	p, err := c.sampling(logits.Len())
	if err != nil {
		return nil, err
	}
	tokens, err := NewTensor(ir.U32, logits.Shape[:rank-1]...)
	if err != nil {
		return nil, err
	}
	values := c.as(logits, ir.F32)
	parallel(len(tokens.I), 64*n, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			tokens.I[r] = int64(p.token(values[r*n:(r+1)*n], r*n))
		}
	})
	return c.result(tokens, nil)
}

// sampling reads the parameters of a draw of n random words.
func (c *Call) sampling(n int) (*sampling, error) {
	var float, integer [2]*Tensor
	for i, name := range []string{"temperature", "top_p"} {
		if float[i] = c.Tensor(name); float[i] != nil && (!float[i].DType.IsFloat() || float[i].Len() != 1) {
			return nil, fmt.Errorf("%s is %s%v, want one floating-point number", name, float[i].DType, float[i].Shape)
		}
	}
	for i, name := range []string{"top_k", "seed"} {
		if integer[i] = c.Tensor(name); integer[i] != nil && (!integer[i].DType.IsInteger() || integer[i].Len() != 1) {
			return nil, fmt.Errorf("%s is %s%v, want one integer", name, integer[i].DType, integer[i].Shape)
		}
	}
	p := &sampling{temperature: float[0].F[0], topP: 1}
	if float[1] != nil {
		p.topP = float[1].F[0]
	}
	if integer[0] != nil {
		p.topK = integer[0].I[0]
	}
	if float[1] == nil && integer[0] == nil && integer[1] == nil {
		p.temperature, p.shift = max(p.temperature, 1e-6), 1e-20
	}
	switch {
	case !(p.temperature > 0):
	case integer[1] != nil:
		key := numeric.Key(uint64(int32(integer[1].I[0])))
		p.word = func(i int) uint32 { return numeric.Word(key, n, i) }
	case c.Bits == nil:
		return nil, fmt.Errorf("no seed is given, and there is no sequence of random numbers to draw from")
	default:
		words := c.Bits(n)
		p.word = func(i int) uint32 { return words[i] }
	}
	return p, nil
}

// token chooses a token for one row of logits, whose random words begin at first.
func (p *sampling) token(logits []float32, first int) int {
	if !(p.temperature > 0) {
		return argmaxOf(logits)
	}
	scaled := make([]float32, len(logits))
	for i, v := range logits {
		scaled[i] = v / p.temperature
	}
	p.filter(scaled)
	for i, v := range scaled {
		if v > float32(math.Inf(-1)) { // noise changes nothing else: it is never +∞
			scaled[i] += p.gumbel(p.word(first + i))
		}
	}
	return argmaxOf(scaled)
}

// filter sets the logits of the tokens that top-k and top-p drop to −∞.
func (p *sampling) filter(scaled []float32) {
	drop := func(values []float32, threshold float32) {
		for i, v := range values {
			if v < threshold {
				scaled[i] = float32(math.Inf(-1))
			}
		}
	}
	if p.topK > 0 && p.topK < int64(len(scaled)) {
		drop(scaled, descending(scaled)[p.topK-1])
	}
	if p.topP < 1 {
		probabilities := slices.Clone(scaled)
		softmaxRow(probabilities, probabilities)
		threshold, sum := float32(math.Inf(1)), 0.0
		for _, v := range descending(probabilities) {
			sum += float64(v)
			if before := float32(sum) - v; !(before > p.topP) {
				threshold = min(threshold, v)
			}
		}
		drop(probabilities, threshold)
	}
	if p.minP > 0 {
		highest := float32(math.Inf(-1))
		for _, v := range scaled {
			if v > highest {
				highest = v
			}
		}
		drop(scaled, highest+numeric.Log32(min(p.minP, 1)))
	}
}

// gumbel makes a number of the standard Gumbel distribution of a random word. u is below 1, so the
// result is below 17.
func (p *sampling) gumbel(word uint32) float32 {
	const belowOne = 1 - 1.0/(1<<24)
	u := min(float32(word)/math.MaxUint32, belowOne)
	return -numeric.Log32(-numeric.Log32(u+p.shift) + p.shift)
}

// descending is x sorted from the largest to the smallest element, NaNs last.
func descending(x []float32) []float32 {
	out := slices.Clone(x)
	slices.SortFunc(out, func(a, b float32) int {
		switch {
		case a > b || a == a && b != b:
			return -1
		case a < b || a != a && b == b:
			return 1
		}
		return 0
	})
	return out
}

// argmaxOf returns the position of the first of the largest elements; a NaN is never the largest.
func argmaxOf(x []float32) int {
	at, highest := 0, float32(math.Inf(-1))
	for i, v := range x {
		if v > highest {
			at, highest = i, v
		}
	}
	return at
}
