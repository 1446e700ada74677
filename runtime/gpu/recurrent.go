package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// fewTokens is the largest number of tokens that recurrent kernels take one after the other. More tokens go by chunks.
const fewTokens = lower.FewTokens

// reset returns the operand that tells the kernel whether to set a state to zeros first, and which kind of flag it is.
// The operand may be absent.
func (b *binder) reset() (v *value, kind kernels.Reset, ok bool) {
	of := b.Op.Input("reset")
	if of == nil {
		return nil, kernels.NoReset, true
	}
	v = b.device(of, b.Input("reset"))
	if v == nil || v.format != i32 || v.dtype != ir.Bool || v.len() != 1 {
		return nil, kernels.NoReset, false
	}
	return v, kernels.ResetFlag, true
}

// stateConv holds the operands of a causal convolution whose last rows are kept as state.
type stateConv struct {
	kernel           kernels.Conv
	tokens, slots    int
	x, weight, state operand
	out              *value
	of               *state
}

// conv collects the operands of a depthwise convolution of x [1, S, C]. It returns nil where they are not what kernels
// take.
func (b *binder) conv() *stateConv {
	attrs, x, s := ir.Attrs[ir.BufferConvAttrs](b.Op), b.floats("x"), b.x.states[b.Op.Buffer]
	w, of := b.Input("w"), b.Op.Input("w")
	if x == nil || s == nil || s.slot == nil || w == nil || w.place != onHost || !w.hostValue.constant ||
		len(w.shape) != 3 || len(x.shape) != 3 ||
		x.shape[0] != 1 || x.shape[2] > 1 && x.stride[2] != 1 || attrs.Activation != "" && attrs.Activation != "silu" {
		return nil
	}
	tokens, channels, taps := x.shape[1], x.shape[2], w.shape[1]
	want := []int{s.shape[0], taps, channels}
	if attrs.ChannelFirst {
		want = []int{s.shape[0], channels, taps}
	}
	if !slices.Equal(s.shape, want) || !slices.Equal(w.shape, []int{channels, taps, 1}) {
		return nil
	}
	weight := b.device(of, w)
	out := b.result(0, nil)
	if weight == nil || out == nil || !slices.Equal(out.shape, x.shape) {
		return nil
	}
	k := kernels.Conv{Channels: channels, Taps: taps, Token: x.stride[1], SiLU: attrs.Activation == "silu",
		State:        s.format.kernelType(),
		ChannelFirst: attrs.ChannelFirst, Weight: kernels.F32}
	return &stateConv{kernel: k, tokens: tokens, slots: s.shape[0], x: bytesOf(x), weight: bytesOf(weight),
		state: whole(s.slot), out: out, of: s}
}

// bindConv binds a depthwise convolution of x [1, S, C]. Its input is the rows that the state holds, then the rows of
// x.
func bindConv(b *binder) bool {
	reset, kind, ok := b.reset()
	c := b.conv()
	if !ok || c == nil || c.slots != 1 {
		return false
	}
	k, out, at := c.kernel, bytesOf(c.out), b.stepAt(c.tokens, nil)
	k.Reset = kind
	var flag operand
	if reset != nil {
		flag = bytesOf(reset)
	}
	if c.tokens <= fewTokens {
		l, err := k.StepLaunch()
		return b.launch("conv", l, err, kernels.ConvStepArguments[operand]{X: c.x, W: c.weight, Reset: flag,
			State: c.state, Y: out, Next: after(c.of.slot), Step: at})
	}
	outputs, state, err := k.Launches(c.tokens)
	return b.launch("conv", outputs, err, kernels.ConvTokensArguments[operand]{X: c.x, W: c.weight, Reset: flag,
		State: c.state, Y: out, Step: at}) &&
		b.launch("conv state", state, err,
			kernels.ConvStateArguments[operand]{X: c.x, Reset: flag, State: c.state, Step: at})
}

// bindDeltaGates computes the decays and the update rates of a gated delta rule.
func bindDeltaGates(b *binder) bool { return b.deltaGates(b.floats("update")) }

// bindDecay binds the decays of a gated delta rule alone. The kernel computes update rates too; nothing reads them.
func bindDecay(b *binder) bool { return b.deltaGates(nil) }

// deltaGates computes decays, and update rates where update is not nil.
func (b *binder) deltaGates(update *value) bool {
	x := b.floats("x")
	if x == nil || len(x.shape) == 0 || update == nil && b.Op.Def.Name == "delta_gates" {
		return false
	}
	n, heads, stride, ok := x.rows()
	bias, rate := b.vector("bias", heads), b.vector("rate", heads)
	if !ok || bias == nil || rate == nil {
		return false
	}
	decay := b.result(0, nil)
	if decay == nil {
		return false
	}
	k := lower.DeltaGates(heads, stride, stride)
	a := kernels.DeltaGatesArguments[operand]{X: bytesOf(x), B: bytesOf(x), Bias: bytesOf(bias), Rate: bytesOf(rate),
		Decay: bytesOf(decay), Step: b.stepAt(n, nil)}
	if update == nil {
		a.Beta = whole(b.scratch(4 * n * heads))
	} else {
		beta := b.result(1, nil)
		if beta == nil {
			return false
		}
		k = lower.DeltaGates(heads, stride, strideOfRows(update))
		a.B, a.Beta = bytesOf(update), bytesOf(beta)
	}
	l, err := k.GatesLaunch(n)
	return b.launch("gates", l, err, a)
}

// deltaOf holds the operands of a delta rule.
type deltaOf struct {
	q, k, v, g, beta        operand
	qWeight, kWeight        operand // weights of norms, for delta_step and slot_delta_step
	bias, rate              operand
	state, after, out, step operand
	of                      *state
}

// delta collects the operands of delta rule k for tokens tokens. It returns nil where they are not on the device.
func (b *binder) delta(k kernels.Delta, tokens int) *deltaOf {
	d := &deltaOf{of: b.x.states[b.Op.Buffer]}
	if d.of == nil || d.of.slot == nil {
		return nil
	}
	for i, o := range []*operand{&d.q, &d.k, &d.v, &d.g, &d.beta} {
		v := b.floats([]string{"q", "k", "v", "g", "beta"}[i])
		if v == nil {
			return nil
		}
		*o = bytesOf(v)
	}
	if !b.deltaWeights(k, d) {
		return nil
	}
	out := b.result(0, nil)
	if out == nil {
		return nil
	}
	d.state, d.after, d.out, d.step = whole(d.of.slot), after(d.of.slot), bytesOf(out), b.stepAt(tokens, nil)
	return d
}

// deltaWeights collects the weights of the norms and the gates that the operation has. It returns false where kernels
// do not take them.
func (b *binder) deltaWeights(k kernels.Delta, d *deltaOf) bool {
	if _, ok := b.Op.Attrs.(*ir.DeltaStepAttrs); !ok {
		return true
	}
	for _, w := range []struct {
		name string
		n    int
		to   *operand
	}{{"q_weight", k.DK, &d.qWeight}, {"k_weight", k.DK, &d.kWeight}, {"bias", k.Heads, &d.bias},
		{"rate", k.Heads, &d.rate}} {
		var ok bool
		if *w.to, ok = b.weight(w.name, w.n); !ok {
			return false
		}
	}
	return true
}

// deltaRule returns the kernel of the operation, the number of tokens, its operands, and the flag that resets its
// state.
func (b *binder) deltaRule() (k kernels.Delta, tokens int, d *deltaOf, reset operand) {
	s := b.x.states[b.Op.Buffer]
	flag, _, ok := b.reset()
	if !ok || s == nil {
		return k, 0, nil, reset
	}
	if k, tokens, ok = lower.DeltaRule(b.Op, b.view, s.format.kernelType()); ok {
		d = b.delta(k, tokens)
	}
	if flag != nil {
		reset = bytesOf(flag)
	}
	return k, tokens, d, reset
}

// bindDeltaStep binds a gated delta rule that takes the tokens one after the other.
func bindDeltaStep(b *binder) bool {
	k, _, d, reset := b.deltaRule()
	if d == nil {
		return false
	}
	l, err := k.StepLaunch()
	if !b.launch("delta rule", l, err, kernels.DeltaStepArguments[operand]{Q: d.q, K: d.k, V: d.v, G: d.g, Beta: d.beta,
		QWeight: d.qWeight, KWeight: d.kWeight,
		Bias: d.bias, Rate: d.rate, Reset: reset, State: d.state, Y: d.out, Next: d.after, Step: d.step}) {
		return false
	}
	b.reading(2 * d.state.size)
	return true
}

// bindDeltaChunks binds a gated delta rule that works in chunks of tokens. The first kernel computes all chunks at the
// same time, as far as they do not depend on the state. The second takes the state through the chunks in order.
func bindDeltaChunks(b *binder) bool {
	k, tokens, d, reset := b.deltaRule()
	if d == nil {
		return false
	}
	solve, scan, err := k.Launches(tokens)
	if err != nil {
		return false
	}
	const length = 32
	n := tokens * k.Heads
	sums, w, u := b.scratch(4*n), b.scratch(4*n*k.DK), b.scratch(4*n*k.DV)
	m := b.scratch(4 * ((tokens + length - 1) / length) * k.Heads * length * length)
	return b.launch("delta solve", solve, nil,
		kernels.DeltaSolveArguments[operand]{Q: d.q, K: d.k, V: d.v, G: d.g, Beta: d.beta,
			Sums: whole(sums), W: whole(w), U: whole(u), M: whole(m), Step: d.step}) &&
		b.launch("delta scan", scan, nil, kernels.DeltaScanArguments[operand]{Q: d.q, K: d.k, Sums: whole(sums),
			W: whole(w), U: whole(u), M: whole(m),
			Reset: reset, State: d.state, Y: d.out, Step: d.step})
}
