package ir

// The operations in this file are mixtures of experts: which experts a token has, and what they give.

// RouterAttrs are the attributes of router and of experts that have one.
type RouterAttrs struct {
	// K is the number of experts of a token.
	K int
	// Precise is as in softmax.
	Precise bool
}

// RoutedExpertsAttrs are the attributes of routed_experts: the attributes of a router and of experts together.
type RoutedExpertsAttrs struct {
	K       int
	Precise bool
	// Norm says that x is normalized first, as rms_norm does with Eps.
	Norm bool
	Eps  float32
	// Activation is the activation of the gates, one that [ExpertsOf] knows.
	Activation string
}

// ExpertsAttrs are the attributes of experts and sorted_experts.
type ExpertsAttrs struct {
	// Norm says that x is normalized first, as rms_norm does with Eps.
	Norm bool
	Eps  float32
	// Activation is the activation of the gates, one that [ExpertsOf] knows.
	Activation string
}

// switches are the operations of mixtures of experts, by the activation of the gates, one of [Activations].
var switches = map[string]string{"silu": "switch_mlp", "gelu_tanh": "switch_geglu"}

// ExpertsOf returns the operation of a mixture of experts with this activation of the gates, one of [Activations];
// false where there is none.
func ExpertsOf(activation string) (name string, ok bool) {
	name, ok = switches[activation]
	return name, ok
}

// ActivationOfExperts returns the activation of the gates of an operation of [ExpertsOf]; empty for another one.
func ActivationOfExperts(name string) string {
	for activation, n := range switches {
		if n == name {
			return activation
		}
	}
	return ""
}

// expandRouter gives the softmax of the K largest logits, times the scale of each expert, and which they are.
func expandRouter(b *Builder, op *Op) []*Value {
	attrs := Attrs[RouterAttrs](op)
	scores, indices := routed(b, op, attrs.K, attrs.Precise)
	return []*Value{scores, indices}
}

// routed returns the scores and the numbers of the experts that the operands logits and scale of op choose. scale has a
// number for each expert, [E, 1].
func routed(b *Builder, op *Op, k int, precise bool) (scores, indices *Value) {
	top := b.Op("top_k", &TopKAttrs{K: k}, op.Input("logits"))
	scores, indices = b.Value("softmax", &SoftmaxAttrs{Axis: -1, Precise: precise}, top.Results[0]), top.Results[1]
	if scale := op.Input("scale"); scale != nil {
		if dims, _ := scale.Type.Static(); len(dims) != 2 || dims[1] != 1 {
			b.Fail("scale %s, want a number for each expert", scale.Type)
		}
		of := b.Value("squeeze", &SqueezeAttrs{Dims: []int{-1}}, b.Value("embedding", nil, indices, scale))
		scores = b.Value("multiply", nil, scores, of)
	}
	return scores, indices
}

// mixed returns the mixture of experts of op's weights with an activation of the gates.
func mixed(b *Builder, op *Op, activation string, x, indices, scores *Value) *Value {
	name, ok := ExpertsOf(activation)
	if !ok {
		b.Fail("activation %q, there are no experts of it", activation)
	}
	return b.Value(name, nil, x, op.Input("gate"), op.Input("up"), op.Input("down"), indices, scores)
}

// expandExperts gives the mixture of experts, and the extra term.
func expandExperts(b *Builder, op *Op) []*Value {
	attrs := Attrs[ExpertsAttrs](op)
	x := normed(b, op.Input("x"), op.Input("norm"), attrs.Eps, attrs.Norm)
	y := mixed(b, op, attrs.Activation, x, op.Input("indices"), op.Input("scores"))
	return []*Value{plus(b, y, op.Input("extra"))}
}

// expandSortedExperts gives the mixture of experts, the expert of all tokens, and the extra term.
func expandSortedExperts(b *Builder, op *Op) []*Value {
	attrs := Attrs[ExpertsAttrs](op)
	x := normed(b, op.Input("x"), op.Input("norm"), attrs.Eps, attrs.Norm)
	y := mixed(b, op, attrs.Activation, x, op.Input("indices"), op.Input("scores"))
	return []*Value{plus(b, withShared(b, op, attrs.Activation, x, y), op.Input("extra"))}
}

// expandRoutedExperts gives the mixture of the experts that the logits choose, the expert of all tokens, and the extra
// term.
func expandRoutedExperts(b *Builder, op *Op) []*Value {
	attrs := Attrs[RoutedExpertsAttrs](op)
	x := normed(b, op.Input("x"), op.Input("norm"), attrs.Eps, attrs.Norm)
	scores, indices := routed(b, op, attrs.K, attrs.Precise)
	y := mixed(b, op, attrs.Activation, x, indices, scores)
	return []*Value{plus(b, withShared(b, op, attrs.Activation, x, y), op.Input("extra"))}
}

// withShared returns y plus the expert of all tokens times sigmoid(shared_score), or y where op has no such expert.
// Without shared_up both halves of that expert are one weight, shared_gate.
func withShared(b *Builder, op *Op, activation string, x, y *Value) *Value {
	down := op.Input("shared_down")
	if down == nil {
		return y
	}
	h := sharedPair(b, x, op.Input("shared_gate"), op.Input("shared_up"), activation)
	return plus(b, y, b.Value("glu", &GLUAttrs{Activation: "sigmoid"}, op.Input("shared_score"),
		b.Value("linear", nil, h, down)))
}

// sharedPair is activation(x·gateᵀ) · x·upᵀ.
func sharedPair(b *Builder, x, gate, up *Value, activation string) *Value {
	glu := &GLUAttrs{Activation: activation}
	both := b.Value("linear", nil, x, gate)
	if up != nil {
		return b.Value("glu", glu, both, b.Value("linear", nil, x, up))
	}
	last := both.Type.Rank() - 1
	n, ok := both.Type.Shape[last].Const()
	if !ok || n%2 != 0 {
		b.Fail("shared_gate %s, want two halves", gate.Type)
	}
	half := func(start, stop int64) *Value { return b.Value("slice", nil, both, last, start, stop) }
	return b.Value("glu", glu, half(0, n/2), half(n/2, n))
}

// plus is x + y, or x where y is nil.
func plus(b *Builder, x, y *Value) *Value {
	if y == nil {
		return x
	}
	return b.Value("add", nil, x, y)
}

// expandGatedAdd gives sigmoid(gate) · x + term.
func expandGatedAdd(b *Builder, op *Op) []*Value {
	return []*Value{b.Value("add", nil, b.Value("glu", &GLUAttrs{Activation: "sigmoid"}, op.Input("gate"),
		op.Input("x")), op.Input("term"))}
}
