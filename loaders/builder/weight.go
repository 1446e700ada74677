package builder

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// Weight is a tensor for the graph: the name of its constant and its bytes, or a matrix that the checkpoint
// holds quantized, whose Data is nil.
type Weight struct {
	Name      string
	Data      ir.Data
	Quantized *Quantized
}

// Quantized is a matrix [..., N, K] in one of MLX's forms: in mode affine w = scale·code + bias, with one scale and
// bias for each group of neighbours in a row; in the others w = scale·code, with scales of a byte, and Biases is nil.
type Quantized struct {
	ir.WeightForm
	Packed         ir.Data // u32 [..., N, K·Bits/32], the first code in the lowest bits
	Scales, Biases ir.Data // [..., N, K/Group], of one dtype
}

// each applies a function to the three parts.
func (q *Quantized) each(f func(ir.Data) ir.Data) *Quantized {
	out := &Quantized{WeightForm: q.WeightForm, Packed: f(q.Packed), Scales: f(q.Scales)}
	if q.Biases != nil {
		out.Biases = f(q.Biases)
	}
	return out
}

// Each applies a function that takes or moves rows to the bytes of w, or to each part of a quantized one.
func (w Weight) Each(f func(ir.Data) ir.Data) Weight {
	if w.Quantized != nil {
		return Weight{Name: w.Name, Quantized: w.Quantized.each(f)}
	}
	return Weight{Name: w.Name, Data: f(w.Data)}
}

// DType returns the dtype of the weight's values: that of its scales if it is quantized, bf16 where these are bytes.
func (w Weight) DType() ir.DType {
	if w.Quantized != nil && w.Quantized.Mode != ir.Affine {
		return ir.BF16
	}
	if w.Quantized != nil {
		return w.Quantized.Scales.DType()
	}
	return w.Data.DType()
}

// sameForm reports whether rows of both can be in one matrix.
func sameForm(a, b Weight) bool {
	if a.DType() != b.DType() || (a.Quantized == nil) != (b.Quantized == nil) {
		return false
	}
	return a.Quantized == nil || a.Quantized.WeightForm == b.Quantized.WeightForm
}

// Float32 returns w in float32, which holds every bf16, f16 and f32 value exactly.
func (w Weight) Float32() Weight {
	if w.Data.DType() == ir.F32 {
		return w
	}
	from := w.Data.DType()
	return Weight{Name: w.Name, Data: ir.Map(w.Data, ir.F32, "f32", func(dst, src []byte) {
		numeric.F32SliceToBytes(dst, decode(from, src))
	})}
}

// OnePlus returns 1+w in float32: the multiplier of norms that are stored as the difference from one.
func (w Weight) OnePlus() Weight {
	from := w.Data.DType()
	return Weight{Name: w.Name, Data: ir.Map(w.Data, ir.F32, "one_plus_f32", func(dst, src []byte) {
		values := decode(from, src)
		for i, v := range values {
			values[i] = 1 + v
		}
		numeric.F32SliceToBytes(dst, values)
	})}
}

// Times returns w times a number, in float32.
func (w Weight) Times(factor float32) Weight {
	from := w.Data.DType()
	return Weight{Name: w.Name, Data: ir.Map(w.Data, ir.F32, fmt.Sprintf("times_f32_%g", factor),
		func(dst, src []byte) {
			values := decode(from, src)
			for i := range values {
				values[i] *= factor
			}
			numeric.F32SliceToBytes(dst, values)
		})}
}

// Reshape gives the bytes of w another shape.
func (w Weight) Reshape(shape ...int) Weight {
	return Weight{Name: w.Name, Data: ir.Reshape(w.Data, int64s(shape)...)}
}

// Part returns rows [start, start+count) of the second axis of w, under another name: half of the rows of
// every expert.
func (w Weight) Part(name string, start, count int) Weight {
	part := w.Each(func(d ir.Data) ir.Data { return ir.Axis1Rows(d, int64(start), int64(count)) })
	part.Name = name
	return part
}

// Span is a range of rows: the first one, and how many.
type Span [2]int

// GroupedRows takes rows of a matrix whose rows lie in groups of equal size, under another name: the first span of
// every group, then the second span of every group, and so on.
func (w Weight) GroupedRows(name string, groups, size int, spans ...Span) Weight {
	out := w.Each(func(d ir.Data) ir.Data {
		var parts []ir.Data
		for _, s := range spans {
			for g := range groups {
				parts = append(parts, ir.Rows(d, int64(g*size+s[0]), int64(s[1])))
			}
		}
		return ir.Concat(parts...)
	})
	out.Name = name
	return out
}

func decode(from ir.DType, src []byte) []float32 {
	values := make([]float32, len(src)/from.Size())
	switch from {
	case ir.BF16:
		numeric.BF16SliceToF32(values, src)
	case ir.F16:
		numeric.F16SliceToF32(values, src)
	default:
		numeric.F32SliceFromBytes(values, src)
	}
	return values
}

// scalarData returns a 0-d constant of an integer or floating-point dtype.
func scalarData(d ir.DType, v float64) ir.Data {
	switch d {
	case ir.BF16:
		return ir.Bytes(d, nil, binary.LittleEndian.AppendUint16(nil, numeric.F32ToBF16(float32(v))))
	case ir.I32:
		return ir.Bytes(d, nil, binary.LittleEndian.AppendUint32(nil, uint32(int32(v))))
	case ir.I64:
		return ir.Bytes(d, nil, binary.LittleEndian.AppendUint64(nil, uint64(int64(v))))
	}
	return ir.Float32s(nil, float32(v))
}
