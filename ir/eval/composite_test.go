package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// quantize makes a weight of 4-bit codes with scales and biases that differ from group to group.
func quantize(group int, dims ...int) *Quantized {
	n, _ := elements(dims)
	last := len(dims) - 1
	codes := make([]int, n)
	for i := range codes {
		codes[i] = (i*5 + i/7) % 16
	}
	packed, groups := append([]int{}, dims...), append([]int{}, dims...)
	packed[last], groups[last] = dims[last]/8, dims[last]/group
	scales, biases := floats(groups...), floats(groups...)
	for i := range biases.F {
		biases.F[i] = round(ir.BF16, biases.F[len(biases.F)-1-i]*3)
	}
	scales.DType, biases.DType = ir.BF16, ir.BF16
	return &Quantized{Ints(ir.U32, packed, packBits(codes, 4)), scales, biases, scales.DType,
		ir.WeightForm{Bits: 4, Group: group}}
}

func dequantized(t *testing.T, q *Quantized, p Precision) *Tensor {
	t.Helper()
	attrs := &ir.DequantizeAttrs{GroupSize: q.Group, Bits: q.Bits, Mode: "affine"}
	return run(t, "dequantize", attrs, p, q.Packed, q.Scales, q.Biases)[0]
}

func TestLinear(t *testing.T) {
	x, q, bias := floats(2, 3, 64), quantize(32, 5, 64), floats(5)
	w := dequantized(t, q, FP32)
	got := run(t, "linear", nil, FP32, x, q, bias)[0]
	require.Equal(t, run(t, "linear", nil, FP32, x, w, bias)[0], got)
	product := run(t, "quantized_matmul", &ir.QuantizedMatmulAttrs{GroupSize: 32, Bits: 4, Mode: "affine",
		Transpose: true}, FP32, x, q.Packed, q.Scales, q.Biases)[0]
	require.Equal(t, run(t, "add", nil, FP32, product, bias)[0], got)
	// Under Strict the parts round like the operations they are written as.
	x.DType, bias.DType = ir.BF16, ir.BF16
	product = run(t, "quantized_matmul", &ir.QuantizedMatmulAttrs{GroupSize: 32, Bits: 4, Mode: "affine",
		Transpose: true}, Strict, x, q.Packed, q.Scales, q.Biases)[0]
	require.Equal(t, run(t, "add", nil, Strict, product, bias)[0], run(t, "linear", nil, Strict, x, q, bias)[0])
	dense := Floats(ir.BF16, w.Shape, w.F)
	transposed := run(t, "transpose", &ir.TransposeAttrs{Perm: []int{1, 0}}, Strict, dense)[0]
	require.Equal(t, run(t, "addmm", nil, Strict, x, transposed, bias)[0],
		run(t, "linear", nil, Strict, x, dense, bias)[0])
	requireError(t, "64", "linear", nil, floats(2, 63), q)
	requireError(t, "dim", "linear", nil, floats(2, 64), quantize(32, 2, 5, 64))
}

func TestEmbedding(t *testing.T) {
	q, w := quantize(32, 7, 64), floats(7, 64)
	indices := Ints(ir.I64, []int{2, 2}, []int64{3, 0, -1, 6})
	for _, p := range []Precision{FP32, Strict} {
		all := dequantized(t, q, p)
		got := run(t, "embedding", nil, p, indices, q)[0]
		require.Equal(t, run(t, "take", &ir.AxisAttrs{}, p, all, indices)[0], got)
		require.Equal(t, run(t, "take", &ir.AxisAttrs{}, p, w, indices)[0], run(t, "embedding", nil, p, indices, w)[0])
	}
	for _, bad := range []int64{7, -8, math.MaxInt64, math.MinInt64} {
		requireError(t, "7 rows", "embedding", nil, Ints(ir.I64, []int{1}, []int64{bad}), w)
	}
}

// TestTopKIsPartitionAndSort: values and chosen elements are those of the sorts that the exporter writes
// for top_k; equal elements may change places.
func TestTopKIsPartitionAndSort(t *testing.T) {
	nan := float32(math.NaN())
	for _, x := range []*Tensor{
		floats(3, 40),
		Floats(ir.F32, []int{2, 6}, []float32{1, 2, 2, 1, 2, 0, nan, 1, nan, -1, 5, 5}),
		Floats(ir.BF16, []int{6}, []float32{0, float32(math.Copysign(0, -1)), 0, -1, -2, -3}),
		Ints(ir.I32, []int{5}, []int64{3, -1, 3, 7, 7}),
	} {
		const k = 4
		axis := &ir.AxisAttrs{Axis: -1}
		last := func(x *Tensor, start, stop, step int) *Tensor {
			return run(t, "slice", &ir.StepAttrs{Step: step}, FP32, x, -1, start, stop)[0]
		}
		values := last(run(t, "partition", axis, FP32, x, -k)[0], -k, math.MaxInt, 1)
		values = last(run(t, "sort", axis, FP32, values)[0], -1, -k-1, -1)
		indices := last(run(t, "argpartition", axis, FP32, x, -k)[0], -k, math.MaxInt, 1)
		chosen := run(t, "take_along_axis", axis, FP32, x, indices)[0]
		order := last(run(t, "argsort", axis, FP32, chosen)[0], -1, -k-1, -1)
		indices = run(t, "take_along_axis", axis, FP32, indices, order)[0]
		got := run(t, "top_k", &ir.TopKAttrs{K: k}, FP32, x)
		requireWithin(t, values, got[0], 0)
		require.Equal(t, indices.Shape, got[1].Shape)
		for r := range indices.Len() / k {
			require.ElementsMatch(t, indices.I[r*k:(r+1)*k], got[1].I[r*k:(r+1)*k])
		}
		require.Equal(t, got[0].Encode(), run(t, "take_along_axis", axis, FP32, x, got[1])[0].Encode())
	}
	requireError(t, "found 0", "top_k", &ir.TopKAttrs{K: 0}, floats(3))
	requireError(t, "found 4", "top_k", &ir.TopKAttrs{K: 4}, floats(3))
}

// mixture is the mixture of experts as the operations that it is decomposed into.
func mixture(t *testing.T, name string, p Precision, x *Tensor, gate, up, down any, indices, scores *Tensor) *Tensor {
	batch, tokens, k := indices.Shape[0], indices.Shape[1], indices.Shape[2]
	project := func(x *Tensor, w any) *Tensor {
		if q, ok := w.(*Quantized); ok {
			attrs := &ir.GatherQmmAttrs{GroupSize: q.Group, Bits: q.Bits, Mode: "affine", Transpose: true}
			return run(t, "gather_qmm", attrs, p, x, q.Packed, q.Scales, q.Biases, nil, indices)[0]
		}
		return run(t, "gather_mm", nil, p, x, run(t, "transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, p, w)[0],
			nil, indices)[0]
	}
	h := x.Shape[2]
	in := run(t, "broadcast_to", nil, p, x.reshaped([]int{batch, tokens, 1, 1, h}), []int{batch, tokens, k, 1, h})[0]
	in = in.reshaped([]int{batch * tokens * k, 1, h})
	indices = indices.reshaped([]int{batch * tokens * k})
	lhs := Ints(ir.U32, indices.Shape, make([]int64, len(indices.I)))
	for i := range lhs.I {
		lhs.I[i] = int64(i)
	}
	activated := project(in, gate)
	if name == "switch_geglu" {
		activated = run(t, "gelu", &ir.GeluAttrs{Approximate: "tanh"}, p, activated)[0]
	} else {
		activated = run(t, "silu", nil, p, activated)[0]
	}
	hidden := run(t, "multiply", nil, p, activated, project(in, up))[0]
	out := project(hidden, down).reshaped([]int{batch, tokens, k, h})
	out = run(t, "multiply", nil, p, out, scores.reshaped([]int{batch, tokens, k, 1}))[0]
	out = run(t, "sum", &ir.ReduceAttrs{Axes: []int{-2}}, p, out)[0]
	return run(t, "astype", &ir.DTypeAttrs{ScalarType: x.DType}, p, out)[0]
}

func TestSwitchMLPIsItsDecomposition(t *testing.T) {
	x := floats(2, 3, 64)
	indices := Ints(ir.U32, []int{2, 3, 2}, []int64{0, 3, 3, 1, 2, 2, 1, 0, 3, 2, 0, 1})
	scores := floats(2, 3, 2)
	for _, name := range []string{"switch_mlp", "switch_geglu"} {
		for _, p := range []Precision{FP32, Strict} {
			gate, up, down := quantize(32, 4, 96, 64), quantize(64, 4, 96, 64), quantize(32, 4, 64, 96)
			bf16 := Floats(ir.BF16, x.Shape, x.F)
			for _, scores := range []*Tensor{scores, Floats(ir.BF16, scores.Shape, scores.F)} {
				require.Equal(t, mixture(t, name, p, bf16, gate, up, down, indices, scores),
					run(t, name, nil, p, bf16, gate, up, down, indices, scores)[0])
			}
			require.Equal(t, mixture(t, name, p, x, floats(4, 8, 64), floats(4, 8, 64),
				floats(4, 64, 8), indices, scores),
				run(t, name, nil, p, x, floats(4, 8, 64), floats(4, 8, 64), floats(4, 64, 8), indices, scores)[0])
		}
	}
}

func TestSwitchMLPRefusals(t *testing.T) {
	x, up, down, indices, scores := floats(1, 2, 8), floats(3, 4, 8), floats(3, 8, 4),
		Ints(ir.I64, []int{1, 2, 1}, []int64{0, 2}), floats(1, 2, 1)
	run(t, "switch_mlp", nil, FP32, x, up, up, down, indices, scores)
	requireError(t, "indices[1] is 3", "switch_mlp", nil, x, up, up, down, Ints(ir.I64, []int{1, 2, 1}, []int64{0, 3}),
		scores)
	requireError(t, "down", "switch_mlp", nil, x, up, up, up, indices, scores)
	requireError(t, "scores", "switch_mlp", nil, x, up, up, down, indices, floats(1, 2, 2))
	requireError(t, "x", "switch_mlp", nil, floats(1, 2, 9), up, up, down, indices, scores)
}
