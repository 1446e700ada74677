package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestList: arguments by name stand in the order of the text; for what is absent stands what the text says, which is
// written only where both are.
func TestList(t *testing.T) {
	weight := func(at int) WeightArguments[int] { return WeightArguments[int]{at, at + 1, at + 2} }
	list, written := List(Launch{Kernel: "stream"}, MatVecArguments[int]{W: weight(1), X: 4, Extra: 5, Y: 6, Step: 7})
	require.Equal(t, []int{1, 2, 3, 4, 4, 4, 5, 6, 7}, list)
	require.Equal(t, []bool{7: true, 8: false}, written)
	list, written = List(Launch{Kernel: "matvec_many"}, MatVecManyArguments[int]{W0: weight(1), Y0: 4, W1: weight(5),
		Y1: 8, X: 9, Step: 10})
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 1, 2, 3, 4, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1, 10}, list)
	require.Equal(t, []bool{3: true, 7: true, 11: true, 15: true, 26: false}, written)
}

// TestListRefuses: what a kernel must have is given, and to that kernel.
func TestListRefuses(t *testing.T) {
	require.PanicsWithValue(t, "kernels: the kernel softmax lacks its argument y", func() {
		List(Launch{Kernel: "softmax"}, SoftmaxArguments[int]{X: 1, Step: 2})
	})
	require.PanicsWithValue(t, "kernels: arguments of [softmax] for the kernel reduce", func() {
		List(Launch{Kernel: "reduce"}, SoftmaxArguments[int]{X: 1, Y: 2, Step: 3})
	})
}
