package ir

import (
	"fmt"
	"slices"
)

// The operations in this file have no node and no decomposition: the runtime fuses lifted graphs to
// them. Those with a buffer read what it holds and write it in the same step.

// GLUAttrs are the attributes of glu.
type GLUAttrs struct {
	// Activation is "silu", "sigmoid", "gelu" or "gelu_tanh".
	Activation string
}

// CachedAttentionAttrs are the attributes of cached_attention.
type CachedAttentionAttrs struct {
	// Scale multiplies the scores.
	Scale float32
	// Window is the number of positions that a query sees, itself included; 0 means all before it.
	Window int
	// First is the first position that any query sees, of block_attention alone.
	First int
}

// BufferConvAttrs are the attributes of buffer_conv.
type BufferConvAttrs struct {
	// Activation is "silu" or empty.
	Activation string
	// ChannelFirst says that the buffer is [B, C, K], not [B, K, C].
	ChannelFirst bool
}

// Activations are the names that glu takes.
var Activations = []string{"silu", "sigmoid", "gelu", "gelu_tanh"}

// inferLinears infers the type of linears. Result i is linear(x, weights[i]).
func inferLinears(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 1)
	if err != nil {
		return nil, err
	}
	weights := c.Types("weights")
	if len(weights) == 0 {
		return nil, fmt.Errorf("needs at least one weight")
	}
	out := make([]Type, len(weights))
	for i, w := range weights {
		if w.Rank() != 2 {
			return nil, fmt.Errorf("weight %d must have two dims, found %s", i, w)
		}
		if _, ok := unify(x.Shape[x.Rank()-1], w.Shape[1]); !ok {
			return nil, fmt.Errorf("the last dim of x %s must be that of weight %d, %s", x, i, w)
		}
		d := Promote(x.DType, w.DType)
		if err := needFloat("the promoted dtype of the operands", d); err != nil {
			return nil, err
		}
		shape := slices.Clone(x.Shape)
		shape[len(shape)-1] = w.Shape[0]
		out[i] = TensorType(d, shape...)
	}
	return out, nil
}

// inferGLU infers the type of glu, activation(gate) · x. Both broadcast.
func inferGLU(c *Inference) ([]Type, error) {
	if a := Attrs[GLUAttrs](c.Op).Activation; !slices.Contains(Activations, a) {
		return nil, fmt.Errorf("activation %q, want one of %q", a, Activations)
	}
	return c.broadcastFloats("gate", "x")
}

// inferSoftcap infers the type of softcap, tanh(x / cap) · cap. Both broadcast.
func inferSoftcap(c *Inference) ([]Type, error) { return c.broadcastFloats("x", "cap") }

func (c *Inference) broadcastFloats(a, b string) ([]Type, error) {
	x, y := c.Type(a), c.Type(b)
	shape, err := broadcastShapes(x.Shape, y.Shape)
	if err != nil {
		return nil, fmt.Errorf("%s %s and %s %s: %w", a, x, b, y, err)
	}
	d := Promote(x.DType, y.DType)
	if err := needFloat("the promoted dtype of the operands", d); err != nil {
		return nil, err
	}
	return single(TensorType(d, shape...))
}

// inferDeltaDecay infers the type of delta_decay, exp(rate · softplus(x + bias)) for x [..., H], bias and rate [H].
func inferDeltaDecay(c *Inference) ([]Type, error) {
	x, err := c.minRank("x", 1)
	if err != nil {
		return nil, err
	}
	d := x.DType
	for _, operand := range []string{"bias", "rate"} {
		t, err := c.rank(operand, 1)
		if err != nil {
			return nil, err
		}
		if _, ok := unify(t.Shape[0], x.Shape[x.Rank()-1]); !ok {
			return nil, fmt.Errorf("%s %s must be as long as the last dim of x %s", operand, t, x)
		}
		d = Promote(d, t.DType)
	}
	if err := needFloat("the promoted dtype of the operands", d); err != nil {
		return nil, err
	}
	return single(like(x, d))
}

// inferCachedAttention infers the type of cached_attention. Queries q [B, H, S, D] over the slots of k [B, Hkv, R, D]
// and v [B, Hkv, R, Dv] give [B, H, S, Dv]; Hkv divides H.
func inferCachedAttention(c *Inference) ([]Type, error) {
	var types [3]Type
	for i, operand := range []string{"q", "k", "v"} {
		t, err := c.rank(operand, 4)
		if err != nil {
			return nil, err
		}
		if err := needFloat(operand, t.DType); err != nil {
			return nil, err
		}
		types[i] = t
	}
	q, k, v := types[0], types[1], types[2]
	if err := checkDims(
		dimCheck{"batch of q and k", q.Shape[0], k.Shape[0]},
		dimCheck{"batch of q and v", q.Shape[0], v.Shape[0]},
		dimCheck{"heads of k and v", k.Shape[1], v.Shape[1]},
		dimCheck{"slots of k and v", k.Shape[2], v.Shape[2]},
		dimCheck{"width of q and k", q.Shape[3], k.Shape[3]},
	); err != nil {
		return nil, err
	}
	if k.Shape[1].IsConst(0) {
		return nil, fmt.Errorf("k %s has no heads", k)
	}
	if r, ok := q.Shape[1].Mod(k.Shape[1]).Const(); ok && r != 0 {
		return nil, fmt.Errorf("the %s heads of k must divide the %s heads of q", k.Shape[1], q.Shape[1])
	}
	if w := Attrs[CachedAttentionAttrs](c.Op).Window; w < 0 {
		return nil, fmt.Errorf("window %d is negative", w)
	}
	if first := Attrs[CachedAttentionAttrs](c.Op).First; first != 0 {
		return nil, fmt.Errorf("first %d, want none", first)
	}
	shape := slices.Clone(q.Shape)
	shape[3] = v.Shape[3]
	return single(TensorType(Promote(Promote(q.DType, k.DType), v.DType), shape...))
}

// inferBufferRingUpdate infers the type of buffer_ring_update. Row i of update along the axis goes to slot (start + i)
// mod R of the buffer.
func inferBufferRingUpdate(c *Inference) ([]Type, error) {
	t, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	update := c.Type("update")
	axis, err := c.Axis(Attrs[AxisAttrs](c.Op).Axis, t.Rank())
	if err != nil {
		return nil, err
	}
	if update.Rank() != t.Rank() {
		return nil, fmt.Errorf("update must have the dims of the buffer %s, found %s", t, update)
	}
	for i := range t.Shape {
		if _, ok := unify(t.Shape[i], update.Shape[i]); !ok && i != axis {
			return nil, fmt.Errorf("update must have the dims of the buffer %s but for axis %d, found %s", t, axis,
				update)
		}
	}
	if less(t.Shape[axis], update.Shape[axis]) {
		return nil, fmt.Errorf("update %s has more rows than the buffer %s", update, t)
	}
	return nil, nil
}

// reset checks the optional operand that sets the state to zeros first.
func (c *Inference) reset() error {
	if !c.Has("reset") {
		return nil
	}
	if t := c.Type("reset"); t.DType != Bool || !oneElement(t) {
		return fmt.Errorf("reset must be one bool, found %s", t)
	}
	return nil
}

// inferBufferConv infers the type of buffer_conv, a causal convolution of each channel of x [B, S, C] with w [C, K, 1].
// The buffer holds the last K rows of x.
func inferBufferConv(c *Inference) ([]Type, error) {
	state, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	x, err := c.rank("x", 3)
	if err != nil {
		return nil, err
	}
	w, err := c.rank("w", 3)
	if err != nil {
		return nil, err
	}
	if state.Rank() != 3 {
		return nil, fmt.Errorf("the buffer must have three dims, found %s", state)
	}
	attrs := Attrs[BufferConvAttrs](c.Op)
	if attrs.Activation != "" && attrs.Activation != "silu" {
		return nil, fmt.Errorf("activation %q, want \"silu\" or none", attrs.Activation)
	}
	rows, channels := state.Shape[1], state.Shape[2]
	if attrs.ChannelFirst {
		rows, channels = channels, rows
	}
	if err := checkDims(
		dimCheck{"batch of x and the buffer", x.Shape[0], state.Shape[0]},
		dimCheck{"channels of x and the buffer", x.Shape[2], channels},
		dimCheck{"channels of x and w", x.Shape[2], w.Shape[0]},
		dimCheck{"rows of the buffer and w", rows, w.Shape[1]},
		dimCheck{"inputs of a channel", w.Shape[2], Const(1)},
	); err != nil {
		return nil, err
	}
	if err := c.reset(); err != nil {
		return nil, err
	}
	d := Promote(x.DType, w.DType)
	if err := needFloat("the promoted dtype of x and w", d); err != nil {
		return nil, err
	}
	return single(like(x, d))
}

// inferBufferDeltaRule infers the type of buffer_delta_rule, which is gated_delta_rule with the state in the buffer.
func inferBufferDeltaRule(c *Inference) ([]Type, error) {
	state, err := c.bufferType()
	if err != nil {
		return nil, err
	}
	if err := c.reset(); err != nil {
		return nil, err
	}
	op := &Op{Def: LookupOp("gated_delta_rule"), Args: slices.Clone(c.Op.Args[:5])}
	op.Args = append(op.Args, []Arg{Use(&Value{Type: state})})
	types, err := inferGatedDeltaRule(&Inference{op})
	if err != nil {
		return nil, err
	}
	return types[:1], nil
}
