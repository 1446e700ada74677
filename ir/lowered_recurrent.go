package ir

// The operations in this file are gated delta rules on the state in a buffer.

// DeltaStepAttrs are the attributes of delta_step.
type DeltaStepAttrs struct {
	// Norm says that q and k are normalized first, as rms_norm does with Eps and their weights.
	Norm bool
	Eps  float32
	// Gates says that g and beta are the inputs from which decays and update rates are computed, with bias and rate, as
	// in delta_gates.
	Gates bool
	// Early says that no operation before this one writes the state.
	Early bool
}

// expandDeltaStep gives buffer_delta_rule, token by token, after the normalization of q and k and of the gates.
func expandDeltaStep(b *Builder, op *Op) []*Value {
	q, k, v, g, beta := deltaInputs(b, op)
	return []*Value{b.BufferOp("buffer_delta_rule", op.Buffer, nil, q, k, v, g, beta, op.Input("reset")).Result()}
}

// deltaInputs returns the operands of the rule of delta_step or slot_delta_step: normalized, and of the gates.
func deltaInputs(b *Builder, op *Op) (q, k, v, g, beta *Value) {
	attrs := Attrs[DeltaStepAttrs](op)
	q = normed(b, op.Input("q"), op.Input("q_weight"), attrs.Eps, attrs.Norm)
	k = normed(b, op.Input("k"), op.Input("k_weight"), attrs.Eps, attrs.Norm)
	g, beta = op.Input("g"), op.Input("beta")
	if attrs.Gates {
		if op.Input("bias") == nil || op.Input("rate") == nil {
			b.Fail("gates want bias and rate")
		}
		g, beta = b.Value("delta_decay", nil, g, op.Input("bias"), op.Input("rate")), b.Value("sigmoid", nil, beta)
	}
	return q, k, op.Input("v"), g, beta
}

// expandDeltaChunks gives buffer_delta_rule, chunk by chunk.
func expandDeltaChunks(b *Builder, op *Op) []*Value {
	return []*Value{b.BufferOp("buffer_delta_rule", op.Buffer, nil, op.Input("q"), op.Input("k"), op.Input("v"),
		op.Input("g"), op.Input("beta"), op.Input("reset")).Result()}
}

// expandSlotDeltaStep gives slot_delta_rule, row by row, after the normalization of q and k and of the gates.
func expandSlotDeltaStep(b *Builder, op *Op) []*Value {
	q, k, v, g, beta := deltaInputs(b, op)
	return []*Value{b.BufferOp("slot_delta_rule", op.Buffer, nil, q, k, v, g, beta, op.Input("entries"),
		op.Input("writes")).Result()}
}

// expandSlotDeltaChunks gives slot_delta_rule, sequences of many rows chunk by chunk.
func expandSlotDeltaChunks(b *Builder, op *Op) []*Value {
	return []*Value{b.BufferOp("slot_delta_rule", op.Buffer, nil, op.Input("q"), op.Input("k"), op.Input("v"),
		op.Input("g"), op.Input("beta"), op.Input("entries"),
		op.Input("writes")).Result()}
}
