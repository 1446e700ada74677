package passes

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

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

// foldedName names a constant that folding makes after the constants that went in.
func foldedName(m *ir.Module, op *ir.Op) string {
	base := "folded"
	op.EachArg(func(a *ir.Arg) {
		if a.Value != nil && base == "folded" {
			base = a.Value.Constant.Name + "." + op.Def.Name
		}
	})
	name := base
	for n := 2; slices.ContainsFunc(m.Constants, func(c *ir.Constant) bool { return c.Name == name }); n++ {
		name = fmt.Sprintf("%s.%d", base, n)
	}
	return name
}
