package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// rowsOf are the rows that a product takes: dense, of a width.
type rowsOf struct {
	x    *value
	norm *normed
	n    int
}

// rows gives operand x as rows of a width, which the product normalizes where that is asked for.
func (b *binder) rows(width int, norm bool, eps float32) (r rowsOf, ok bool) {
	r.x = b.floats("x")
	if r.x == nil || !r.x.isDense() || len(r.x.shape) == 0 || r.x.shape[len(r.x.shape)-1] != width {
		return r, false
	}
	r.n = r.x.len() / width
	r.norm, ok = b.normOperand("norm", norm, eps, width)
	return r, ok
}

// vectors describes a product of the rows to kernels, and gives the operand of the norm.
func (r rowsOf) vectors(f kernels.Format) (kernels.Vectors, operand) {
	v := kernels.Vectors{Format: f, K: r.x.shape[len(r.x.shape)-1], M: min(r.n, fewRows)}
	var norm operand
	v.Norm, v.Eps, norm = r.norm.vectors()
	return v, norm
}

// matrices are the weights in an operand; nil where one is in no form that kernels read.
func (b *binder) matrices(operand string) (out []*weight) {
	for _, a := range b.Op.Operand(operand) {
		w := b.x.exe.weight(a.Value)
		if w == nil || w.count != 1 {
			return nil
		}
		out = append(out, w)
	}
	return out
}

// matrix is the weight in an operand; nil where it is in no form that kernels read, or absent.
func (b *binder) matrix(operand string) *weight {
	if w := b.matrices(operand); len(w) == 1 {
		return w[0]
	}
	return nil
}

// stored is the number of bytes of weights.
func stored(weights []*weight) (n int) {
	for _, w := range weights {
		n += w.bytes()
	}
	return n
}

// ending is what follows a product: a vector or a matrix that is added, or a bound.
type ending struct {
	epilogue kernels.Epilogue
	other    *value
	limit    float32
}

// ending reads it of those of the operands bias and extra that the operation has; false where they are not what kernels
// take.
func (b *binder) ending(limit float32, n int, operands ...string) (e ending, ok bool) {
	for _, operand := range operands {
		switch {
		case b.Op.Input(operand) == nil:
		case operand == "bias":
			e.epilogue, e.other = kernels.AddVector, b.vector(operand, n)
			return e, e.other != nil
		default:
			e.epilogue, e.other = kernels.AddMatrix, b.floats(operand)
			return e, e.other != nil && e.other.isDense()
		}
	}
	if limit != 0 {
		e.epilogue, e.limit = kernels.Softcap, limit
	}
	return e, true
}

// extra is the buffer of what is added to n rows of a product from a first one on, of so many numbers each; none where
// there is nothing.
func (e ending) extra(first, n, numbers int) operand {
	switch e.epilogue {
	case kernels.AddVector:
		return bytesOf(e.other)
	case kernels.AddMatrix:
		return part(e.other, first*numbers, n*numbers)
	}
	return operand{}
}

// outputs are the first n results of the operation; nil where a shape is not known.
func (b *binder) outputs(n int) (out []*value) {
	for i := range n {
		v := b.result(i, nil)
		if v == nil {
			return nil
		}
		out = append(out, v)
	}
	return out
}

// bindMatvec multiplies a few rows with one weight, or with several in one kernel; more rows a few at a time.
func bindMatvec(b *binder) bool {
	a, weights := ir.Attrs[ir.MatvecAttrs](b.Op), b.matrices("weights")
	if len(weights) == 0 {
		return false
	}
	w := weights[0]
	r, ok := b.rows(w.cols, a.Norm, a.Eps)
	if !ok {
		return false
	}
	if len(weights) > 1 {
		return b.matvecs(r, weights, nil)
	}
	end, ok := b.ending(a.Cap, w.rows, "bias", "extra")
	if !ok {
		return false
	}
	v, norm := r.vectors(w.Format)
	k := kernels.MatVec{Vectors: v, N: w.rows, Epilogue: end.epilogue, Cap: end.limit}
	ways := k.Tunings(b.x.exe.machine)
	launch, err := k.Launch(ways[0])
	out := b.result(0, nil)
	if err != nil || out == nil {
		return false
	}
	for at := 0; at < r.n; at += fewRows {
		n := min(fewRows, r.n-at)
		b.launch("linear", launch, nil, kernels.MatVecArguments[operand]{W: w.arguments(), X: part(r.x, at*w.cols,
			n*w.cols), Norm: norm,
			Extra: end.extra(at, n, w.rows), Y: part(out, at*w.rows, n*w.rows), Step: b.stepAt(n, nil)})
		tuned(b, ways, k.Launch)
		b.reading(w.bytes())
	}
	return true
}

// part is elements of a dense value as a buffer of a kernel.
func part(v *value, at, n int) operand {
	size := v.format.size()
	return operand{slot: v.slot, at: (v.offset + at) * size, size: n * size}
}

// matvecs multiplies a few rows with several weights in one kernel, with a convolution of the first one's results where
// that is set.
func (b *binder) matvecs(r rowsOf, weights []*weight, conv *convOf) bool {
	v, norm := r.vectors(weights[0].Format)
	k := kernels.MatVecMany{Vectors: v}
	kind, a := "linears", kernels.MatVecManyArguments[operand]{}
	if conv != nil {
		kind, a = "linear conv", conv.arguments
		k.Conv, k.Early, k.Activated = &conv.kernel, conv.early, conv.activated
	}
	out := b.outputs(len(weights))
	if out == nil {
		return false
	}
	a.X, a.Norm, a.Step = bytesOf(r.x), norm, b.stepAt(r.n, nil)
	buffers := [...]*kernels.WeightArguments[operand]{&a.W0, &a.W1, &a.W2, &a.W3}
	results := [...]*operand{&a.Y0, &a.Y1, &a.Y2, &a.Y3}
	for i, w := range weights {
		k.N = append(k.N, w.rows)
		*buffers[i], *results[i] = w.arguments(), bytesOf(out[i])
	}
	ways := k.Tunings(b.x.exe.machine)
	launch, err := usable(b, ways, k.Launch)
	if !b.launch(kind, launch, err, a) {
		return false
	}
	tuned(b, ways, k.Launch)
	b.reading(stored(weights))
	return true
}

// convOf is the convolution behind a product of one token, and its buffers.
type convOf struct {
	kernel    kernels.Conv
	arguments kernels.MatVecManyArguments[operand] // but those of the products
	early     bool
	activated kernels.Activated
}

// bindMatvecConv multiplies a row with weights and convolves the first columns of what the first of them gives.
func bindMatvecConv(b *binder) bool {
	a, weights, s := ir.Attrs[ir.MatvecConvAttrs](b.Op), b.matrices("weights"), b.x.states[b.Op.Buffer]
	if len(weights) == 0 || s == nil || s.slot == nil {
		return false
	}
	r, ok := b.rows(weights[0].cols, a.Norm, a.Eps)
	reset, kind, ok2 := b.reset()
	w := b.Input("w")
	if !ok || !ok2 || r.n != 1 || w == nil || w.place != onHost || !w.cell.constant || len(w.shape) != 3 {
		return false
	}
	weight, out := b.device(b.Op.Input("w"), w), b.result(len(weights), nil)
	if weight == nil || out == nil {
		return false
	}
	taps := w.shape[1]
	k := kernels.Conv{Channels: a.Channels, Taps: taps, Token: weights[0].rows, SiLU: a.ConvActivation == "silu",
		State:        s.format.kernelType(),
		ChannelFirst: a.ChannelFirst, Weight: kernels.F32, Reset: kind}
	c := &convOf{kernel: k, early: a.Early,
		arguments: kernels.MatVecManyArguments[operand]{ConvW: bytesOf(weight), State: whole(s.slot),
			ConvY: bytesOf(out), Next: after(s.slot)}}
	if reset != nil {
		c.arguments.Reset = bytesOf(reset)
	}
	if a.Activation != "" {
		activation, err := kernels.ActivationNamed(a.Activation)
		copied := b.result(len(weights)+1, nil)
		if err != nil || copied == nil {
			return false
		}
		c.activated = kernels.Activated{Weight: a.Of, First: a.First, Rows: a.Rows, Activation: activation}
		c.arguments.Activated = bytesOf(copied)
	}
	return b.matvecs(r, weights, c)
}

// pairOfWeights are the buffers of both weights of a pair of products, of n rows each.
type pairOfWeights struct {
	w             *weight // of the gate, or of both in one
	n             int
	first, second kernels.WeightArguments[operand]
}

// pair reads the operands gate and up, which is absent where both are halves of one weight.
func (b *binder) pair() *pairOfWeights {
	w := b.matrix("gate")
	switch up := b.matrix("up"); {
	case w == nil:
		return nil
	case up != nil:
		return &pairOfWeights{w, w.rows, w.arguments(), up.arguments()}
	case b.Op.Input("up") != nil || w.rows%2 != 0:
		return nil
	}
	n := w.rows / 2
	return &pairOfWeights{w, n, w.part(0, n), w.part(n, n)}
}

// bytes are those of both weights.
func (p *pairOfWeights) bytes() int { return p.w.bytes() * 2 * p.n / p.w.rows }

// bindMatvecGLU computes activation(gate)·up of two products of a few rows.
func bindMatvecGLU(b *binder) bool {
	a, p := ir.Attrs[ir.MatvecGLUAttrs](b.Op), b.pair()
	if p == nil {
		return false
	}
	r, ok := b.rows(p.w.cols, a.Norm, a.Eps)
	activation, err := kernels.ActivationNamed(a.Activation)
	if !ok || err != nil || r.n > fewRows {
		return false
	}
	v, norm := r.vectors(p.w.Format)
	k := kernels.MatVecGLU{Vectors: v, N: p.n, Activation: activation}
	ways := k.Tunings(b.x.exe.machine)
	l, err := k.Launch(ways[0])
	out := b.result(0, nil)
	if out == nil || !b.launch("glu", l, err, kernels.MatVecGLUArguments[operand]{W0: p.first, W1: p.second,
		X: bytesOf(r.x), Norm: norm, Y: bytesOf(out), Step: b.stepAt(r.n, nil)}) {
		return false
	}
	tuned(b, ways, k.Launch)
	b.reading(p.bytes())
	return true
}

// bindMatvecHeads multiplies a row that it normalizes in heads and multiplies by a gate first.
func bindMatvecHeads(b *binder) bool {
	a, w, x, gate := ir.Attrs[ir.MatvecHeadsAttrs](b.Op), b.matrix("weight"), b.floats("x"), b.floats("gate")
	if w == nil || x == nil || gate == nil || !x.isDense() || !gate.isDense() || x.len() != w.cols ||
		gate.len() != w.cols {
		return false
	}
	norm, ok := b.normOperand("norm", true, a.Eps, a.Head)
	end, ok2 := b.ending(a.Cap, w.rows, "extra")
	activation, err := kernels.ActivationNamed(a.Activation)
	out := b.result(0, nil)
	if !ok || !ok2 || err != nil || out == nil {
		return false
	}
	k := kernels.MatVec{Vectors: kernels.Vectors{Format: w.Format, K: w.cols, M: 1}, N: w.rows,
		Epilogue: end.epilogue, Cap: end.limit, Head: a.Head, Activation: activation}
	args := kernels.MatVecArguments[operand]{W: w.arguments(), X: bytesOf(x), Gate: bytesOf(gate), Extra: end.extra(0,
		1, w.rows), Y: bytesOf(out), Step: b.stepAt(1, nil)}
	k.Norm, k.Eps, args.Norm = norm.vectors()
	ways := k.Tunings(b.x.exe.machine)
	launch, err := usable(b, ways, k.Launch)
	if !b.launch("linear of heads", launch, err, args) {
		return false
	}
	tuned(b, ways, k.Launch)
	b.reading(w.bytes())
	return true
}

// sumBefore is the sum whose normalization is the row of a product, and its buffers.
type sumBefore struct {
	vectors                            kernels.Vectors
	x, norm                            operand
	before, residual, scale, sum, step operand
}

// sumBefore reads it of the operands, for a weight.
func (b *binder) sumBefore(w *weight) *sumBefore {
	a, x, residual, pre := ir.Attrs[ir.MatvecSumAttrs](b.Op), b.floats("x"), b.floats("residual"), b.vector("pre",
		w.cols)
	norm, ok := b.normOperand("norm", true, a.Eps, w.cols)
	if !ok || x == nil || residual == nil || pre == nil || !x.isDense() || !residual.isDense() || x.len() != w.cols ||
		residual.len() != w.cols {
		return nil
	}
	s := &sumBefore{vectors: kernels.Vectors{Format: w.Format, K: w.cols, M: 1}, x: bytesOf(x), before: bytesOf(pre),
		residual: bytesOf(residual), step: b.stepAt(1, nil)}
	s.vectors.Norm, s.vectors.Eps, s.norm = norm.vectors()
	s.vectors.Sum = &kernels.VectorSum{Eps: a.PreEps, Scaled: b.Op.Input("scale") != nil, Kept: a.Kept}
	if s.vectors.Sum.Scaled {
		scale := b.floats("scale")
		if scale == nil || !scale.slot.fixed {
			return nil
		}
		s.scale = bytesOf(scale)
	}
	if a.Kept {
		sum := b.result(1, nil)
		if sum == nil {
			return nil
		}
		s.sum = bytesOf(sum)
	}
	return s
}

// bindMatvecSum multiplies a row that is the normalization of a sum.
func bindMatvecSum(b *binder) bool {
	a, w := ir.Attrs[ir.MatvecSumAttrs](b.Op), b.matrix("weight")
	if w == nil {
		return false
	}
	s, out := b.sumBefore(w), b.result(0, nil)
	end, ok := b.ending(a.Cap, w.rows)
	if s == nil || out == nil || !ok {
		return false
	}
	k := kernels.MatVec{Vectors: s.vectors, N: w.rows, Epilogue: end.epilogue, Cap: end.limit}
	ways := k.Tunings(b.x.exe.machine)
	l, err := usable(b, ways, k.Launch)
	if !b.launch("linear of a sum", l, err, kernels.StreamSumOneArguments[operand]{W: w.arguments(), X: s.x,
		Norm: s.norm, Y: bytesOf(out),
		Before: s.before, Residual: s.residual, Scale: s.scale, Out: s.sum, Step: s.step}) {
		return false
	}
	tuned(b, ways, k.Launch)
	b.reading(w.bytes())
	return true
}

// bindMatvecGLUSum is bindMatvecGLU of a row that is the normalization of a sum.
func bindMatvecGLUSum(b *binder) bool {
	a, p := ir.Attrs[ir.MatvecSumAttrs](b.Op), b.pair()
	if p == nil {
		return false
	}
	s, out := b.sumBefore(p.w), b.result(0, nil)
	activation, err := kernels.ActivationNamed(a.Activation)
	if s == nil || out == nil || err != nil {
		return false
	}
	k := kernels.MatVecGLU{Vectors: s.vectors, N: p.n, Activation: activation}
	ways := k.Tunings(b.x.exe.machine)
	l, err := usable(b, ways, k.Launch)
	if !b.launch("glu of a sum", l, err, kernels.StreamSumGLUArguments[operand]{W0: p.first, W1: p.second, X: s.x,
		Norm: s.norm, Y: bytesOf(out),
		Before: s.before, Residual: s.residual, Scale: s.scale, Out: s.sum, Step: s.step}) {
		return false
	}
	tuned(b, ways, k.Launch)
	b.reading(p.bytes())
	return true
}

// fewRows is the number of rows up to which a product is one of vectors.
const fewRows = 8

// strideOfRows is the distance of rows, where they are evenly spaced.
func strideOfRows(v *value) int {
	_, _, stride, ok := v.rows()
	if !ok {
		return -1
	}
	return stride
}
