package ir

// The operations in this file belong to one engine. A pass of its table makes them where a kernel computes several
// operations at once.

// expandCopy gives x, its elements in row-major order in memory of their own.
func expandCopy(b *Builder, op *Op) []*Value {
	return []*Value{b.Value("id_copy", nil, op.Input("x"))}
}

// expandDeltaGates gives the decays of a gated delta rule, delta_decay(x, bias, rate), and its update rates,
// sigmoid(update).
func expandDeltaGates(b *Builder, op *Op) []*Value {
	return []*Value{b.Value("delta_decay", nil, op.Input("x"), op.Input("bias"), op.Input("rate")),
		b.Value("sigmoid", nil, op.Input("update"))}
}
