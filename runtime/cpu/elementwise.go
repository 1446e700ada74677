package cpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/strided"
)

// elementGrain is the number of elements that a thread takes at a time, for a cheap function.
const elementGrain = 16 << 10

// bindNorm normalizes rows.
func bindNorm(b *binder) bool {
	x := b.Input("x")
	if x == nil || !x.isFloats() || len(x.shape) == 0 {
		return false
	}
	width := x.shape[len(x.shape)-1]
	var weight []float32
	if b.Op.Input("weight") != nil {
		if weight = b.vector("weight", width); weight == nil {
			return false
		}
	}
	n, order := x.len()/max(width, 1), strided.RowMajor(x.shape)
	place, ok := x.places()
	if _, _, stride, even := x.rows(); even {
		place, order = func(i int) int { return i * stride }, x.inOrder()
	} else if !ok {
		x = b.denseFloats(x)
		place, _ = x.places()
	}
	out := b.result(0, order)
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	eps := ir.Attrs[ir.NormAttrs](b.Op).Eps
	run := b.parallel(n, max(1, elementGrain/max(width, 1)), func(lo, hi int) {
		in, dst := x.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			kernel.RMSNorm(dst[i*width:(i+1)*width], in[place(i):][:width], weight, eps)
		}
	})
	b.do("norm", run)
	return true
}

// bindSoftmax normalizes rows to probabilities.
func bindSoftmax(b *binder) bool {
	x, axis := b.Input("x"), ir.Attrs[ir.SoftmaxAttrs](b.Op).Axis
	if x == nil || !x.isFloats() || len(x.shape) == 0 || axis != -1 && axis != len(x.shape)-1 {
		return false
	}
	n, width, stride, ok := x.rows()
	if !ok || width == 0 {
		return false
	}
	out := b.result(0, x.inOrder())
	if out == nil {
		return false
	}
	b.do("softmax", b.parallel(n, max(1, elementGrain/4/width), func(lo, hi int) {
		in, dst := x.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			kernel.Softmax(dst[i*width:(i+1)*width], in[i*stride:i*stride+width])
		}
	}))
	return true
}

// unary has the functions of one operand.
var unary = map[string]func(dst, x []float32){"silu": kernel.SiLU, "sigmoid": kernel.Sigmoid, "tanh": kernel.Tanh}

func bindUnary(b *binder) bool {
	x, f := b.Input("x"), unary[b.Op.Def.Name]
	if x == nil || !x.isFloats() {
		return false
	}
	n, width, stride, ok := x.rows()
	if !ok {
		return false
	}
	out := b.result(0, x.inOrder())
	if out == nil {
		return false
	}
	b.do(b.Op.Def.Name, b.parallel(n, max(1, elementGrain/8/max(width, 1)), func(lo, hi int) {
		in, dst := x.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			f(dst[i*width:(i+1)*width], in[i*stride:i*stride+width])
		}
	}))
	return true
}

// gates has the functions of glu.
var gates = map[string]func(dst, gate, x []float32){"silu": kernel.SiLUMul, "sigmoid": kernel.SigmoidMul,
	"gelu_tanh": kernel.GELUTanhMul}

func bindGLU(b *binder) bool {
	f := gates[ir.Attrs[ir.GLUAttrs](b.Op).Activation]
	if f == nil {
		return false
	}
	gate := b.Input("gate")
	if gate != nil && gate.isFloats() && len(gate.shape) > 0 && gate.shape[len(gate.shape)-1] == 1 &&
		b.Op.Def.Name == "glu" {
		return bindScalarGate(b, gate)
	}
	return b.pairwise("glu", gate, b.Input("x"), f, elementGrain/8)
}

// bindScalarGate multiplies every row of x by a function of one number.
func bindScalarGate(b *binder, gate *value) bool {
	x := b.Input("x")
	if x == nil || !x.isFloats() || ir.Attrs[ir.GLUAttrs](b.Op).Activation != "sigmoid" ||
		len(x.shape) != len(gate.shape) {
		return false
	}
	last := len(x.shape) - 1
	n, width, stride, ok := x.rows()
	count, step, ok2 := strided.Merge(gate.shape[:last], gate.stride[:last])
	if !ok || !ok2 || !slices.Equal(x.shape[:last], gate.shape[:last]) || !x.isDense() ||
		!gate.isDense() || n != count {
		return false
	}
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	b.do("glu", b.parallel(n, max(1, elementGrain/width), func(lo, hi int) {
		in, g, dst := x.floats(), gate.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			s := [1]float32{g[i*step]}
			kernel.Sigmoid(s[:], s[:])
			kernel.Scale(dst[i*width:(i+1)*width], in[i*stride:i*stride+width], s[0])
		}
	}))
	return true
}

func bindBinary(b *binder) bool {
	f := kernel.Add
	if b.Op.Def.Name == "multiply" {
		f = kernel.Mul
	}
	x, y := b.Input("a"), b.Input("b")
	if x == nil || y == nil || !x.isFloats() || !y.isFloats() {
		return false
	}
	if len(x.shape) == 0 || strided.Elements(x.shape) == 1 && y.len() > 1 {
		x, y = y, x
	}
	if y.len() == 1 && len(y.shape) <= len(x.shape) && b.Op.Def.Name == "multiply" {
		return b.scaled(x, y)
	}
	return b.pairwise(b.Op.Def.Name, x, y, f, elementGrain)
}

// scaled multiplies x by a number.
func (b *binder) scaled(x, factor *value) bool {
	n, width, stride, ok := x.rows()
	if !ok {
		return false
	}
	out := b.result(0, x.inOrder())
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	b.do("multiply", b.parallel(n, max(1, elementGrain/max(width, 1)), func(lo, hi int) {
		in, s, dst := x.floats(), factor.floats()[0], out.slot.f
		for i := lo; i < hi; i++ {
			kernel.Scale(dst[i*width:(i+1)*width], in[i*stride:i*stride+width], s)
		}
	}))
	return true
}

// pairwise applies f to the rows of two operands with the same shape. The second may have a single row.
func (b *binder) pairwise(kind string, x, y *value, f func(dst, x, y []float32), grain int) bool {
	if x == nil || y == nil || !x.isFloats() || !y.isFloats() {
		return false
	}
	single := !slices.Equal(x.shape, y.shape)
	if single && (len(y.shape) != 1 || !slices.Equal(y.shape, lastDims(x.shape, 1))) {
		return false
	}
	n, width, xs, ok := x.rows()
	_, _, ys, ok2 := y.rows()
	if !ok || !ok2 || !single && !slices.Equal(x.inOrder(), y.inOrder()) {
		return b.scattered(kind, x, y, f, grain)
	}
	if single {
		ys = 0
	}
	out := b.result(0, x.inOrder())
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	if n > 1 && xs == width && ys == width { // one run
		width, n = width*n, 1
	}
	if n == 1 {
		b.do(kind, b.parallel(width, grain, func(lo, hi int) {
			f(out.slot.f[lo:hi], x.floats()[lo:hi], y.floats()[lo:hi])
		}))
		return true
	}
	b.do(kind, b.parallel(n, max(1, grain/max(width, 1)), func(lo, hi int) {
		p, q, dst := x.floats(), y.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			f(dst[i*width:(i+1)*width], p[i*xs:i*xs+width], q[i*ys:i*ys+width])
		}
	}))
	return true
}

// scattered is pairwise for rows that are not evenly spaced, or not in the order of their shape. It reads them from
// where they lie.
func (b *binder) scattered(kind string, x, y *value, f func(dst, x, y []float32), grain int) bool {
	out := b.result(0, nil)
	if out == nil || len(x.shape) == 0 || !slices.Equal(out.shape, x.shape) {
		return false
	}
	at, ok := x.places()
	if !ok {
		x = b.denseFloats(x)
		at, _ = x.places()
	}
	of, ok := y.places() // for a single row always its beginning
	if !ok {
		y = b.denseFloats(y)
		of, _ = y.places()
	}
	width := x.shape[len(x.shape)-1]
	b.do(kind, b.parallel(x.len()/max(width, 1), max(1, grain/max(width, 1)), func(lo, hi int) {
		p, q, dst := x.floats(), y.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			f(dst[i*width:(i+1)*width], p[at(i):][:width], q[of(i):][:width])
		}
	}))
	return true
}

func lastDims(shape []int, n int) []int { return shape[max(0, len(shape)-n):] }

// bindSoftcap binds the soft cap, cap · tanh(x / cap).
func bindSoftcap(b *binder) bool {
	x, limit := b.Input("x"), b.Input("cap")
	if x == nil || limit == nil || !x.isFloats() || !x.isDense() || !limit.isFloats() || limit.len() != 1 ||
		len(limit.shape) > len(x.shape) {
		return false
	}
	out := b.result(0, nil)
	if out == nil {
		return false
	}
	b.do("softcap", b.parallel(x.len(), elementGrain/4, func(lo, hi int) {
		kernel.SoftCap(out.slot.f[lo:hi], x.floats()[lo:hi], limit.floats()[0])
	}))
	return true
}

// bindDecay computes the decays of the gated delta rule, a few numbers for each token.
func bindDecay(b *binder) bool {
	x := b.Input("x")
	if x == nil || !x.isFloats() || len(x.shape) == 0 {
		return false
	}
	n, width, stride, ok := x.rows()
	bias, rate := b.vector("bias", width), b.vector("rate", width)
	out := b.result(0, x.inOrder())
	if !ok || bias == nil || rate == nil || out == nil {
		return false
	}
	b.do("decay", b.parallel(n, max(1, 256/width), func(lo, hi int) {
		in, dst := x.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			row := dst[i*width : (i+1)*width]
			for j := range row {
				v := float64(in[i*stride+j] + bias[j])
				soft := max(v, 0) + numeric.Log1p(numeric.Exp(-max(v, -v)))
				row[j] = numeric.Exp32(rate[j] * float32(soft))
			}
		}
	}))
	return true
}
