package passes

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
)

// scalarData makes the bytes of a 0-d f32, i32 or i64 constant.
func scalarData(d ir.DType, v float64) ir.Data {
	switch d {
	case ir.F32:
		return ir.Float32s(nil, float32(v))
	case ir.I32:
		return ir.Bytes(d, nil, binary.LittleEndian.AppendUint32(nil, uint32(int32(v))))
	case ir.I64:
		return ir.Bytes(d, nil, binary.LittleEndian.AppendUint64(nil, uint64(int64(v))))
	}
	panic(fmt.Sprintf("passes: a %s scalar of value %g", d, math.Abs(v)))
}
