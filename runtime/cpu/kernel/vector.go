package kernel

import (
	"fmt"
	"math"
)

// The functions of this file work element by element on slices of equal length; dst may be one of the
// operands. A length that differs is a mistake of the caller and panics.

// FromBF16 widens bfloat16 numbers; src has 2·len(dst) bytes.
func FromBF16(dst []float32, src []byte) {
	same("FromBF16", 2*len(dst), len(src))
	active.fromBF16(dst, src)
}

// ToBF16 rounds to bfloat16, half to even, infinities and NaN kept; dst has 2·len(src) bytes.
func ToBF16(dst []byte, src []float32) {
	same("ToBF16", len(dst), 2*len(src))
	active.toBF16(dst, src)
}

// Add is dst = a + b.
func Add(dst, a, b []float32) {
	same("Add", len(dst), len(a), len(b))
	active.add(dst, a, b)
}

// Mul is dst = a·b.
func Mul(dst, a, b []float32) {
	same("Mul", len(dst), len(a), len(b))
	active.mul(dst, a, b)
}

// Scale is dst = s·x.
func Scale(dst, x []float32, s float32) {
	same("Scale", len(dst), len(x))
	active.scale(dst, x, s)
}

// Axpy is dst += s·x.
func Axpy(dst []float32, s float32, x []float32) {
	same("Axpy", len(dst), len(x))
	active.axpy(dst, s, x)
}

// Dot is Σ a·b.
func Dot(a, b []float32) float32 {
	same("Dot", len(a), len(b))
	return active.dot(a, b)
}

// Sum is Σ x.
func Sum(x []float32) float32 { return active.sum(x) }

// Max returns the largest element; NaN is passed over, and nothing gives −Inf.
func Max(x []float32) float32 { return active.maximum(x) }

// RMSNorm is dst = x / √(mean(x²) + epsilon) · weight (Zhang and Sennrich, 2019). No weight means ones.
func RMSNorm(dst, x, weight []float32, epsilon float32) {
	same("RMSNorm", len(dst), len(x))
	if len(x) == 0 {
		return
	}
	s := float32(1 / math.Sqrt(float64(active.dot(x, x)/float32(len(x))+epsilon)))
	if weight == nil {
		active.scale(dst, x, s)
		return
	}
	same("RMSNorm", len(x), len(weight))
	active.scaleMul(dst, x, weight, s)
}

// Exp is dst = e^(x − shift) and gives the sum of dst. Its error is at most 2 ulp of e^y at y = x − shift
// rounded; y > 88.72 gives +Inf and y < −87.33 gives 0.
func Exp(dst, x []float32, shift float32) (sum float32) {
	same("Exp", len(dst), len(x))
	return active.exp(dst, x, shift)
}

// Softmax is dst = e^(x − max(x)) / Σ e^(x − max(x)).
func Softmax(dst, x []float32) {
	same("Softmax", len(dst), len(x))
	active.scale(dst, dst, 1/active.exp(dst, x, active.maximum(x)))
}

// Sigmoid is dst = 1 / (1 + e^−x), within 4 ulp where e^−x does not overflow.
func Sigmoid(dst, x []float32) {
	same("Sigmoid", len(dst), len(x))
	active.sigmoid(dst, x)
}

// SigmoidMul is dst = sigmoid(gate)·x.
func SigmoidMul(dst, gate, x []float32) {
	same("SigmoidMul", len(dst), len(gate), len(x))
	active.sigmoidMul(dst, gate, x)
}

// SiLU is dst = x·sigmoid(x).
func SiLU(dst, x []float32) {
	same("SiLU", len(dst), len(x))
	active.sigmoidMul(dst, x, x)
}

// SiLUMul is dst = gate·sigmoid(gate)·up, the SwiGLU of Shazeer (2020).
func SiLUMul(dst, gate, up []float32) {
	same("SiLUMul", len(dst), len(gate), len(up))
	active.siluMul(dst, gate, up)
}

// GELUTanhMul is dst = gelu(gate)·up with gelu(x) = x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), the
// approximation of Hendrycks and Gimpel (2016), computed as x·sigmoid(2·√(2/π)·(x + 0.044715·x³)).
func GELUTanhMul(dst, gate, up []float32) {
	same("GELUTanhMul", len(dst), len(gate), len(up))
	active.geluMul(dst, gate, up)
}

// Tanh is dst = tanh(x), within 2 ulp.
func Tanh(dst, x []float32) {
	same("Tanh", len(dst), len(x))
	active.tanh(dst, x)
}

// SoftCap is dst = cap·tanh(x/cap).
func SoftCap(dst, x []float32, limit float32) {
	same("SoftCap", len(dst), len(x))
	active.scale(dst, x, 1/limit)
	active.tanh(dst, dst)
	active.scale(dst, dst, limit)
}

// Rotate turns the pairs (x[i], x[i+n]) of x [2n] by angles whose cosines and sines are given [n], in
// place: rotary embedding (Su et al., 2021) of the half-split kind.
func Rotate(x, cos, sin []float32) {
	same("Rotate", len(x), 2*len(cos), 2*len(sin))
	active.rotate(x, cos, sin)
}

// RotatePairs is Rotate for the pairs (x[2i], x[2i+1]).
func RotatePairs(x, cos, sin []float32) {
	same("RotatePairs", len(x), 2*len(cos), 2*len(sin))
	for i, c := range cos {
		a, b, s := x[2*i], x[2*i+1], sin[i]
		x[2*i] = float32(a*c) - float32(b*s)
		x[2*i+1] = float32(a*s) + float32(b*c)
	}
}

// Convolve is one step of a depthwise causal convolution over channels: dst[c] = Σ_t taps[t][c]·weight[t][c]
// with taps and weight [len(taps)/len(dst), channels]. The taps of step i of a sequence are rows i to
// i+width-1 of the last inputs followed by the new ones.
func Convolve(dst, taps, weight []float32) {
	same("Convolve", len(taps), len(weight))
	if len(dst) == 0 {
		return
	}
	same("Convolve", len(taps)%len(dst), 0)
	active.convolve(dst, taps, weight)
}

// same panics unless all lengths are equal.
func same(name string, first int, others ...int) {
	for _, n := range others {
		if n != first {
			panic(fmt.Sprintf("kernel: %s: lengths %d and %d differ", name, first, n))
		}
	}
}
