package kernel

// DeltaStep is one step of the gated delta rule (Yang et al., Gated Delta Networks, 2025) for rows of the
// state of one head:
//
//	S ← decay·S;  S ← S + beta·(v − S·k)·kᵀ;  y = S·q
//
// with state S [len(v), len(k)], q and k of equal length and y as long as v. Rows do not depend on each
// other, so that a head can be divided. The state is read and written once.
func DeltaStep(y, state, q, k, v []float32, decay, beta float32) {
	same("DeltaStep", len(y), len(v))
	same("DeltaStep", len(q), len(k))
	same("DeltaStep", len(state), len(v)*len(k))
	active.deltaRows(y, state, q, k, v, decay, beta)
}
