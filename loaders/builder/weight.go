package builder

import (
	"encoding/binary"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// Weight is a tensor for the graph: the name of its constant and its bytes.
type Weight struct {
	Name string
	Data ir.Data
}

// Float32 gives w in float32, which holds every bf16, f16 and f32 value exactly.
func (w Weight) Float32() Weight {
	if w.Data.DType() == ir.F32 {
		return w
	}
	from := w.Data.DType()
	return Weight{w.Name, ir.Map(w.Data, ir.F32, "f32", func(dst, src []byte) {
		numeric.F32SliceToBytes(dst, decode(from, src))
	})}
}

// OnePlus gives 1+w in float32: the multiplier of norms that are stored as the difference from one.
func (w Weight) OnePlus() Weight {
	from := w.Data.DType()
	return Weight{w.Name, ir.Map(w.Data, ir.F32, "one_plus_f32", func(dst, src []byte) {
		values := decode(from, src)
		for i, v := range values {
			values[i] = 1 + v
		}
		numeric.F32SliceToBytes(dst, values)
	})}
}

// Reshape gives the bytes of w another shape.
func (w Weight) Reshape(shape ...int) Weight {
	return Weight{w.Name, ir.Reshape(w.Data, int64s(shape)...)}
}

// Part gives rows [start, start+count) of the second axis of w, under another name: half of the rows of
// every expert.
func (w Weight) Part(name string, start, count int) Weight {
	return Weight{name, ir.Axis1Rows(w.Data, int64(start), int64(count))}
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

// scalarData is a 0-d constant of an integer or floating-point dtype.
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
