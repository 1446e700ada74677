package gpu

import (
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// fewRows is the number of rows up to which a product is one of vectors.
const fewRows = 8

// linearOf is a product of a few rows with a weight that is deferred, y = x·wᵀ: a shared expert's becomes a part of the mixture
// of experts. Others are operations of the table: see runtime/gpu/lower.
type linearOf struct {
	w    *weight
	x    *value // rows, dense
	norm *normOf
	rows int
	out  *value
}

// vectors describes the product to kernels, and gives the weight of the norm.
func (l *linearOf) vectors() (v kernels.Vectors, norm operand) {
	v = kernels.Vectors{Format: l.w.Format, K: l.w.cols, M: l.rows}
	v.Norm, v.Eps, norm = l.norm.vectors()
	return v, norm
}

func (l *linearOf) emit(b *binder) {
	v, norm := l.vectors()
	k := kernels.MatVec{Vectors: v, N: l.w.rows}
	ways := k.Tunings(b.x.exe.machine)
	launch, err := k.Launch(ways[0])
	if b.launch("linear", launch, err, kernels.MatVecArguments[operand]{W: l.w.arguments(), X: bytesOf(l.x), Norm: norm, Y: bytesOf(l.out), Step: b.stepAt(l.rows, nil)}) {
		tuned(b, ways, k.Launch)
		b.reading(l.w.bytes())
	}
}

// rowsFor gives x as dense rows of a width, with the normalization before it, which products do themselves.
func (b *binder) rowsFor(x *value, width int) (rows *value, norm *normOf, count int) {
	if len(x.shape) == 0 || x.shape[len(x.shape)-1] != width {
		return nil, nil, 0
	}
	count = x.len() / width
	if n, ok := x.slot.pending.(*normOf); ok && x.same(n.out) && n.out.shape[len(n.out.shape)-1] == width && n.x.isDense() {
		return n.x, n, count
	}
	if x = b.dense(x); x == nil {
		return nil, nil, 0
	}
	return x, nil, count
}

// bindLinear defers the product of x with a weight.
func bindLinear(b *binder) bool {
	x, l := b.floats("x"), &linearOf{w: b.matrix("weight")}
	if x == nil || l.w == nil || b.op.Input("bias") != nil {
		return false
	}
	if l.x, l.norm, l.rows = b.rowsFor(x, l.w.cols); l.x == nil || l.rows > fewRows {
		return false
	}
	v, _ := l.vectors()
	if _, err := (kernels.MatVec{Vectors: v, N: l.w.rows}).Launch(kernels.Tuning{}); err != nil {
		return false
	}
	if l.out = b.result(0, nil); l.out == nil || l.out.len() != l.rows*l.w.rows {
		return false
	}
	b.later(l.out.slot, l, l.x)
	return true
}

// gluOf makes activation(gate) · up part of the products that they are: of two weights, or of two halves of one.
func (b *binder) gluOf(gate, up *value, activation kernels.Activation) bool {
	g, ok := gate.slot.pending.(*linearOf)
	u, ok2 := up.slot.pending.(*linearOf)
	if !ok || !ok2 {
		return false
	}
	p := &pairOf{gate: g, up: u, activation: activation}
	switch {
	case g == u:
		// Both are columns of the result: one half each.
		p.n = g.w.rows / 2
		cols := func(x *value) bool {
			return len(x.shape) > 0 && x.shape[len(x.shape)-1] == p.n && x.len() == g.rows*p.n && (g.rows == 1 || strideOfRows(x) == g.w.rows)
		}
		if g.w.rows != 2*p.n || !cols(gate) || !cols(up) || gate.offset != 0 || up.offset != p.n {
			return false
		}
		p.first, p.second = g.w.part(0, p.n), g.w.part(p.n, p.n)
	default:
		if p.n = g.w.rows; !gate.same(g.out) || !up.same(u.out) || u.w.Format != g.w.Format || u.w.rows != p.n || u.x != g.x || (u.norm == nil) != (g.norm == nil) {
			return false
		}
		p.first, p.second = g.w.arguments(), u.w.arguments()
	}
	return b.deferGLU(p)
}

// strideOfRows is the distance of rows, where they are evenly spaced.
func strideOfRows(v *value) int {
	_, _, stride, ok := v.rows()
	if !ok {
		return -1
	}
	return stride
}
