package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// grid sees a value as rows of its last dim: tokens of rows each.
type grid struct {
	tokens, rows, width int
	strides             kernels.Rows
}

// grid fails where the dims before the last are not evenly spaced in two levels at most.
func (v *value) grid() (g grid, ok bool) {
	last := len(v.shape) - 1
	if last < 0 {
		return grid{1, 1, 1, kernels.Rows{Token: 1, Row: 1}}, true
	}
	g = grid{tokens: 1, rows: 1, width: v.shape[last]}
	if g.width != 1 && v.stride[last] != 1 {
		return g, false
	}
	dims, strides := v.shape[:last], v.stride[:last]
	for i := last; i >= 0; i-- {
		n, stride, ok := strided.Merge(dims[i:], strides[i:])
		m, outer, ok2 := strided.Merge(dims[:i], strides[:i])
		if !ok {
			break
		}
		if ok2 {
			g.tokens, g.rows = m, n
			g.strides = kernels.Rows{Token: outer, Row: stride}
			if n == 1 {
				g.strides.Row = g.width
			}
			if m == 1 {
				g.strides.Token = n * max(g.strides.Row, g.width)
			}
			return g, true
		}
	}
	return g, false
}

// same reports whether v has all elements of another value in their order.
func (v *value) same(as *value) bool {
	return v.slot == as.slot && v.offset == as.offset && v.len() == as.len() && v.isDense() && as.isDense()
}

// normOf is RMS normalization that is deferred: out = x / rms(x) · weight.
type normOf struct {
	x, weight *value // weight may be nil
	eps       float32
	out       *value
}

func (n *normOf) emit(b *binder) { n.run(b, nil, kernels.Identity, n.out) }

// run normalizes into out, times an activation of gate where that is set.
func (n *normOf) run(b *binder, gate *value, activation kernels.Activation, out *value) bool {
	g, ok := n.x.grid()
	if !ok {
		return false
	}
	k := kernels.RMSNorm{N: g.width, Heads: g.rows, X: g.strides, Eps: n.eps, Gated: gate != nil, Activation: activation}
	a := kernels.NormArguments[operand]{X: bytesOf(n.x), Out: bytesOf(out), Step: b.stepAt(g.tokens, nil)}
	if n.weight != nil {
		k.Weight, a.Weight = kernels.F32, bytesOf(n.weight)
	}
	gated := n.x
	if gate != nil {
		gg, ok := gate.gridAs(g)
		if !ok {
			return false
		}
		k.Gates, gated, a.Gate = gg, gate, bytesOf(gate)
	}
	k.Unaligned = unaligned(n.x, gated)
	l, err := k.Launch(g.tokens)
	return b.launch("norm", l, err, a)
}

// unaligned reports whether one of the values does not begin at a multiple of 16 bytes.
func unaligned(values ...*value) bool {
	return slices.ContainsFunc(values, func(v *value) bool { return v.at()%16 != 0 })
}

// gatedNormOf is a normalization of heads, times an activation of a gate, that is deferred: a product of one token does it
// while it reads that.
type gatedNormOf struct {
	norm       *normOf
	gate       *value
	activation kernels.Activation
	out        *value
}

func (g *gatedNormOf) emit(b *binder) { g.norm.run(b, g.gate, g.activation, g.out) }

// gridAs gives the strides of v's rows, as many as g has and in the same two levels.
func (v *value) gridAs(g grid) (kernels.Rows, bool) {
	stride, ok := strided.Reshape(v.shape, v.stride, []int{g.tokens, g.rows, g.width})
	if !ok || v.len() != g.tokens*g.rows*g.width || g.width != 1 && stride[2] != 1 {
		return kernels.Rows{}, false
	}
	return kernels.Rows{Token: stride[0], Row: stride[1]}, true
}

// bindNorm normalizes rows. Where the rows are a sum that is deferred, one kernel makes both.
func bindNorm(b *binder) bool {
	x := b.floats("x")
	if x == nil || len(x.shape) == 0 {
		return false
	}
	width := x.shape[len(x.shape)-1]
	n := &normOf{x: x, eps: ir.Attrs[ir.NormAttrs](b.op).Eps}
	if b.op.Input("weight") != nil {
		if n.weight = b.vector("weight", width); n.weight == nil {
			return false
		}
	}
	if s, ok := x.slot.pending.(*sumOf); ok && x.same(s.out) && s.out.shape[len(s.out.shape)-1] == width {
		b.take(x.slot)
		n.out = b.result(0, nil)
		return n.out != nil && s.run(b, n, !b.only("x"))
	}
	g, ok := x.grid()
	if !ok {
		if n.x = b.dense(x); n.x == nil {
			return false
		}
		g, _ = n.x.grid()
	}
	if _, err := (kernels.RMSNorm{N: g.width, Heads: g.rows, X: g.strides, Eps: n.eps}).Launch(g.tokens); err != nil {
		return false
	}
	if n.out = b.result(0, nil); n.out == nil || !slices.Equal(n.out.shape, x.shape) {
		return false
	}
	b.later(n.out.slot, n, n.x)
	return true
}
