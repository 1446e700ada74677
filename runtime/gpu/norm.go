package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// grid sees v as rows of its last dim; false where these are not evenly spaced in two levels at most.
func (v *value) grid() (lower.Grid, bool) { return lower.GridOf(v.shape, v.stride) }

// same reports whether v has all elements of another value in their order.
func (v *value) same(as *value) bool {
	return v.slot == as.slot && v.offset == as.offset && v.len() == as.len() && v.isDense() && as.isDense()
}

// normOf is RMS normalization that is deferred: out = x / rms(x) · weight.
type normOf struct {
	normed
	x, out *value
}

func (n *normOf) emit(b *binder) { b.normalize(n.x, n.normed, nil, kernels.Identity, n.out) }

// only is the normalization without what it is of; nil for nil.
func (n *normOf) only() *normed {
	if n == nil {
		return nil
	}
	return &n.normed
}

// vectors tells products about a normalization, which may be nil, with its weight, which may be absent.
func (n *normOf) vectors() (kernels.Norm, float32, operand) { return n.only().vectors() }

// unaligned reports whether one of the values does not begin at a multiple of 16 bytes.
func unaligned(values ...*value) bool {
	return slices.ContainsFunc(values, func(v *value) bool { return v.at()%16 != 0 })
}

// bindNorm defers the normalization of rows.
func bindNorm(b *binder) bool {
	x := b.floats("x")
	if x == nil || len(x.shape) == 0 {
		return false
	}
	width := x.shape[len(x.shape)-1]
	n := &normOf{x: x, normed: normed{eps: ir.Attrs[ir.NormAttrs](b.op).Eps}}
	if b.op.Input("weight") != nil {
		if n.weight = b.vector("weight", width); n.weight == nil {
			return false
		}
	}
	g, ok := x.grid()
	if !ok {
		if n.x = b.dense(x); n.x == nil {
			return false
		}
		g, _ = n.x.grid()
	}
	if _, err := (kernels.RMSNorm{N: g.Width, Heads: g.Rows, X: g.Strides, Eps: n.eps}).Launch(g.Tokens); err != nil {
		return false
	}
	if n.out = b.result(0, nil); n.out == nil || !slices.Equal(n.out.shape, x.shape) {
		return false
	}
	b.later(n.out.slot, n, n.x)
	return true
}
