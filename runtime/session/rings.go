package session

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// A snapshot has the buffers of the program as the file declares them, so that it fits every engine. An engine of long
// calls ([engine.LongCalls]) has more rows in its ring buffers [1, heads, rows, width]: position p lies in row p mod
// rows of either.

// moveRings returns the states for buffers whose rings have another number of rows, of a session that has seen so many
// positions. Rows of positions that the smaller ring no longer has are zeros: no window reaches them. States whose
// shape is that of the buffer are not copied.
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
