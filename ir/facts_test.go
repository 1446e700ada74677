package ir

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The columns of a row agree with one another; ir/eval tests them against the reference kernels.
func TestFactsAgree(t *testing.T) {
	for i := range Ops {
		d := &Ops[i]
		t.Run(d.Name, func(t *testing.T) {
			require.Equal(t, d.Effect == Reads || d.Effect == Writes, d.State != NoState,
				"an op with a buffer says what it does to it")
			require.Equal(t, d.Effect == Reads, d.State == ReadsState)
			require.Equal(t, d.Effect == Control, d.Regions > 0)
			if d.Rows != NoRows || d.IsView() {
				require.Equal(t, Pure, d.Effect)
			}
			if d.IsView() {
				require.Equal(t, 1, d.Results)
				require.Equal(t, "x", d.Operands[0].Name, "views are of their operand x")
			}
			if d.View == CopyView || d.View == CastView {
				require.True(t, d.IsElementwise())
			}
			require.Equal(t, d.View == ReshapeView, d.Rows == RegroupedRows)
			if d.Rows == QueryRows {
				require.True(t, slices.ContainsFunc(d.Operands,
					func(o Operand) bool { return o.Name == "position" && o.Kind == IntOperand }))
			}
		})
	}
}

// Rows along symbolic axes: which operands have them, and along which axes.
func TestRowsOf(t *testing.T) {
	for _, test := range []struct {
		name     string
		attrs    any
		operands []any
		axis     int
		want     []RowOperand // nil where rows are not independent
	}{
		{"add", nil, []any{"f32[1,T,8]", "f32[T,8]"}, 1, []RowOperand{{0, 0, 1}, {1, 0, 0}}},
		{"add", nil, []any{"f32[1,T,8]", "f32[1,8]"}, 1, []RowOperand{{0, 0, 1}}},
		{"add", nil, []any{"f32[1,T,8]", "f32[1,8]"}, 3, nil},
		{"rms_norm", &NormAttrs{}, []any{"f32[1,T,8]", "f32[8]"}, 1, []RowOperand{{0, 0, 1}}},
		{"rms_norm", &NormAttrs{}, []any{"f32[1,T,8]", "f32[8]"}, 2, nil},
		{"addmm", nil, []any{"f32[T,8]", "f32[8,4]", "f32[T,4]"}, 0, []RowOperand{{0, 0, 0}, {2, 0, 0}}},
		{"addmm", nil, []any{"f32[T,8]", "f32[8]"}, 0, nil},
		{"addmm", nil, []any{"f32[2,T,8]", "f32[2,8,4]"}, 1, nil},
		{"linears", nil, []any{"f32[1,T,8]", []string{"f32[4,8]", "f32[6,8]"}}, 1, []RowOperand{{0, 0, 1}}},
		{"softmax", &SoftmaxAttrs{Axis: -1}, []any{"f32[T,8]"}, 0, []RowOperand{{0, 0, 0}}},
		{"softmax", &SoftmaxAttrs{Axis: -1}, []any{"f32[8,T]"}, 1, nil},
		{"slice", nil, []any{"f32[T,8]", 1, 2, 4}, 0, []RowOperand{{0, 0, 0}}},
		{"slice", nil, []any{"f32[T,8]", 1, 2, 4}, 1, nil},
		{"transpose", &TransposeAttrs{Perm: []int{0, -1, 1}}, []any{"f32[1,T,8]"}, 2, []RowOperand{{0, 0, 1}}},
		{"reshape", nil, []any{"f32[1,T,8]", []any{1, -1, 2, 4}}, 1, []RowOperand{{0, 0, 1}}},
		{"reshape", nil, []any{"f32[1,T,8]", []any{1, -1, 2, 4}}, 3, nil},
		{"embedding", nil, []any{"i64[1,T]", "f32[100,8]"}, 1, []RowOperand{{0, 0, 1}}},
		{"embedding", nil, []any{"i64[1,T]", "f32[100,8]"}, 2, nil},
		{"cumsum", &CumsumAttrs{Axis: 1, Inclusive: true}, []any{"f32[T,8]"}, 0, []RowOperand{{0, 0, 0}}},
		{"sum", &ReduceAttrs{Axes: []int{1}}, []any{"f32[T,8]"}, 0, nil}, // nothing is said of it
	} {
		op, err := newTestTypes().apply(nil, test.name, test.attrs, test.operands...)
		require.NoError(t, err)
		rows := RowsOf(op, test.axis)
		if test.want == nil {
			require.Nil(t, rows, "%s%v axis %d", test.name, test.operands, test.axis)
			continue
		}
		require.NotNil(t, rows, "%s%v axis %d", test.name, test.operands, test.axis)
		require.Equal(t, test.want, rows.Operands, "%s%v axis %d", test.name, test.operands, test.axis)
	}
}

// An operation carries rows where only its row operands would get or lose an axis.
func TestCarriesRows(t *testing.T) {
	for _, test := range []struct {
		name     string
		attrs    any
		operands []any
		count    int // of operands with rows; 0 where it does not carry them
	}{
		{"tanh", nil, []any{"f32[1,T,8]"}, 1},
		{"add", nil, []any{"f32[8]", "f32[1,T,8]"}, 1},
		{"add", nil, []any{"f32[1,T,8]", "f32[1,T,8]"}, 2},
		{"add", nil, []any{"f32[1,T,8]", "f32[1,8]"}, 0}, // would stand beside another axis
		{"add", nil, []any{"f32[8]", "f32[8]"}, 0},
		{"linear", nil, []any{"f32[1,T,8]", "f32[4,8]", "f32[4]"}, 1},
		{"addmm", nil, []any{"f32[1,T,8]", "f32[8,4]", "f32[1,4]"}, 0},
		{"softmax", &SoftmaxAttrs{Axis: 2}, []any{"f32[1,T,8]"}, 0}, // names its axis by number
	} {
		op, err := newTestTypes().apply(nil, test.name, test.attrs, test.operands...)
		require.NoError(t, err)
		count, ok := CarriesRows(op, func(v *Value) bool { return v.Type.Rank() == 3 })
		require.Equal(t, test.count > 0, ok, "%s%v", test.name, test.operands)
		if ok {
			require.Equal(t, test.count, count, "%s%v", test.name, test.operands)
		}
	}
}
