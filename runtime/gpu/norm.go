package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// grid returns the layout of v as rows of its last dim. It returns false where the rows are not evenly spaced in one or
// two levels.
func (v *value) grid() (lower.Grid, bool) { return lower.GridOf(v.shape, v.stride) }

// unaligned reports whether some value starts at an offset that is not a multiple of 16 bytes.
func unaligned(values ...*value) bool {
	return slices.ContainsFunc(values, func(v *value) bool { return v.at()%16 != 0 })
}

// bindNorm normalizes rows.
func bindNorm(b *binder) bool {
	x := b.floats("x")
	if x == nil || len(x.shape) == 0 {
		return false
	}
	norm := normed{eps: ir.Attrs[ir.NormAttrs](b.Op).Eps}
	if b.Op.Input("weight") != nil {
		if norm.weight = b.vector("weight", x.shape[len(x.shape)-1]); norm.weight == nil {
			return false
		}
	}
	g, ok := x.grid()
	if !ok {
		if x = b.dense(x); x == nil {
			return false
		}
		g, _ = x.grid()
	}
	if _, err := (kernels.RMSNorm{N: g.Width, Heads: g.Rows, X: g.Strides,
		Eps: norm.eps}).Launch(g.Tokens); err != nil {
		return false
	}
	out := b.result(0, nil)
	return out != nil && slices.Equal(out.shape, x.shape) && b.normalize(x, norm, nil, kernels.Identity, out)
}
