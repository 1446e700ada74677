package passes

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// folds runs an operation on a constant through the pass and tells whether it was computed.
func folds(t *testing.T, d ir.DType, value float32, op string, attrs any, operands ...any) (bool, *ir.Module) {
	t.Helper()
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: m.Entry.Body}
		x := eval.Floats(d, []int{1}, []float32{value})
		if !d.IsFloat() {
			x = eval.Ints(d, []int{1}, []int64{int64(value)})
		}
		c := m.NewConstant("c", ir.StaticType(d, 1), ir.Bytes(d, []int64{1}, x.Encode()))
		args := []any{c}
		for _, o := range operands {
			if o == "c" {
				o = c
			}
			args = append(args, o)
		}
		y := b.Value(op, attrs, args...)
		m.Entry.Body.Results, m.Entry.Outputs = []*ir.Value{y}, []ir.Type{y.Type}
	}))
	apply(t, "fold-constants", m, &Options{})
	return len(m.Entry.Body.Ops) == 0, m
}

// TestFoldIsExact: what is computed when the file is made is what every precision computes when it runs.
func TestFoldIsExact(t *testing.T) {
	for _, test := range []struct {
		dtype ir.DType
		value float32
		op    string
		attrs any
		more  []any
		folds bool
	}{
		{ir.F32, 1.001, "multiply", nil, []any{"c"}, true},
		{ir.BF16, 3, "multiply", nil, []any{"c"}, true},            // 9 is a bf16
		{ir.BF16, 1.0078125, "multiply", nil, []any{"c"}, false},   // its square is none
		{ir.F16, 1.0009765625, "multiply", nil, []any{"c"}, false}, // nor here
		{ir.BF16, 2.5, "add", nil, []any{"c"}, true},
		{ir.BF16, 3, "divide", nil, []any{"c"}, true},
		{ir.BF16, 3, "reciprocal", nil, nil, false},
		{ir.BF16, 4, "rsqrt", nil, nil, true},
		{ir.BF16, 1, "exp", nil, nil, false},
		{ir.F32, 1, "exp", nil, nil, true},
		{ir.F32, 1.001, "astype", &ir.DTypeAttrs{ScalarType: ir.BF16}, nil, false},
		{ir.F32, 1.5, "astype", &ir.DTypeAttrs{ScalarType: ir.BF16}, nil, true},
		{ir.BF16, 1.5, "astype", &ir.DTypeAttrs{ScalarType: ir.F32}, nil, true},
		{ir.I64, 1 << 20, "multiply", nil, []any{"c"}, true},
		{ir.I32, 1 << 20, "multiply", nil, []any{"c"}, true}, // wraps in every precision
		{ir.F32, float32(math.NaN()), "neg", nil, nil, true},
		{ir.F32, 0, "divide", nil, []any{"c"}, true}, // NaN
		{ir.F32, float32(math.Copysign(0, -1)), "abs", nil, nil, true},
		{ir.F32, 1, "sum", &ir.ReduceAttrs{}, nil, true},
		{ir.F32, 1, "broadcast_to", nil, []any{[]int64{1 << 15}}, false}, // 128 KiB
		{ir.F32, 1, "broadcast_to", nil, []any{[]int64{1 << 14}}, true},  // 64 KiB
		{ir.F32, 1, "transpose", &ir.TransposeAttrs{Perm: []int{0}}, nil, false},
	} {
		name := fmt.Sprintf("%s of %s %v", test.op, test.dtype, test.value)
		did, m := folds(t, test.dtype, test.value, test.op, test.attrs, test.more...)
		require.Equal(t, test.folds, did, name)
		if !did {
			require.Len(t, m.Constants, 1, name)
			continue
		}
		require.Equal(t, "c."+test.op, m.Constants[1].Name)
		// Every precision reads the same from the constant as the operation gives.
		for _, p := range precisions {
			_, before := folds(t, test.dtype, test.value, "id_copy", nil)
			require.NotNil(t, before)
			folded := evaluate(t, m, p, 1)[0].Tensor
			require.Equal(t, evaluate(t, m, eval.FP32, 1)[0].Tensor.Encode(), folded.Encode(), name)
		}
	}
}

// TestFoldReadsOnlySmallConstants: a weight is never read, whatever is computed of it.
func TestFoldReadsOnlySmallConstants(t *testing.T) {
	m := parse(t, `module {
  constant @large : f32[16385]
  entry forward() {
    %0 = sum(x=@large) {axes=[0]} : f32[]
    return %0: f32[]
  }
}
`)
	w := newWeights(ir.F32, 1, 16385)
	w.shape = []int64{16385}
	m.Constants[0].Data = w
	before := m.String()
	apply(t, "fold-constants", m, &Options{})
	require.Equal(t, before, m.String())
	require.Zero(t, w.reads)
}

// TestFoldErrors: bytes that cannot be read, and an operation that its arguments make fail.
func TestFoldErrors(t *testing.T) {
	m := parse(t, `module {
  constant @x : f32[3]
  constant @at : i64[1]
  entry forward() {
    %0 = take(x=@x, index=@at) : f32[1]
    return %0: f32[1]
  }
}
`)
	m.Constants[1].Data = ir.Bytes(ir.I64, []int64{1}, []byte{200, 0, 0, 0, 0, 0, 0, 0})
	require.ErrorContains(t, foldConstants(m, &Options{}), "take: ")
	w := newWeights(ir.F32, 1, 3)
	w.shape, w.bytes = []int64{3}, w.bytes[:7]
	m.Constants[0].Data = w
	require.ErrorContains(t, foldConstants(m, &Options{}), "read 7 of 12 bytes")
}

// TestFoldedNames: names of folded constants are new.
func TestFoldedNames(t *testing.T) {
	m := parse(t, `module {
  constant @c : f32[]
  constant @c.neg : f32[]
  entry forward(%x: f32[]) {
    %0 = neg(x=@c) : f32[]
    %1 = add(a=%0, b=@c.neg) : f32[]
    %2 = neg(x=@c) : f32[]
    %3 = add(a=%x, b=%1) : f32[]
    %4 = add(a=%3, b=%2) : f32[]
    return %4: f32[]
  }
}
`)
	before := parse(t, m.String())
	apply(t, "fold-constants", m, &Options{})
	var names []string
	for _, c := range m.Constants {
		names = append(names, c.Name)
	}
	require.Equal(t, []string{"c", "c.neg", "c.neg.2", "c.neg.2.add", "c.neg.3"}, names)
	requireSameValues(t, evaluate(t, before, eval.FP32, 1), evaluate(t, m, eval.FP32, 1), "")
}
