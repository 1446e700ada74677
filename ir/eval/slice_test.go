package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// The bounds follow NumPy: the indices of the slice of 0 … 4.
func TestSlice(t *testing.T) {
	x := iota32(2, 5, 2)
	for _, k := range []struct {
		start, stop, step int
		want              []int
	}{
		{0, math.MaxInt, 1, []int{0, 1, 2, 3, 4}}, {1, 3, 1, []int{1, 2}}, {-2, 5, 1, []int{3, 4}},
		{0, -1, 2, []int{0, 2}},
		{-9, 2, 1, []int{0, 1}}, {3, 1, 1, []int{}}, {7, 9, 1, []int{}}, {4, -6, -1, []int{4, 3, 2, 1, 0}},
		{-1, -4, -2, []int{4, 2}},
		{9, 0, -1, []int{4, 3, 2, 1}}, {-9, 0, -1, []int{}}, {2, 4, -1, []int{}}, {4, math.MinInt, -3, []int{4, 1}},
		{0, 5, math.MaxInt32, []int{0}},
		{0, math.MinInt, math.MinInt32, []int{0}},
	} {
		got := must(t, "slice", &ir.StepAttrs{Step: k.step}, x, 1, k.start, k.stop)
		require.Equal(t, []int{2, len(k.want), 2}, got.Shape, "%+v", k)
		walkIndices(got.Shape, func(n int, index []int) {
			require.Equal(t, at(x, []int{index[0], k.want[index[1]], index[2]}), got.F[n], "%+v", k)
		})
	}
	refuses(t, "step", "slice", &ir.StepAttrs{Step: 0}, x, 0, 0, 1)
	refuses(t, "axis 3", "slice", &ir.StepAttrs{Step: 1}, x, 3, 0, 1)
}

func TestSliceUpdate(t *testing.T) {
	for _, k := range []struct {
		name              string
		update            *Tensor
		start, stop, step int
		want              []int64
	}{
		{"rows", Ints(ir.I32, []int{2, 2}, []int64{1, 2, 3, 4}), 1, 3, 1, []int64{0, 0, 1, 2, 3, 4, 0, 0}},
		{"one row for all", list(ir.I32, 5, 6), 0, math.MaxInt, 1, []int64{5, 6, 5, 6, 5, 6, 5, 6}},
		{"cast to the destination", f32([]int{1, 1}, 2.9), -1, 4, 1, []int64{0, 0, 0, 0, 0, 0, 2, 2}},
		{"step", list(ir.I32, 7, 8), 0, 4, 3, []int64{7, 8, 0, 0, 0, 0, 7, 8}},
		{"empty", Ints(ir.I32, []int{3, 2}, make([]int64, 6)), 4, 9, 1, make([]int64, 8)},
		{"stop before start, one row", list(ir.I32, 1, 2), 3, 1, 1, make([]int64, 8)},
	} {
		dst, _ := NewTensor(ir.I32, 4, 2)
		got := must(t, "slice_update", &ir.StepAttrs{Step: k.step}, dst, k.update, 0,
			register32(clampInt32(int64(k.start))), register32(clampInt32(int64(k.stop))))
		require.Equal(t, Ints(ir.I32, []int{4, 2}, k.want), got, k.name)
		require.Equal(t, make([]int64, 8), dst.I, "the argument is left alone")
	}
	dst := iota32(4, 2)
	refuses(t, "step", "slice_update", &ir.StepAttrs{Step: 0}, dst, dst, 0, 0, 4)
	refuses(t, "[3, 4) of axis 0", "slice_update", nil, dst, iota32(2, 2), 0, register32(3), register32(5))
	refuses(t, "", "slice_update", nil, dst, iota32(2, 2), 0, register32(3), register32(1))
}

// An in-place update rounds to the buffer's dtype where the machine asks for it, in Mixed.
func TestUpdatesRoundAsTold(t *testing.T) {
	for _, op := range []string{"slice_update", "index_copy"} {
		for p, want := range map[Precision]float32{FP32: 1.001, Strict: 1} {
			dst := Floats(ir.BF16, []int{2, 1}, []float32{0, 0})
			def := ir.LookupOp(op)
			c := &Call{Op: &ir.Op{Def: def, Attrs: def.NewAttrs()}, Precision: Mixed}
			update := Value{Tensor: Floats(ir.BF16, []int{1, 1}, []float32{1.001})}
			if op == "slice_update" {
				c.Args = [][]Value{nil, {update}, {{Int: 0}}, {{Int: 1}}, {{Int: 2}}}
				require.NoError(t, updateSlice(dst, c, p))
			} else {
				c.Args = [][]Value{nil, {update}, {{Tensor: list(ir.I64, -1)}}}
				require.NoError(t, updateIndices(dst, c, p))
			}
			require.Equal(t, []float32{0, want}, dst.F)
		}
	}
}
