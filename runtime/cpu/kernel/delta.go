package kernel

import "fmt"

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

// DeltaRun is a run of tokens for one key head and rows of the states of value heads that read it. The vectors
// of a token follow those of the one before after a stride.
type DeltaRun struct {
	Tokens, Keys     int       // Keys is the width of q and k
	Q, K             []float32 // [Tokens, Keys]
	QStride, KStride int
	Heads            []DeltaHead
	VStride, YStride int
	DecayStride      int
	BetaStride       int
}

// DeltaHead is rows of the state of a value head, and what belongs to them.
type DeltaHead struct {
	Rows        int
	State       []float32 // [Rows, Keys]
	V, Y        []float32 // [Tokens, Rows]; Y is written
	Decay, Beta []float32 // [Tokens]
}

// DeltaRule is DeltaStep for every token of d in turn. For many tokens it goes in chunks, whose sums have another
// order: for |beta|·|k|² ≤ 2 and |decay| ≤ 1 both forms are within 1e-5 of the rule, as a part of the
// largest norm that the row of the state and its v had, and of the norm of q for y. Rows do not depend on which
// other rows are in the call. In chunks a NaN or infinity of a row may reach tokens of that row before it.
func DeltaRule(d *DeltaRun) {
	d.check()
	if InDeltaChunks(d.Tokens) {
		d.chunks()
	} else {
		d.steps()
	}
}

// InDeltaChunks says that DeltaRule goes in chunks for a number of tokens, at this level.
func InDeltaChunks(tokens int) bool { return tokens > active.deltaLimit }

// steps is DeltaRule token by token, for some rows that stay in the first cache.
func (d *DeltaRun) steps() {
	const block = 64
	for _, h := range d.Heads {
		for row := 0; row < h.Rows; row += block {
			end := min(row+block, h.Rows)
			for t := range d.Tokens {
				active.deltaRows(h.Y[t*d.YStride+row:][:end-row], h.State[row*d.Keys:end*d.Keys],
					d.Q[t*d.QStride:][:d.Keys], d.K[t*d.KStride:][:d.Keys],
					h.V[t*d.VStride+row:][:end-row], h.Decay[t*d.DecayStride], h.Beta[t*d.BetaStride])
			}
		}
	}
}

func (d *DeltaRun) check() {
	checkRows("DeltaRule", len(d.Q), d.QStride, d.Tokens, d.Keys)
	checkRows("DeltaRule", len(d.K), d.KStride, d.Tokens, d.Keys)
	for _, h := range d.Heads {
		if d.Tokens < 0 || d.Keys <= 0 || h.Rows < 0 || len(h.State) != h.Rows*d.Keys {
			panic(fmt.Sprintf("kernel: DeltaRule: %d tokens, %d rows of %d keys in a state of %d", d.Tokens,
				h.Rows, d.Keys, len(h.State)))
		}
		checkRows("DeltaRule", len(h.V), d.VStride, d.Tokens, h.Rows)
		checkRows("DeltaRule", len(h.Y), d.YStride, d.Tokens, h.Rows)
		checkRows("DeltaRule", len(h.Decay), d.DecayStride, d.Tokens, 1)
		checkRows("DeltaRule", len(h.Beta), d.BetaStride, d.Tokens, 1)
	}
}
