package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
)

// TestMoveRings: the last positions of a ring come to their rows in one of another length. A state of another rank, a
// scalar one too, stays what it is.
func TestMoveRings(t *testing.T) {
	buffer := func(dims ...int) *ir.Buffer {
		b := &ir.Buffer{Type: ir.Type{DType: ir.F32}}
		for _, n := range dims {
			b.Type.Shape = append(b.Type.Shape, ir.Const(int64(n)))
		}
		return b
	}
	count := eval.Floats(ir.F32, []int{}, []float32{7})
	ring := eval.Floats(ir.F32, []int{1, 1, 3, 1}, []float32{3, 4, 2}) // positions 2 to 4
	moved := moveRings([]engine.State{{Tensor: count}, {Tensor: ring}}, []*ir.Buffer{buffer(), buffer(1, 1, 4, 1)}, 5)
	require.Same(t, count, moved[0].Tensor)
	require.Equal(t, []int{1, 1, 4, 1}, moved[1].Tensor.Shape)
	require.Equal(t, []float32{4, 0, 2, 3}, moved[1].Tensor.F)
	back := moveRings(moved, []*ir.Buffer{buffer(), buffer(1, 1, 3, 1)}, 5)
	require.Equal(t, ring.F, back[1].Tensor.F)
}
