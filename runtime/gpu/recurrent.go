package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// fewTokens is the number of tokens up to which recurrent states take one after the other.
const fewTokens = 8

// reset is the optional bool that sets a state to zeros first, on the device.
func (b *binder) reset() (v *value, kind kernels.Reset, ok bool) {
	of := b.op.Input("reset")
	if of == nil {
		return nil, kernels.NoReset, true
	}
	v = b.device(of, b.input("reset"))
	if v == nil || v.format != i32 || v.dtype != ir.Bool || v.len() != 1 {
		return nil, kernels.NoReset, false
	}
	return v, kernels.ResetFlag, true
}

// bindConv convolves each channel of x [1, S, C] with its taps, over the rows that the buffer holds and those
// of x.
func bindConv(b *binder) bool {
	attrs, x, s := ir.Attrs[ir.BufferConvAttrs](b.op), b.floats("x"), b.x.states[b.op.Buffer]
	w, of := b.input("w"), b.op.Input("w")
	reset, kind, ok := b.reset()
	if !ok || x == nil || s == nil || s.slot == nil || w == nil || w.place != onHost || !w.cell.constant || len(w.shape) != 3 || len(x.shape) != 3 ||
		x.shape[0] != 1 || x.shape[2] > 1 && x.stride[2] != 1 || attrs.Activation != "" && attrs.Activation != "silu" {
		return false
	}
	tokens, channels, taps := x.shape[1], x.shape[2], w.shape[1]
	want := []int{1, taps, channels}
	if attrs.ChannelFirst {
		want = []int{1, channels, taps}
	}
	if !slices.Equal(s.shape, want) || !slices.Equal(w.shape, []int{channels, taps, 1}) {
		return false
	}
	weight := b.device(of, w)
	k := kernels.Conv{Channels: channels, Taps: taps, Token: x.stride[1], SiLU: attrs.Activation == "silu", State: s.format.kernelType(),
		ChannelFirst: attrs.ChannelFirst, Weight: kernels.F32, Reset: kind}
	out := b.result(0, nil)
	if weight == nil || out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	var flag operand
	held := []*slot{s.slot}
	if reset != nil {
		flag = bytesOf(reset)
		held = append(held, flag.slot)
	}
	at := b.stepAt(tokens, nil)
	c := &convOf{kernel: k, early: b.unwritten(held...),
		arguments: kernels.MatVecManyArguments[operand]{ConvW: bytesOf(weight), Reset: flag, State: whole(s.slot), ConvY: bytesOf(out), Next: after(s.slot)}}
	if tokens == 1 && b.convolveProduct(x, c) {
		return true
	}
	if tokens <= fewTokens {
		l, err := k.StepLaunch()
		return b.launch("conv", l, err, kernels.ConvStepArguments[operand]{X: bytesOf(x), W: bytesOf(weight), Reset: flag, State: whole(s.slot), Y: bytesOf(out),
			Next: after(s.slot), Step: at})
	}
	outputs, state, err := k.Launches(tokens)
	return b.launch("conv", outputs, err, kernels.ConvTokensArguments[operand]{X: bytesOf(x), W: bytesOf(weight), Reset: flag, State: whole(s.slot), Y: bytesOf(out), Step: at}) &&
		b.launch("conv state", state, err, kernels.ConvStateArguments[operand]{X: bytesOf(x), Reset: flag, State: whole(s.slot), Step: at})
}

// convOf is a convolution for one token as the end of the product that is its input.
type convOf struct {
	kernel    kernels.Conv
	arguments kernels.MatVecManyArguments[operand] // but those of the products
	early     bool                                 // nothing writes the state or reset before it
	// activated are results that will be the gate of something.
	activated kernels.Activated
}

// activatedOf are a product's results, as out has them after an activation.
type activatedOf struct {
	results, out *value
	activation   kernels.Activation
}

// convolveProduct makes a convolution the end of a deferred product whose first columns are its channels. The product is
// there too, for what else reads it.
func (b *binder) convolveProduct(x *value, c *convOf) bool {
	l, ok := x.slot.pending.(*linearOf)
	if !ok || l.rows != 1 || l.bias != nil || l.absorbed || x.offset != l.out.offset || c.kernel.Channels > l.w.rows {
		return false
	}
	group := l.group()
	results, activation := b.gateAhead(group)
	if results == nil {
		return b.many(group, c)
	}
	at := slices.IndexFunc(group, func(l *linearOf) bool { return l.out.slot == results.slot })
	c.activated = kernels.Activated{Weight: at, First: results.offset - group[at].out.offset, Rows: results.len(), Activation: activation}
	out := &value{place: onDevice, dtype: results.dtype, shape: results.shape, stride: strided.RowMajor(results.shape), slot: b.scratch(4 * results.len())}
	c.arguments.Activated = bytesOf(out)
	if !b.many(group, c) {
		return false
	}
	b.activated = append(b.activated, activatedOf{results, out, activation})
	return true
}

// gateAhead finds results of products, one row of one of them, that are the gate of a later operation. An activation costs
// nothing in the kernel that makes them, where each is computed once.
func (b *binder) gateAhead(group []*linearOf) (results *value, activation kernels.Activation) {
	ops := b.plan.module.Entry.Body.Ops
	for _, op := range ops[slices.Index(ops, b.op)+1:] {
		if op.Def.Name != "glu" {
			continue
		}
		of := op.Input("gate")
		for of != nil && b.values[of] == nil && of.Def != nil && of.Def.Def.IsView() {
			of = of.Def.Input("x") // views that are not bound yet
		}
		v := b.values[of]
		if v == nil || v.place != onDevice || !v.isDense() || !slices.ContainsFunc(group, func(l *linearOf) bool { return l.out.slot == v.slot }) {
			continue
		}
		if activation, err := kernels.ActivationNamed(ir.Attrs[ir.GLUAttrs](op).Activation); err == nil {
			return v, activation
		}
	}
	return nil, 0
}

// activatedAs is the activation of gate, if it is there.
func (b *binder) activatedAs(gate *value, activation kernels.Activation) *value {
	for _, a := range b.activated {
		if a.activation == activation && gate.same(a.results) {
			return as(a.out, gate.shape)
		}
	}
	return nil
}

// unwritten reports whether no step before this one writes what slots hold, so that a kernel may read it before the
// kernels in front of it are done.
func (b *binder) unwritten(slots ...*slot) bool {
	for _, s := range slots {
		if s.pending != nil {
			return false
		}
	}
	return !slices.ContainsFunc(slots, func(s *slot) bool { return b.writers[s] > 0 })
}

// decayOf are decays of the gated delta rule that are deferred.
type decayOf struct {
	x, bias, rate *value
	out           *value
}

func (d *decayOf) emit(b *binder) { d.gates(b, nil, nil, nil) }

// gates computes the decays g, and beta = sigmoid(x) where that is set.
func (d *decayOf) gates(b *binder, g, betaOf, beta *value) bool {
	if g == nil {
		g = d.out
	}
	heads := d.x.shape[len(d.x.shape)-1]
	n, _, stride, _ := d.x.rows()
	k := kernels.Delta{DK: 32, DV: 32, KHeads: heads, Heads: heads, GToken: stride, BetaToken: stride, State: kernels.F32, Gates: kernels.F32}
	in, out := d.x, operand{}
	if beta != nil {
		in, out = betaOf, bytesOf(beta)
		k.BetaToken = strideOfRows(betaOf)
	} else {
		out = whole(b.scratch(4 * n * heads)) // the kernel makes both
	}
	l, err := k.GatesLaunch(n)
	return b.launch("gates", l, err, kernels.DeltaGatesArguments[operand]{X: bytesOf(d.x), B: bytesOf(in), Bias: bytesOf(d.bias), Rate: bytesOf(d.rate),
		Decay: bytesOf(g), Beta: out, Step: b.stepAt(n, nil)})
}

// bindDeltaGates computes the decays and the update rates of a gated delta rule.
func bindDeltaGates(b *binder) bool {
	x, update := b.floats("x"), b.floats("update")
	if x == nil || update == nil || len(x.shape) == 0 {
		return false
	}
	heads := x.shape[len(x.shape)-1]
	d := &decayOf{x: x, bias: b.vector("bias", heads), rate: b.vector("rate", heads)}
	if d.bias == nil || d.rate == nil {
		return false
	}
	g, beta := b.result(0, nil), b.result(1, nil)
	return g != nil && beta != nil && d.gates(b, g, update, beta)
}

// bindDecay defers the decays of the gated delta rule, a few numbers for each token.
func bindDecay(b *binder) bool {
	x := b.floats("x")
	if x == nil || len(x.shape) == 0 {
		return false
	}
	heads := x.shape[len(x.shape)-1]
	_, _, _, ok := x.rows()
	d := &decayOf{x: x, bias: b.vector("bias", heads), rate: b.vector("rate", heads)}
	if !ok || d.bias == nil || d.rate == nil {
		return false
	}
	if d.out = b.result(0, nil); d.out == nil {
		return false
	}
	b.flush(x.slot)
	b.later(d.out.slot, d, x)
	return true
}

// bindDeltaRule runs the gated delta rule over the tokens of a call, on the state that a buffer holds. With few
// tokens the kernel does what comes before: the normalization of q and k, and the gates.
func bindDeltaRule(b *binder) bool {
	s := b.x.states[b.op.Buffer]
	reset, kind, ok := b.reset()
	q, k, v, g, beta := b.floats("q"), b.floats("k"), b.floats("v"), b.floats("g"), b.floats("beta")
	for _, x := range []*value{q, k, v, g, beta} {
		if x == nil {
			return false
		}
	}
	if !ok || s == nil || s.slot == nil || len(q.shape) != 4 || len(v.shape) != 4 || len(g.shape) != 3 || len(s.shape) != 4 || q.shape[0] != 1 {
		return false
	}
	tokens, keyHeads, keyWidth := q.shape[1], q.shape[2], q.shape[3]
	heads, width := v.shape[2], v.shape[3]
	if !slices.Equal(k.shape, q.shape) || !slices.Equal(v.shape, []int{1, tokens, heads, width}) || !slices.Equal(g.shape, []int{1, tokens, heads}) ||
		!slices.Equal(beta.shape, g.shape) || !slices.Equal(s.shape, []int{1, heads, width, keyWidth}) || keyHeads == 0 || heads%keyHeads != 0 {
		return false
	}
	d := kernels.Delta{DK: keyWidth, DV: width, KHeads: keyHeads, Heads: heads, State: s.format.kernelType(), Reset: kind}
	if _, err := d.StepLaunch(); err != nil {
		return false
	}
	var a kernels.DeltaStepArguments[operand]
	if tokens <= fewTokens {
		qn, kn := b.keyNorm(q, "q"), b.keyNorm(k, "k")
		if qn != nil && kn != nil && qn.eps == kn.eps {
			d.Norm, d.Eps, a.QWeight, a.KWeight = kernels.F32, qn.eps, bytesOf(qn.weight), bytesOf(kn.weight)
			q, k = as(qn.x, q.shape), as(kn.x, k.shape)
		}
		decay, _ := g.slot.pending.(*decayOf)
		gate, _ := beta.slot.pending.(*sigmoidOf)
		if decay != nil && g.same(decay.out) && gate != nil && beta.same(gate.out) {
			d.Gates, a.Bias, a.Rate = kernels.F32, bytesOf(decay.bias), bytesOf(decay.rate)
			g, beta = as(decay.x, g.shape), as(gate.x, g.shape)
		}
	}
	// Heads follow each other; the distance of tokens means nothing where there is one.
	rows := func(x *value, n, width int) (*value, int) {
		if x = b.denseRows(x, n, width); x == nil {
			return nil, 0
		}
		if tokens == 1 {
			return x, 0
		}
		return x, x.stride[1]
	}
	if q, k = b.fours(q), b.fours(k); q == nil || k == nil {
		return false
	}
	if q, d.QToken = rows(q, keyHeads, keyWidth); q == nil {
		return false
	}
	if k, d.KToken = rows(k, keyHeads, keyWidth); k == nil {
		return false
	}
	if v, d.VToken = rows(v, heads, width); v == nil {
		return false
	}
	if g.stride[2] != 1 && heads > 1 || beta.stride[2] != 1 && heads > 1 {
		return false
	}
	d.GToken, d.BetaToken = g.stride[1], beta.stride[1]
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, v.shape) {
		return false
	}
	early := b.unwritten(s.slot)
	if reset != nil {
		a.Reset = bytesOf(reset)
		early = early && b.unwritten(reset.slot)
	}
	at := b.stepAt(tokens, nil)
	if tokens > fewTokens {
		if solve, scan, err := d.Launches(tokens); err == nil && !b.x.exe.known.refuses(scan) {
			const length = 32
			sums, w, u := b.scratch(4*tokens*heads), b.scratch(4*tokens*heads*keyWidth), b.scratch(4*tokens*heads*width)
			m := b.scratch(4 * (tokens + length - 1) / length * heads * length * length)
			m.size = 4 * ((tokens + length - 1) / length) * heads * length * length
			return b.launch("delta solve", solve, nil, kernels.DeltaSolveArguments[operand]{Q: bytesOf(q), K: bytesOf(k), V: bytesOf(v), G: bytesOf(g), Beta: bytesOf(beta),
				Sums: whole(sums), W: whole(w), U: whole(u), M: whole(m), Step: at}) &&
				b.launch("delta scan", scan, nil, kernels.DeltaScanArguments[operand]{Q: bytesOf(q), K: bytesOf(k), Sums: whole(sums), W: whole(w), U: whole(u), M: whole(m),
					Reset: a.Reset, State: whole(s.slot), Y: bytesOf(out), Step: at})
		}
	}
	d.Early = early
	l, err := d.StepLaunch()
	a.Q, a.K, a.V, a.G, a.Beta = bytesOf(q), bytesOf(k), bytesOf(v), bytesOf(g), bytesOf(beta)
	a.State, a.Y, a.Next, a.Step = whole(s.slot), bytesOf(out), after(s.slot), at
	if !b.launch("delta rule", l, err, a) {
		return false
	}
	b.reading(2 * s.slot.size)
	return true
}

// keyNorm is a deferred normalization of heads with a weight that x is the result of.
func (b *binder) keyNorm(x *value, operand string) *normOf {
	n, ok := x.slot.pending.(*normOf)
	if !ok || !x.same(n.out) || n.weight == nil || len(n.out.shape) == 0 || n.out.shape[len(n.out.shape)-1] != x.shape[3] || !b.only(operand) {
		return nil
	}
	if stride, ok := strided.Reshape(n.x.shape, n.x.stride, x.shape); !ok || stride[3] != 1 {
		return nil
	}
	return n
}

// as sees v in another shape, which its strides allow.
func as(v *value, shape []int) *value {
	n := *v
	n.shape = shape
	n.stride, _ = strided.Reshape(v.shape, v.stride, shape)
	return &n
}

// denseRows gives x [1, T, n, width] with the n rows of a token one after the other, copied where they are
// not.
func (b *binder) denseRows(x *value, n, width int) *value {
	if (x.stride[3] == 1 || width == 1) && (x.stride[2] == width || n == 1) {
		return x
	}
	return b.dense(x)
}

// fours gives x [1, T, ..] such that its tokens can be read as vectors of four, copied where they cannot.
func (b *binder) fours(x *value) *value {
	if x.offset%4 == 0 && (x.shape[1] == 1 || x.stride[1]%4 == 0) {
		return x
	}
	return b.copied(x)
}
