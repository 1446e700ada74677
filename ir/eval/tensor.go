package eval

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// Tensor is a dense row-major tensor. Exactly one of F and I holds the elements: F for floating-point
// dtypes, I for integers (wrapped to the dtype's width) and bools (0 or 1).
type Tensor struct {
	DType ir.DType
	Shape []int
	F     []float32
	I     []int64

	// words are the elements in place of I where they are packed codes that only openCodes reads.
	words []uint32
}

// maxElements bounds a single tensor, so that no program makes the process run out of memory by a
// shape alone. MLX bounds Full, RandomBits and the like at 4 GiB; so does this.
const maxElements = 1 << 30

// NewTensor makes a tensor of zeros. A negative dim or more than 2^30 elements is an error.
func NewTensor(d ir.DType, shape ...int) (*Tensor, error) {
	n, err := elements(shape)
	if err != nil {
		return nil, err
	}
	t := &Tensor{DType: d, Shape: shape}
	if d.IsFloat() {
		t.F = make([]float32, n)
	} else {
		t.I = make([]int64, n)
	}
	return t, nil
}

func elements(shape []int) (int, error) {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("dim %d of shape %v is negative", d, shape)
		}
		if d > 0 && n > maxElements/d {
			return 0, fmt.Errorf("shape %v has more than %d elements", shape, maxElements)
		}
		n *= d
	}
	return n, nil
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return len(t.F) + len(t.I) }

// Floats returns a floating-point tensor over v, which it keeps. len(v) must be the product of shape.
func Floats(d ir.DType, shape []int, v []float32) *Tensor {
	return &Tensor{DType: d, Shape: shape, F: v}
}

// Ints returns an integer or bool tensor over v, which it keeps. len(v) must be the product of shape.
func Ints(d ir.DType, shape []int, v []int64) *Tensor { return &Tensor{DType: d, Shape: shape, I: v} }

// Decode makes a tensor of little-endian bytes.
func Decode(d ir.DType, shape []int, p []byte) (*Tensor, error) {
	n, err := elements(shape)
	if err != nil {
		return nil, err
	}
	if len(p) != n*d.Size() {
		return nil, fmt.Errorf("%d bytes for %s%v, want %d", len(p), d, shape, n*d.Size())
	}
	t, err := NewTensor(d, shape...)
	if err != nil {
		return nil, err
	}
	switch d {
	case ir.F32:
		for i := range t.F {
			t.F[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
		}
	case ir.BF16:
		numeric.BF16SliceToF32(t.F, p)
	case ir.F16:
		numeric.F16SliceToF32(t.F, p)
	case ir.F64:
		for i := range t.F {
			t.F[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:])))
		}
	default:
		for i := range t.I {
			t.I[i] = decodeInt(d, p[i*d.Size():])
		}
	}
	return t, nil
}

func decodeInt(d ir.DType, p []byte) int64 {
	switch d {
	case ir.Bool:
		if p[0] != 0 {
			return 1
		}
		return 0
	case ir.U8:
		return int64(p[0])
	case ir.I8:
		return int64(int8(p[0]))
	case ir.U16:
		return int64(binary.LittleEndian.Uint16(p))
	case ir.I16:
		return int64(int16(binary.LittleEndian.Uint16(p)))
	case ir.U32:
		return int64(binary.LittleEndian.Uint32(p))
	case ir.I32:
		return int64(int32(binary.LittleEndian.Uint32(p)))
	}
	return int64(binary.LittleEndian.Uint64(p))
}

// Encode returns the little-endian bytes of t; floats are rounded to the dtype.
func (t *Tensor) Encode() []byte {
	size := t.DType.Size()
	p := make([]byte, t.Len()*size)
	switch t.DType {
	case ir.F32:
		for i, v := range t.F {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
		}
	case ir.BF16:
		numeric.F32SliceToBF16(p[:2*len(t.F)], t.F)
	case ir.F16:
		numeric.F32SliceToF16(p[:2*len(t.F)], t.F)
	case ir.F64:
		for i, v := range t.F {
			binary.LittleEndian.PutUint64(p[8*i:], math.Float64bits(float64(v)))
		}
	}
	for i, v := range t.I {
		switch size {
		case 1:
			p[i] = byte(v)
		case 2:
			binary.LittleEndian.PutUint16(p[2*i:], uint16(v))
		case 4:
			binary.LittleEndian.PutUint32(p[4*i:], uint32(v))
		case 8:
			binary.LittleEndian.PutUint64(p[8*i:], uint64(v))
		}
	}
	return p
}

// Clone copies t.
func (t *Tensor) Clone() *Tensor {
	c := &Tensor{DType: t.DType, Shape: append([]int(nil), t.Shape...)}
	if t.F != nil {
		c.F = append(make([]float32, 0, len(t.F)), t.F...)
	} else {
		c.I = append(make([]int64, 0, len(t.I)), t.I...)
	}
	return c
}

// round rounds v to the float dtype d.
func round(d ir.DType, v float32) float32 {
	switch d {
	case ir.BF16:
		return numeric.RoundBF16(v)
	case ir.F16:
		return numeric.RoundF16(v)
	}
	return v
}

// wrap reduces v to the width of the integer dtype d; a bool is 0 or 1.
func wrap(d ir.DType, v int64) int64 {
	switch d {
	case ir.Bool:
		if v != 0 {
			return 1
		}
		return 0
	case ir.U8:
		return int64(uint8(v))
	case ir.I8:
		return int64(int8(v))
	case ir.U16:
		return int64(uint16(v))
	case ir.I16:
		return int64(int16(v))
	case ir.U32:
		return int64(uint32(v))
	case ir.I32:
		return int64(int32(v))
	}
	return v
}
