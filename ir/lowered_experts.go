package ir

// The operations in this file are mixtures of experts: which experts a token has, and what they give.

// RouterAttrs are the attributes of router and of experts that have one.
type RouterAttrs struct {
	// K is the number of experts of a token.
	K int
	// Precise is that of softmax.
	Precise bool
}

// RoutedExpertsAttrs are the attributes of routed_experts: those of a router and those of experts.
type RoutedExpertsAttrs struct {
	K       int
	Precise bool
	// Norm says that x is normalized first, as rms_norm does with Eps.
	Norm bool
	Eps  float32
}

// ExpertsAttrs are the attributes of experts and sorted_experts.
type ExpertsAttrs struct {
	// Norm says that x is normalized first, as rms_norm does with Eps.
	Norm bool
	Eps  float32
}

// expandRouter: the softmax of the K largest logits, and which they are.
func expandRouter(b *Builder, op *Op) []*Value {
	attrs := Attrs[RouterAttrs](op)
	scores, indices := routed(b, op.Input("logits"), attrs.K, attrs.Precise)
	return []*Value{scores, indices}
}

func routed(b *Builder, logits *Value, k int, precise bool) (scores, indices *Value) {
	top := b.Op("top_k", &TopKAttrs{K: k}, logits)
	return b.Value("softmax", &SoftmaxAttrs{Axis: -1, Precise: precise}, top.Results[0]), top.Results[1]
}

// expandExperts: switch_mlp, and the extra term.
func expandExperts(b *Builder, op *Op) []*Value {
	attrs := Attrs[ExpertsAttrs](op)
	x := normed(b, op.Input("x"), op.Input("norm"), attrs.Eps, attrs.Norm)
	y := b.Value("switch_mlp", nil, x, op.Input("gate"), op.Input("up"), op.Input("down"), op.Input("indices"), op.Input("scores"))
	return []*Value{plus(b, y, op.Input("extra"))}
}

// expandRoutedExperts: switch_mlp of the experts that the logits choose, the expert of all tokens times sigmoid(shared_score),
// and the extra term. Without shared_up both halves of the expert of all tokens are one weight, shared_gate.
func expandRoutedExperts(b *Builder, op *Op) []*Value {
	attrs := Attrs[RoutedExpertsAttrs](op)
	x := normed(b, op.Input("x"), op.Input("norm"), attrs.Eps, attrs.Norm)
	scores, indices := routed(b, op.Input("logits"), attrs.K, attrs.Precise)
	y := b.Value("switch_mlp", nil, x, op.Input("gate"), op.Input("up"), op.Input("down"), indices, scores)
	if down := op.Input("shared_down"); down != nil {
		h := sharedPair(b, x, op.Input("shared_gate"), op.Input("shared_up"))
		y = plus(b, y, b.Value("glu", &GLUAttrs{Activation: "sigmoid"}, op.Input("shared_score"), b.Value("linear", nil, h, down)))
	}
	return []*Value{plus(b, y, op.Input("extra"))}
}

// sharedPair is silu(x·gateᵀ) · x·upᵀ.
func sharedPair(b *Builder, x, gate, up *Value) *Value {
	silu := &GLUAttrs{Activation: "silu"}
	both := b.Value("linear", nil, x, gate)
	if up != nil {
		return b.Value("glu", silu, both, b.Value("linear", nil, x, up))
	}
	last := both.Type.Rank() - 1
	n, ok := both.Type.Shape[last].Const()
	if !ok || n%2 != 0 {
		b.Fail("shared_gate %s, want two halves", gate.Type)
	}
	half := func(start, stop int64) *Value { return b.Value("slice", nil, both, last, start, stop) }
	return b.Value("glu", silu, half(0, n/2), half(n/2, n))
}

// plus is x + y, or x where y is nil.
func plus(b *Builder, x, y *Value) *Value {
	if y == nil {
		return x
	}
	return b.Value("add", nil, x, y)
}

// expandGatedAdd: sigmoid(gate) · x + term.
func expandGatedAdd(b *Builder, op *Op) []*Value {
	return []*Value{b.Value("add", nil, b.Value("glu", &GLUAttrs{Activation: "sigmoid"}, op.Input("gate"), op.Input("x")), op.Input("term"))}
}
