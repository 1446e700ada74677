package ir

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestInferIndex(t *testing.T) { runInferCases(t, indexCases()) }

func indexCases() []inferCase {
	const end = math.MaxInt
	gather := func(axes, sizes []int) *GatherAttrs { return &GatherAttrs{Axes: axes, SliceSizes: sizes} }
	return []inferCase{
		{op: "take", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T,8]", -1}, want: "f32[2,8]"},
		{op: "take", attrs: &AxisAttrs{-3}, operands: []any{"f32[2,T,8]", "int(P)"}, want: "f32[T,8]"},
		{op: "take", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T,8]", "i64[3,4]"}, want: "f32[2,3,4,8]"},
		{op: "take", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T,8]", "u32[]"}, want: "f32[2,8]"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[2]", 2}, err: "index 2 is out of range for a dim of 2"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[2]", -3}, err: "index -3 is out of range"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[T]", "int(T+1)"},
			err: "index T+1 is out of range for a dim of T"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[T]", "int(T-1)"}, want: "f32[]"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[2]", "f32[1]"},
			err: "index must be integers, found f32"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[2]", "bool[1]"},
			err: "index must be integers, found bool"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[]", 0}, err: "axis 0 is out of range for 0 dims"},
		{op: "take", attrs: &AxisAttrs{0}, operands: []any{"f32[2]", 0.5}, err: "the literal 0.5, want"},

		{op: "take_along_axis", attrs: &AxisAttrs{-1}, operands: []any{"f32[2,T,8]", "i32[2,T,3]"}, want: "f32[2,T,3]"},
		{op: "take_along_axis", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T,8]", "i32[1,S,1]"}, want: "f32[2,S,8]"},
		{op: "take_along_axis", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T,8]", "i32[2,5,7]"},
			err: "x f32[2,T,8] and indices i32[2,5,7] beside axis 1"},
		{op: "take_along_axis", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T,8]", "i32[2,5]"},
			err: "indices must have as many dims as x"},
		{op: "take_along_axis", attrs: &AxisAttrs{1}, operands: []any{"f32[2,T]", "f32[2,5]"},
			err: "indices must be integers"},
		{op: "take_along_axis", attrs: &AxisAttrs{2}, operands: []any{"f32[2,T]", "i32[2,5]"},
			err: "axis 2 is out of range"},

		{op: "gather", attrs: gather([]int{0}, []int{1, 8}), operands: []any{"f32[T,8]", []string{"i32[3,4]"}},
			want: "f32[3,4,1,8]"},
		{op: "gather", attrs: gather([]int{1, 0}, []int{1, 2}),
			operands: []any{"f32[T,8]", []string{"i32[3,1]", "u8[4]"}}, want: "f32[3,4,1,2]"},
		{op: "gather", attrs: gather([]int{0}, []int{1}), operands: []any{"f32[T,8]", []string{"i32[3]"}},
			err: "slice_sizes [1] must have a size for each dim of f32[T,8]"},
		{op: "gather", attrs: gather([]int{0, 1}, []int{1, 1}), operands: []any{"f32[T,8]", []string{"i32[3]"}},
			err: "expected an index tensor for each of the axes [0 1], found 1"},
		{op: "gather", attrs: gather([]int{0, 0}, []int{1, 1}), operands: []any{"f32[T,8]", []string{"i32[]", "i32[]"}},
			err: "axes [0 0] list axis 0 twice"},
		{op: "gather", attrs: gather([]int{-1}, []int{1, 1}), operands: []any{"f32[T,8]", []string{"i32[]"}},
			err: "axis -1 is out of range for 2 dims"},
		{op: "gather", attrs: gather([]int{1}, []int{1, 9}), operands: []any{"f32[T,8]", []string{"i32[]"}},
			err: "slice_sizes [1 9]: 9 is larger than dim 1 of f32[T,8]"},
		{op: "gather", attrs: gather([]int{1}, []int{1, 0}), operands: []any{"f32[T,8]", []string{"i32[]"}},
			err: "slice_sizes: shape [1,0]: dim 0 must be positive"},
		{op: "gather", attrs: gather([]int{1}, []int{1, 1}), operands: []any{"f32[T,8]", []string{"bool[]"}},
			err: "indices 0 must be integers"},
		{op: "gather", attrs: gather([]int{0, 1}, []int{1, 1}),
			operands: []any{"f32[T,8]", []string{"i32[2]", "i32[3]"}},
			err:      "indices: shapes [2] and [3] do not broadcast"},

		{op: "scatter_add", attrs: &AxisAttrs{0}, operands: []any{"bf16[9,8]", "i32[T,8]", "f32[T,8]"},
			want: "bf16[9,8]"},
		{op: "scatter_add", attrs: &AxisAttrs{-1}, operands: []any{"bf16[9,1]", "i32[1,8]", "f32[1,1,1,8]"},
			want: "bf16[9,1]"},
		{op: "scatter_add", attrs: &AxisAttrs{1}, operands: []any{"bf16[1,5]", "i32[4,8]", "f32[8]"},
			want: "bf16[4,5]"},
		{op: "scatter_add", attrs: &AxisAttrs{0}, operands: []any{"bf16[9,8]", "i32[T]", "f32[T]"},
			err: "indices must have as many dims as x"},
		{op: "scatter_add", attrs: &AxisAttrs{0}, operands: []any{"bf16[9,8]", "i32[3,8]", "f32[4,8]"},
			err: "indices and updates: shapes [3,8] and [4,8] do not broadcast"},
		{op: "scatter_add", attrs: &AxisAttrs{0}, operands: []any{"bf16[9,8]", "i32[3,7]", "f32[3,7]"},
			err: "beside axis 0"},
		{op: "scatter_add", attrs: &AxisAttrs{0}, operands: []any{"bf16[9,8]", "i32[3,8]", "f32[2,3,8]"},
			err: "dims before the last 2 must be 1"},
		{op: "scatter_add", attrs: &AxisAttrs{2}, operands: []any{"bf16[9,8]", "i32[3,8]", "f32[3,8]"},
			err: "axis 2 is out of range"},
		{op: "scatter_add", attrs: &AxisAttrs{0}, operands: []any{"bf16[9,8]", "f32[3,8]", "f32[3,8]"},
			err: "indices must be integers"},

		{op: "slice", operands: []any{"f32[2,T]", 1, 0, end}, want: "f32[2,T]"},
		{op: "slice", operands: []any{"f32[2,T]", -1, 1, end}, want: "f32[2,T-1]"},
		{op: "slice", operands: []any{"f32[2,S]", -1, 1, end}, want: "f32[2,max(0,S-min(1,S))]"}, // S may be 0
		{op: "slice", operands: []any{"f32[2,T+3]", 1, -3, end}, want: "f32[2,3]"},
		{op: "slice", operands: []any{"f32[2,T+3]", 1, 0, -3}, want: "f32[2,T]"},
		{op: "slice", operands: []any{"f32[2,T]", 1, -1, end}, want: "f32[2,1]"},
		{op: "slice", operands: []any{"f32[4096]", 0, 0, "int(S)"}, want: "f32[S]"},
		{op: "slice", operands: []any{"f32[4096]", 0, 0, "int(P)"}, want: "f32[min(4096,max(0,wrap(P,4096)))]"},
		{op: "slice", attrs: &StepAttrs{2}, operands: []any{"f32[7]", 0, 1, 6}, want: "f32[3]"},
		// the exporter's top-k
		{op: "slice", attrs: &StepAttrs{-1}, operands: []any{"f32[T+8]", 0, -1, -9}, want: "f32[8]"},
		{op: "slice", attrs: &StepAttrs{-2}, operands: []any{"f32[7]", 0, end, math.MinInt}, want: "f32[4]"},
		{op: "slice", attrs: &StepAttrs{-1}, operands: []any{"f32[T]", 0, end, -1 << 31}, want: "f32[T]"},
		{op: "slice", operands: []any{"f32[7]", 0, 5, 2}, want: "f32[0]"},
		{op: "slice", attrs: &StepAttrs{0}, operands: []any{"f32[7]", 0, 5, 2},
			err: "step must be a 32-bit number other than 0, found 0"},
		{op: "slice", operands: []any{"f32[7]", 1, 5, 2}, err: "axis 1 is out of range for 1 dims"},
		{op: "slice", operands: []any{"f32[7]", end, 5, 2}, err: "axis 2147483647 is out of range"},
		{op: "slice", operands: []any{"f32[7]", "int(T)", 5, 2},
			err: "axis must be known before the program runs, found T"},
		{op: "slice", operands: []any{"f32[7]", "int(T-T)", 5, 6}, want: "f32[1]"},

		{op: "slice_update", operands: []any{"bf16[1,8,4096,64]", "f32[1,8,T,64]", 2, "int(P)", "int(P+T)"},
			want: "bf16[1,8,4096,64]"},
		{op: "slice_update", operands: []any{"bf16[4,8]", "f32[1]", 0, 1, 3}, want: "bf16[4,8]"},
		// nothing is written
		{op: "slice_update", operands: []any{"bf16[4,8]", "f32[7,7,7]", 0, 3, 3}, want: "bf16[4,8]"},
		{op: "slice_update", attrs: &StepAttrs{2}, operands: []any{"bf16[5]", "f32[3]", 0, 0, end}, want: "bf16[5]"},
		{op: "slice_update", operands: []any{"bf16[4,8]", "f32[3,8]", 0, 2, 5},
			err: "axis 0, 2:5:1 of bf16[4,8]: update of shape [3,8] does not broadcast to [2,8]"},
		{op: "slice_update", operands: []any{"bf16[4,8]", "f32[1,1,8]", 0, 2, 5}, err: "does not broadcast"},
		{op: "slice_update", attrs: &StepAttrs{-1}, operands: []any{"bf16[4,8]", "f32[1,8]", 0, 2, 5},
			err: "step must be at least 1, found -1"},
		{op: "slice_update", operands: []any{"bf16[4,8]", "f32[1,8]", 2, 2, 5}, err: "axis 2 is out of range"},

		{op: "index_copy", attrs: &AxisAttrs{-2}, operands: []any{"bf16[1,9,8]", "f32[1,T,8]", "i64[T]"},
			want: "bf16[1,9,8]"},
		{op: "index_copy", attrs: &AxisAttrs{1}, operands: []any{"bf16[2,9,8]", "f32[1,T,8]", "i64[T]"},
			want: "bf16[2,9,8]"},
		{op: "index_copy", attrs: &AxisAttrs{1}, operands: []any{"bf16[1,9,8]", "f32[1,T,8]", "i32[T]"},
			err: "indices must be i64 with one dim, found i32[T]"},
		{op: "index_copy", attrs: &AxisAttrs{1}, operands: []any{"bf16[1,9,8]", "f32[1,T,8]", "i64[1,T]"},
			err: "indices must be i64 with one dim"},
		{op: "index_copy", attrs: &AxisAttrs{1}, operands: []any{"bf16[1,9,8]", "f32[T,8]", "i64[T]"},
			err: "update must have as many dims as the destination"},
		{op: "index_copy", attrs: &AxisAttrs{1}, operands: []any{"bf16[1,9,8]", "f32[1,3,8]", "i64[4]"},
			err: "dim 1 of update f32[1,3,8] and the number of indices: 3 and 4 must be equal"},
		{op: "index_copy", attrs: &AxisAttrs{1}, operands: []any{"bf16[1,9,8]", "f32[1,3,7]", "i64[3]"},
			err: "update of shape [1,3,7] does not broadcast to [1,3,8]"},
		{op: "index_copy", attrs: &AxisAttrs{3}, operands: []any{"bf16[1,9,8]", "f32[1,3,7]", "i64[3]"},
			err: "axis 3 is out of range"},
	}
}

// pythonSlice counts the indices of start:stop:step of n elements as Python's slice.indices does.
func pythonSlice(n, start, stop, step int64) int64 {
	limit := func(i int64) int64 {
		if i < 0 {
			i += n
		}
		if step > 0 {
			return min(max(i, 0), n)
		}
		return min(max(i, -1), n-1)
	}
	var count int64
	for i := limit(start); step > 0 && i < limit(stop) || step < 0 && i > limit(stop); i += step {
		count++
	}
	return count
}

// TestSliceLength compares with Python for constants, and the symbolic length, evaluated, with both.
func TestSliceLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.OneOf(rapid.Int64Range(-12, 12),
			rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, math.MaxInt32, math.MinInt32, 1 << 40}))
		n := rapid.Int64Range(0, 9).Draw(t, "n")
		start, stop := end.Draw(t, "start"), end.Draw(t, "stop")
		step := rapid.SampledFrom([]int64{1, 2, 3, -1, -2, -5}).Draw(t, "step")
		want := pythonSlice(n, start, stop, step)
		got, ok := sliceLength(Const(n), Const(start), Const(stop), step).Const()
		require.True(t, ok)
		require.Equal(t, want, got)

		symbols := map[*Symbol]int64{}
		symbol := func(v, lo, hi int64) *Expr {
			s := &Symbol{Lo: lo, Hi: hi}
			symbols[s] = v
			return Sym(s)
		}
		value := func(s *Symbol) (int64, bool) { v, ok := symbols[s]; return v, ok }
		from, to := Const(start), Const(stop)
		if start == int64(int32(start)) && rapid.Bool().Draw(t, "start is a register") {
			from = symbol(start, math.MinInt32, math.MaxInt32)
		}
		if stop == int64(int32(stop)) && rapid.Bool().Draw(t, "stop is a register") {
			to = symbol(stop, math.MinInt32, math.MaxInt32)
		}
		e := sliceLength(symbol(n, 0, 9), from, to, step)
		got, err := e.Eval(value)
		require.NoError(t, err)
		require.Equal(t, want, got, e)
		lo, hi := e.Bounds()
		require.True(t, 0 <= lo && lo <= got && got <= hi, "%s: %d in [%d,%d]", e, got, lo, hi)
	})
}
