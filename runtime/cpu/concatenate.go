package cpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// bindConcatenate copies float tensors one after the other along an axis.
func bindConcatenate(b *binder) bool {
	var parts []*value
	for _, a := range b.Op.Operand("tensors") {
		v := b.Values[a.Value]
		if v == nil || !v.isFloats() {
			return false
		}
		parts = append(parts, v)
	}
	out := b.result(0, nil)
	axis := ir.Attrs[ir.AxisAttrs](b.Op).Axis
	if out == nil || len(out.shape) == 0 {
		return false
	}
	if axis < 0 {
		axis += len(out.shape)
	}
	rest, size := slices.Clone(out.shape), 0
	for _, v := range parts {
		if len(v.shape) != len(out.shape) || v.dtype != out.dtype {
			return false
		}
		size += v.shape[axis]
		if rest[axis] = v.shape[axis]; !slices.Equal(v.shape, rest) {
			return false
		}
	}
	if size != out.shape[axis] {
		return false
	}
	b.do("concatenate", func() {
		at := 0
		for _, v := range parts {
			copyStrided(out.floats()[at:], out.stride, v.floats(), v.stride, v.shape)
			at += v.shape[axis] * out.stride[axis]
		}
	})
	return true
}
