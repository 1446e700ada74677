package builder

import (
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Rotate rotates heads x [1,heads,S,D] as the configuration says, without the factor of [RopeAttention]. Frequencies
// that a scaling changes become one constant of the model.
func (g *Graph) Rotate(x *ir.Value, r huggingface.Rope) *ir.Value {
	if r.Scaling == nil {
		return g.Rope(x, r.Dims, r.Theta)
	}
	divisors := scaledDivisors(r)
	data := ir.Float32s([]int64{int64(len(divisors))}, divisors...)
	return g.RopeFreqs(x, Weight{Name: "rope.freqs", Data: ir.Exact(data)})
}

// RopeAttention returns the factor by which a scaling of RoPE multiplies rotated elements; 1 for most.
func RopeAttention(s *huggingface.RopeScaling) float64 {
	if s == nil || s.Type != "yarn" {
		return 1
	}
	scale := func(weight float64) float64 {
		if s.Factor <= 1 {
			return 1
		}
		return float64(0.1*weight*numeric.Log(s.Factor)) + 1
	}
	switch {
	case s.Attention != 0:
		return s.Attention
	case s.MScale != 0 && s.MScaleAllDim != 0:
		return scale(s.MScale) / scale(s.MScaleAllDim)
	}
	return scale(1)
}

// ScaleRotated multiplies the first dims elements of w [D] by a factor: the weights of a norm in front of a rotation
// whose result has to be multiplied by it. The result is in float32.
func (w Weight) ScaleRotated(dims int, factor float64) Weight {
	if factor == 1 {
		return w
	}
	size := w.Data.Shape()[0]
	rotated := Weight{Data: ir.Rows(w.Data, 0, int64(dims))}.Times(float32(factor)).Data
	if size == int64(dims) {
		return Weight{Name: w.Name, Data: rotated}
	}
	rest := Weight{Data: ir.Rows(w.Data, int64(dims), size-int64(dims))}.Float32().Data
	return Weight{Name: w.Name, Data: ir.Concat(rotated, rest)}
}

// scaledDivisors returns the numbers that RoPE divides positions by: Theta^(2i/Dims), some of them changed by a
// scaling.
func scaledDivisors(r huggingface.Rope) []float32 {
	s, out := r.Scaling, make([]float32, r.Dims/2)
	low, high := 0.0, 0.0
	if s.Type == "yarn" {
		low, high = yarnRange(r)
	}
	for i := range out {
		divisor := numeric.Pow(r.Theta, float64(2*i)/float64(r.Dims))
		keep := 0.0 // part of the original frequency
		if s.Type == "yarn" {
			keep = 1 - min(1, max(0, (float64(i)-low)/(high-low)))
		}
		frequency := float64((1-keep)/float64(s.Factor*divisor)) + float64(keep/divisor)
		out[i] = float32(1 / frequency)
	}
	return out
}

// yarnRange returns the indices of the pairs between which YaRN goes from original to divided frequencies: those that
// turn BetaFast and BetaSlow times over the positions of the training.
func yarnRange(r huggingface.Rope) (low, high float64) {
	s := r.Scaling
	index := func(turns float64) float64 {
		octaves := numeric.Log(float64(s.Positions) / float64(turns*2*math.Pi))
		return float64(float64(r.Dims)*octaves) / float64(2*numeric.Log(r.Theta))
	}
	low, high = index(s.BetaFast), index(s.BetaSlow)
	if s.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dims-1))
	if low == high {
		high += 0.001
	}
	return low, high
}
