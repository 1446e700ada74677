package engine

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// CheckStates checks that states fit buffers: the same names in the same order, the same dtypes and shapes.
func CheckStates(buffers []*ir.Buffer, states []State) error {
	if len(states) != len(buffers) {
		return fmt.Errorf("%d buffers in the snapshot, the program has %d", len(states), len(buffers))
	}
	for i, b := range buffers {
		dims, _ := b.Type.Static()
		shape := make([]int, len(dims))
		for j, d := range dims {
			shape[j] = int(d)
		}
		t := states[i].Tensor
		if states[i].Buffer != b.Name || t == nil || t.DType != b.Type.DType || !slices.Equal(t.Shape, shape) ||
			t.Len() != elements(shape) {
			return fmt.Errorf("buffer %d of the snapshot is not %q of type %s", i, b.Name, b.Type)
		}
	}
	return nil
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
