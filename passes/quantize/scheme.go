package quantize

import (
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// Method is a rule that turns the weights of one group into codes, a scale and a bias. The package
// comment has the formula of each.
type Method uint8

const (
	// MinMax is MLX's own affine quantization: the edge of larger magnitude and, unless the whole
	// group lies far from it, zero are exact. Rows are independent.
	MinMax Method = iota
	// HQQ is torchao's scale-only half-quadratic quantization: symmetric, the scale refined by
	// least squares, stopped by a test over the whole tensor.
	HQQ
	// TorchAOAsymmetric is torchao's asymmetric min/max with an integer zero point, which
	// ExecuTorch's 4-bit recipes use. Rows are independent.
	TorchAOAsymmetric
	// TorchAOSymmetric is torchao's symmetric min/max, which ExecuTorch's 8-bit embeddings use.
	// Rows are independent.
	TorchAOSymmetric
	// Best is the best, by the squared error of what is stored, of several scales and biases: of
	// MinMax's, and of a search that trades the largest weights for finer steps. Rows are independent.
	Best
	// Weighted is a search like Best's by the squared error in which each column counts as much as its inputs are
	// large. This method and those below need the moments of the inputs: see [Solver].
	Weighted
	// GPTQ is Weighted's search with error feedback: what a code leaves of its column is made good by the columns that
	// are still to be quantized, as far as their inputs go together.
	GPTQ
	// Learned is GPTQ for the outputs of the checkpoint ([Solver.Follow]), then coordinate descent over codes, scales
	// and biases, and walks over codes.
	Learned
)

var methodNames = [...]string{"minmax", "hqq", "torchao-asymmetric", "torchao-symmetric", "best",
	"weighted", "gptq", "learned"}

// String returns the name used in messages: minmax, hqq, torchao-asymmetric, torchao-symmetric, best, weighted, gptq,
// learned.
func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("method(%d)", uint8(m))
}

// Calibrated reports whether the method needs the moments of a linear's inputs.
func (m Method) Calibrated() bool { return m == Weighted || m == GPTQ || m == Learned }

// Diagonal reports whether a calibrated method needs no more of the moments than their diagonal.
func (m Method) Diagonal() bool { return m == Weighted }

// Follows reports whether the method also needs the inputs that the checkpoint would have had: see [Solver.Follow].
func (m Method) Follows() bool { return m == Learned }

// Symmetric reports whether the method maps zero to the middle code, so that every bias is
// -scale * 2^(bits-1) and a file need not store it.
func (m Method) Symmetric() bool { return m == HQQ || m == TorchAOSymmetric }

// Float is the storage format of scales and biases.
type Float uint8

// The formats that MLX accepts for scales and biases.
const (
	BF16 Float = iota // what etc's files and ExecuTorch's exporter hold
	F16
	F32
)

var floatNames = [...]string{"bf16", "f16", "f32"}

// String returns bf16, f16 or f32.
func (f Float) String() string {
	if int(f) < len(floatNames) {
		return floatNames[f]
	}
	return fmt.Sprintf("float(%d)", uint8(f))
}

// Size is the number of bytes of one value.
func (f Float) Size() int {
	if f == F32 {
		return 4
	}
	return 2
}

// Round returns the value of the format nearest to x, ties to even.
func (f Float) Round(x float32) float32 {
	switch f {
	case BF16:
		return numeric.RoundBF16(x)
	case F16:
		return numeric.RoundF16(x)
	default:
		return x
	}
}

// Decode widens the len(dst) little-endian values of src into dst, exactly. It panics when src
// holds fewer than len(dst)*f.Size() bytes.
func (f Float) Decode(dst []float32, src []byte) {
	switch f {
	case BF16:
		decodeBF16(dst, src)
	case F16:
		numeric.F16SliceToF32(dst, src)
	default:
		numeric.F32SliceFromBytes(dst, src)
	}
}

// Encode writes the values of src, rounded to the format, to dst in little-endian order. It panics
// when dst holds fewer than len(src)*f.Size() bytes.
func (f Float) Encode(dst []byte, src []float32) {
	switch f {
	case BF16:
		numeric.F32SliceToBF16(dst, src)
	case F16:
		numeric.F32SliceToF16(dst, src)
	default:
		numeric.F32SliceToBytes(dst, src)
	}
}

// Scheme says how one matrix is quantized. Two calls with equal schemes and equal weights give
// equal bits on every CPU.
type Scheme struct {
	Method Method
	// Mode is what codes stand for: affine, mxfp4, mxfp8 or nvfp4. The latter three have scales of a byte and no
	// biases; they take the methods MinMax, which is MLX's choice of the scale, and Best.
	Mode ir.QuantMode
	Bits int // 4 or 8
	// GroupSize is the number of neighbouring columns that share one scale. 0 stands for the whole
	// row ("per axis"). MinMax and Best take 32, 64 and 128, as MLX does; the torchao methods take
	// any multiple of 32, see [Scheme.StoredGroupSize].
	GroupSize int
	// Params is the format that scales and biases are rounded to. The torchao min/max methods
	// compute in bf16 and take nothing else.
	Params Float
	// Iterations is the number of HQQ updates. 0 has [Quantize] find it with the stop test over
	// the matrix that it is given, which must then be the whole tensor. A tensor that is quantized
	// in blocks of rows needs the number that a [Search] over all of its rows gives.
	Iterations int
}

// Check reports whether rows of cols weights can be quantized by s.
func (s Scheme) Check(cols int) error {
	if s.Mode != ir.Affine {
		return s.checkBlockFloat(cols)
	}
	switch {
	case int(s.Method) >= len(methodNames):
		return fmt.Errorf("quantization %v is unknown; known are 0 (minmax) to %d (%s)", s.Method, len(methodNames)-1,
			methodNames[len(methodNames)-1])
	case s.Bits != 4 && s.Bits != 8:
		return fmt.Errorf("%s quantization to %d bits: expected 4 or 8", s.Method, s.Bits)
	case int(s.Params) >= len(floatNames):
		return fmt.Errorf("%s quantization with scales of type %v: expected bf16, f16 or f32", s.Method, s.Params)
	case s.Params != BF16 && (s.Method == TorchAOAsymmetric || s.Method == TorchAOSymmetric):
		return fmt.Errorf("%s quantization with scales of type %s: its arithmetic is defined for bf16 only", s.Method,
			s.Params)
	case s.Iterations < 0 || s.Iterations > maxIterations || s.Iterations > 0 && s.Method != HQQ:
		return fmt.Errorf("%s quantization with %d iterations: expected 0, or 1 to %d for hqq", s.Method,
			s.Iterations, maxIterations)
	case cols <= 0 || cols > math.MaxInt32:
		return fmt.Errorf("%s quantization of rows of %d weights: expected 1 to %d", s.Method, cols, math.MaxInt32)
	}
	group := s.group(cols)
	switch {
	case group <= 0 || s.StoredGroupSize(cols) == 0 || s.ofMLX() && s.StoredGroupSize(cols) != group:
		expected := "a multiple of 32"
		if s.ofMLX() {
			expected = "32, 64 or 128"
		}
		return fmt.Errorf("%s quantization in groups of %d: expected %s", s.Method, group, expected)
	case cols%group != 0:
		return fmt.Errorf("%s quantization in groups of %d: a row has %d weights, which %d does not divide; choose "+
			"another group size or leave the tensor unquantized",
			s.Method, group, cols, group)
	}
	return nil
}

// ofMLX reports whether the method takes MLX's group sizes only.
func (s Scheme) ofMLX() bool {
	return s.Method == MinMax || s.Method == Best || s.Method.Calibrated()
}

// group returns the number of columns that share a scale.
func (s Scheme) group(cols int) int {
	if s.GroupSize == 0 {
		return cols
	}
	return s.GroupSize
}

// StoredGroupSize returns the group size that MLX is told: GroupSize itself, or for a coarser one the
// largest of 128, 64 and 32 that divides it. A coarse group is then stored as several groups with
// one and the same scale and bias. It is 0 when none divides.
func (s Scheme) StoredGroupSize(cols int) int {
	group := s.group(cols)
	if s.Mode != ir.Affine {
		return group
	}
	for _, stored := range [...]int{128, 64, 32} {
		if group%stored == 0 {
			return stored
		}
	}
	return 0
}

// Form returns the form of a weight of rows of so many columns as it is stored.
func (s Scheme) Form(cols int) ir.WeightForm {
	return ir.WeightForm{Mode: s.Mode, Bits: s.Bits, Group: s.StoredGroupSize(cols)}
}

// HasBiases reports whether the stored form has biases.
func (s Scheme) HasBiases() bool { return s.Mode == ir.Affine }

// RowBytes returns the size of a stored row: codes, and scales and biases in Params or scales in bytes.
func (s Scheme) RowBytes(cols int) int {
	if s.HasBiases() {
		return 4*s.PackedCols(cols) + 2*s.Params.Size()*s.ParamCols(cols)
	}
	return 4*s.PackedCols(cols) + s.ParamCols(cols)
}

// PackedCols returns the number of 32-bit words that hold the codes of one row.
func (s Scheme) PackedCols(cols int) int { return cols / (32 / s.Bits) }

// ParamCols returns the number of scales, and of biases where there are some, stored for one row.
func (s Scheme) ParamCols(cols int) int { return cols / s.StoredGroupSize(cols) }
