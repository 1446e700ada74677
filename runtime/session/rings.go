package session

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// A snapshot has the buffers of the program with the shapes that the file declares, so that every engine can restore
// it. An engine of long calls ([engine.LongCalls]) has more rows in its ring buffers [1, heads, rows, width]. In both,
// position p lies in row p mod rows.

// moveRings returns states in the shapes of buffers, whose rings may have another number of rows. positions is how many
// the session has seen. Positions that the smaller one of two rings does not hold become zeros: no window reaches them.
// States that have the shape already are not copied.
func moveRings(states []engine.State, buffers []*ir.Buffer, positions int) []engine.State {
	out := slices.Clone(states)
	for i, b := range buffers {
		if b.Type.Rank() != 4 {
			continue
		}
		rows, _ := b.Type.Shape[2].Const()
		if t := states[i].Tensor; t.Shape[2] != int(rows) {
			out[i].Tensor = moveRing(t, int(rows), positions)
		}
	}
	return out
}

// moveRing copies a ring [1, heads, R, width] to one of rows rows.
func moveRing(t *eval.Tensor, rows, positions int) *eval.Tensor {
	old, width := t.Shape[2], t.Shape[3]
	shape := slices.Clone(t.Shape)
	shape[2] = rows
	out := &eval.Tensor{DType: t.DType, Shape: shape, F: make([]float32, t.Len()/old*rows)}
	for head := range t.Shape[0] * t.Shape[1] {
		for p := max(0, positions-min(old, rows)); p < positions; p++ {
			from, to := (head*old+p%old)*width, (head*rows+p%rows)*width
			copy(out.F[to:to+width], t.F[from:from+width])
		}
	}
	return out
}
