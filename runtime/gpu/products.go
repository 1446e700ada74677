package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// rowsOf are the input rows of a product, dense, and the weight of their norm.
type rowsOf struct {
	x    *value
	n    int
	norm operand
}

// rows returns operand x as rows for the product v. Where v has a norm with a weight, its normed elements come from the
// operand norm.
func (b *binder) rows(v kernels.Vectors, normed int) (r rowsOf, ok bool) {
	r.x = b.floats("x")
	if r.x == nil || !r.x.isDense() || len(r.x.shape) == 0 || r.x.shape[len(r.x.shape)-1] != v.K {
		return r, false
	}
	r.n, ok = r.x.len()/v.K, true
	if v.Norm == kernels.NormF32 {
		r.norm, ok = b.weight("norm", normed)
	}
	return r, ok
}

// matrices returns the weights in a list operand. It returns nil where kernels cannot read one of them.
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

// matrix returns the weight in an operand. It returns nil where it is absent or kernels cannot read it.
func (b *binder) matrix(operand string) *weight {
	if w := b.matrices(operand); len(w) == 1 {
		return w[0]
	}
	return nil
}

// stored returns the number of bytes of weights.
func stored(weights []*weight) (n int) {
	for _, w := range weights {
		n += w.bytes()
	}
	return n
}

// extra returns the operand that an epilogue adds to n rows of a product, from row first on; a row has numbers
// elements. It returns the zero operand where the epilogue adds nothing, and false where the operand is not what
// kernels take.
func (b *binder) extra(e kernels.Epilogue, first, n, numbers int) (o operand, ok bool) {
	switch e {
	case kernels.AddVector:
		return b.weight("bias", numbers)
	case kernels.AddMatrix:
		v := b.floats("extra")
		if v == nil || !v.isDense() {
			return o, false
		}
		return part(v, first*numbers, n*numbers), true
	}
	return o, true
}

// offer adds a step for a kernel that has several variants: the first that may be used becomes the step's launch, all
// of them go to the tuner. The step reads bytes bytes of weights.
func offer[T interface{ Near(T) bool }](b *binder, kind string, variants []T, launch func(T) (kernels.Launch, error),
	bytes int,
	a kernels.Arguments[operand]) bool {
	l, err := usable(b, variants, launch)
	if len(variants) == 0 || !b.launch(kind, l, err, a) {
		return false
	}
	tuned(b, variants, launch)
	b.reading(bytes)
	return true
}

// outputs allocates the first n results of the operation. It returns nil where a shape is not known.
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

// bindMatvec binds products of a few rows with one weight, or with several weights in one kernel. More rows than a
// kernel takes are computed in groups, one kernel for each.
func bindMatvec(b *binder) bool {
	weights := b.matrices("weights")
	if len(weights) != 1 {
		return b.matvecs(weights, nil)
	}
	w := weights[0]
	k, ok := lower.MatVec(b.Op)
	r, ok2 := b.rows(k.Vectors, k.K)
	out := b.result(0, nil)
	if !ok || !ok2 || out == nil {
		return false
	}
	variants := k.Tunings(b.x.exe.machine)
	for at := 0; at < r.n; at += lower.FewRows {
		n := min(lower.FewRows, r.n-at)
		extra, ok := b.extra(k.Epilogue, at, n, k.N)
		if !ok || !offer(b, "linear", variants, k.Launch, w.bytes(), kernels.MatVecArguments[operand]{W: w.arguments(),
			X: part(r.x, at*k.K, n*k.K), Norm: r.norm, Extra: extra, Y: part(out, at*k.N, n*k.N),
			Step: b.stepAt(n, nil)}) {
			return false
		}
	}
	return true
}

// part returns n elements of a dense value, from element at on, as an operand.
func part(v *value, at, n int) operand {
	size := v.format.size()
	return operand{slot: v.slot, at: (v.offset + at) * size, size: n * size}
}

// matvecs adds the kernel that multiplies a few rows with several weights. Where conv is set, it convolves the results
// of the first weight.
func (b *binder) matvecs(weights []*weight, conv *convOf) bool {
	k, ok := lower.MatVecMany(b.Op)
	if !ok || len(weights) != len(k.N) {
		return false
	}
	r, ok := b.rows(k.Vectors, k.K)
	out := b.outputs(len(weights))
	if !ok || out == nil {
		return false
	}
	kind, a := "linears", kernels.MatVecManyArguments[operand]{}
	if conv != nil {
		kind, a = "linear conv", conv.arguments
		k.Conv, k.Slots, k.Early, k.Activated = &conv.kernel, conv.slots, conv.early, conv.activated
	}
	a.X, a.Norm, a.Step = bytesOf(r.x), r.norm, b.stepAt(r.n, nil)
	buffers := [...]*kernels.WeightArguments[operand]{&a.W0, &a.W1, &a.W2, &a.W3}
	results := [...]*operand{&a.Y0, &a.Y1, &a.Y2, &a.Y3}
	for i, w := range weights {
		*buffers[i], *results[i] = w.arguments(), bytesOf(out[i])
	}
	return offer(b, kind, k.Tunings(b.x.exe.machine), k.Launch, stored(weights), a)
}

// convOf holds the causal convolution that follows a product of one token, and the operands of its kernel.
type convOf struct {
	kernel    kernels.Conv
	slots     int                                  // kernels.MatVecMany.Slots
	arguments kernels.MatVecManyArguments[operand] // all arguments but those of the products
	early     bool
	activated kernels.Activated
}

// bindMatvecConv binds the product of one row with several weights and the causal convolution of the first columns of
// the first product. Tables say where the state of a call of several sequences lies.
func bindMatvecConv(b *binder) bool {
	a, weights, s := ir.Attrs[ir.MatvecConvAttrs](b.Op), b.matrices("weights"), b.x.states[b.Op.Buffer]
	if len(weights) == 0 || s == nil || s.slot == nil {
		return false
	}
	reset, kind, ok := b.reset()
	w := b.Input("w")
	if !ok || w == nil || w.place != onHost || !w.hostValue.constant || len(w.shape) != 3 {
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
	if b.Op.Input("entries") != nil {
		t := b.slots(1, s.shape[0])
		if t == nil {
			return false
		}
		c.slots, c.arguments.Entries, c.arguments.Writes = t.sequences, t.entries, t.writes
		c.arguments.Next = c.arguments.State // the tables say which slot of the pool
		c.arguments.Next = whole(s.slot)
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
	return b.matvecs(weights, c)
}

// pairOfWeights holds the operands of the two weights of a gated product.
type pairOfWeights struct {
	size          int
	first, second kernels.WeightArguments[operand]
}

// pair collects the operands gate and up. Without an operand up both are halves of one weight.
func (b *binder) pair() *pairOfWeights {
	w := b.matrix("gate")
	switch up := b.matrix("up"); {
	case w == nil:
		return nil
	case up != nil:
		return &pairOfWeights{2 * w.bytes(), w.arguments(), up.arguments()}
	case b.Op.Input("up") != nil || w.rows%2 != 0:
		return nil
	}
	n := w.rows / 2
	return &pairOfWeights{w.bytes(), w.part(0, n), w.part(n, n)}
}

// bindMatvecGLU binds activation(x·gate) · (x·up) for a few rows.
func bindMatvecGLU(b *binder) bool {
	p := b.pair()
	k, ok := lower.MatVecGLU(b.Op)
	if p == nil || !ok {
		return false
	}
	r, ok := b.rows(k.Vectors, k.K)
	out := b.result(0, nil)
	return ok && r.n <= lower.FewRows && out != nil && offer(b, "glu", k.Tunings(b.x.exe.machine), k.Launch, p.size,
		kernels.MatVecGLUArguments[operand]{W0: p.first, W1: p.second, X: bytesOf(r.x), Norm: r.norm, Y: bytesOf(out),
			Step: b.stepAt(r.n, nil)})
}

// bindMatvecHeads binds the product of a row that is first normalized head by head and multiplied by a gate.
func bindMatvecHeads(b *binder) bool {
	w, gate := b.matrix("weight"), b.floats("gate")
	k, ok := lower.MatVec(b.Op)
	if w == nil || !ok || gate == nil || !gate.isDense() || gate.len() != k.K {
		return false
	}
	r, ok := b.rows(k.Vectors, k.Head)
	extra, ok2 := b.extra(k.Epilogue, 0, 1, k.N)
	out := b.result(0, nil)
	return ok && ok2 && r.n == 1 && out != nil &&
		offer(b, "linear of heads", k.Tunings(b.x.exe.machine), k.Launch, w.bytes(),
			kernels.MatVecArguments[operand]{W: w.arguments(), X: bytesOf(r.x), Norm: r.norm,
				Gate: bytesOf(gate), Extra: extra,
				Y: bytesOf(out), Step: b.stepAt(1, nil)})
}

// sumBefore holds the operands of a residual sum whose norm is the input row of a product.
type sumBefore struct {
	x, norm, before, residual, scale, sum, step operand
}

// sumBefore collects them. It returns nil where they are not what kernels take.
func (b *binder) sumBefore(v kernels.Vectors) *sumBefore {
	residual := b.floats("residual")
	r, ok := b.rows(v, v.K)
	pre, ok2 := b.weight("pre", v.K)
	if !ok || !ok2 || r.n != 1 || residual == nil || !residual.isDense() || residual.len() != v.K {
		return nil
	}
	s := &sumBefore{x: bytesOf(r.x), norm: r.norm, before: pre, residual: bytesOf(residual), step: b.stepAt(1, nil)}
	if v.Sum.Scaled {
		scale := b.floats("scale")
		if scale == nil || !scale.slot.fixed {
			return nil
		}
		s.scale = bytesOf(scale)
	}
	if v.Sum.Kept {
		sum := b.result(1, nil)
		if sum == nil {
			return nil
		}
		s.sum = bytesOf(sum)
	}
	return s
}

// bindMatvecSum binds the product of one row that is the norm of a residual sum.
func bindMatvecSum(b *binder) bool {
	w := b.matrix("weight")
	k, ok := lower.MatVec(b.Op)
	if w == nil || !ok {
		return false
	}
	s, out := b.sumBefore(k.Vectors), b.result(0, nil)
	return s != nil && out != nil && offer(b, "linear of a sum", k.Tunings(b.x.exe.machine), k.Launch, w.bytes(),
		kernels.StreamSumOneArguments[operand]{W: w.arguments(), X: s.x, Norm: s.norm,
			Y: bytesOf(out), Before: s.before,
			Residual: s.residual, Scale: s.scale, Out: s.sum, Step: s.step})
}

// bindMatvecGLUSum binds what bindMatvecGLU does, for one row that is the norm of a residual sum.
func bindMatvecGLUSum(b *binder) bool {
	p := b.pair()
	k, ok := lower.MatVecGLU(b.Op)
	if p == nil || !ok {
		return false
	}
	s, out := b.sumBefore(k.Vectors), b.result(0, nil)
	return s != nil && out != nil && offer(b, "glu of a sum", k.Tunings(b.x.exe.machine), k.Launch, p.size,
		kernels.StreamSumGLUArguments[operand]{W0: p.first, W1: p.second, X: s.x, Norm: s.norm, Y: bytesOf(out),
			Before: s.before, Residual: s.residual, Scale: s.scale, Out: s.sum, Step: s.step})
}

// strideOfRows returns the distance in elements from one row to the next, or -1 where they are not evenly spaced.
func strideOfRows(v *value) int {
	_, _, stride, ok := v.rows()
	if !ok {
		return -1
	}
	return stride
}
