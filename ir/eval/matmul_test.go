package eval

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
)

func TestAddmmAgreesWithMLX(t *testing.T) {
	a := answers(t, "matmul")
	for _, d := range []string{"f32", "bf16"} {
		x, y, bias := a[d+"_mm_a"], a[d+"_mm_b"], a[d+"_mm_c"]
		requireNear(t, a[d+"_matmul"], run(t, "addmm", nil, Strict, x, y)[0])
		ignored := &ir.AddmmAttrs{Alpha: 3, Beta: 5}
		requireNear(t, a[d+"_matmul"], run(t, "addmm", ignored, Strict, x, y)[0])
		// Recorded with alpha 0.5 and beta 2.
		requireNear(t, a[d+"_addmm"], run(t, "addmm", &ir.AddmmAttrs{Alpha: 0.5, Beta: 2}, Strict, x, y, bias)[0])
	}
}

func TestGatherMMAgreesWithMLX(t *testing.T) {
	a := answers(t, "matmul")
	w := run(t, "transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, FP32, a["f32_moe_w"])[0]
	requireNear(t, a["f32_gather_mm"], run(t, "gather_mm", nil, Strict, a["f32_moe_x"], w, nil, a["moe_rhs"])[0])
	requireNear(t, a["f32_gather_mm_2d"], run(t, "gather_mm", nil, Strict, a["f32_moe_x2"], w, nil, a["moe_rhs2"])[0])
}

// naive is a matrix product of [m, k] and [k, n] in float64.
func naive(a, b []float32, m, k, n int) []float64 {
	out := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range k {
				out[i*n+j] += float64(a[i*k+l]) * float64(b[l*n+j])
			}
		}
	}
	return out
}

func TestMatmulShapes(t *testing.T) {
	for _, test := range []struct {
		name       string
		a, b, want []int
	}{
		{"vectors", []int{5}, []int{5}, []int{}},
		{"vector and matrix", []int{5}, []int{5, 7}, []int{7}},
		{"matrix and vector", []int{3, 5}, []int{5}, []int{3}},
		{"batch and vector", []int{2, 3, 5}, []int{5}, []int{2, 3}},
		{"vector and batch", []int{5}, []int{2, 5, 7}, []int{2, 7}},
		{"shared matrix", []int{2, 3, 5}, []int{5, 7}, []int{2, 3, 7}},
		{"broadcast batch", []int{4, 1, 3, 5}, []int{2, 5, 7}, []int{4, 2, 3, 7}},
		{"long rows", []int{2, 1000}, []int{1000, 40}, []int{2, 40}},
		{"no inner elements", []int{2, 0}, []int{0, 3}, []int{2, 3}},
		{"no rows", []int{0, 5}, []int{5, 3}, []int{0, 3}},
		{"no columns", []int{2, 5}, []int{5, 0}, []int{2, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := floats(test.a...), floats(test.b...)
			got := run(t, "addmm", nil, FP32, a, b)[0]
			require.Equal(t, test.want, append([]int{}, got.Shape...))
			left, right, err := matrixShapes(test.a, test.b)
			require.NoError(t, err)
			aBatch, m, k := split2(left)
			bBatch, _, n := split2(right)
			batch, err := broadcastShape(aBatch, bBatch)
			require.NoError(t, err)
			la, lb := broadcastOffsets(batch, aBatch), broadcastOffsets(batch, bBatch)
			for i := range la {
				want := naive(a.F[la[i]*m*k:], b.F[lb[i]*k*n:], m, k, n)
				for j, w := range want {
					require.InDelta(t, w, got.F[i*m*n+j], 1e-4)
				}
			}
		})
	}
}

// TestProductHasOneOrder: the bits of a product do not depend on the layout of the weight, on the number
// of rows multiplied at once or on the number of goroutines.
func TestProductHasOneOrder(t *testing.T) {
	x, w := floats(9, 1003), floats(257, 1003)
	for i := range x.F {
		x.F[i] += float32(i) * 1e-3
	}
	transposed := run(t, "transpose", &ir.TransposeAttrs{Perm: []int{1, 0}}, FP32, w)[0]
	all := run(t, "linear", nil, FP32, x, w)[0]
	require.Equal(t, all, run(t, "addmm", nil, FP32, x, transposed)[0])
	for m := range 9 {
		row := Floats(ir.F32, []int{1003}, x.F[m*1003:(m+1)*1003])
		require.Equal(t, all.F[m*257:(m+1)*257], run(t, "linear", nil, FP32, row, w)[0].F)
		for n := range 257 {
			require.Equal(t, all.F[m*257+n], dot.Product(row.F, w.F[n*1003:(n+1)*1003]))
		}
	}
}

func TestAddmmBias(t *testing.T) {
	a, b := floats(2, 3, 4), floats(4, 5)
	plain := run(t, "addmm", nil, FP32, a, b)[0]
	for _, shape := range [][]int{{}, {5}, {3, 1}, {1, 3, 5}, {2, 3, 5}} {
		bias := floats(shape...)
		got := run(t, "addmm", &ir.AddmmAttrs{Alpha: 2, Beta: 0.5}, FP32, a, b, bias)[0]
		for i, at := range broadcastOffsets([]int{2, 3, 5}, shape) {
			require.Equal(t, 2*plain.F[i]+0.5*bias.F[at], got.F[i])
		}
	}
	requireError(t, "bias", "addmm", nil, a, b, floats(4))
	requireError(t, "bias", "addmm", nil, a, b, floats(7, 2, 3, 5))
}

// TestGatherMM16: MLX on a CPU refuses 16-bit floats here; this engine computes them like any other.
func TestGatherMM16(t *testing.T) {
	a, b := floats(4, 2, 3), floats(5, 3, 6)
	for _, v := range [][]float32{a.F, b.F} {
		for i := range v {
			v[i] = round(ir.BF16, v[i])
		}
	}
	lhs, rhs := Ints(ir.U32, []int{3, 1}, []int64{3, 0, 3}), Ints(ir.I32, []int{2}, []int64{4, 1})
	exact := run(t, "gather_mm", nil, FP32, a, b, lhs, rhs)[0]
	require.Equal(t, []int{3, 2, 2, 6}, exact.Shape)
	for i := range 3 {
		for j := range 2 {
			want := naive(a.F[lhs.I[i]*6:], b.F[rhs.I[j]*18:], 2, 3, 6)
			for e, w := range want {
				require.InDelta(t, w, exact.F[(i*2+j)*12+e], 1e-5)
			}
		}
	}
	a.DType, b.DType = ir.BF16, ir.BF16
	rounded := run(t, "gather_mm", nil, Strict, a, b, lhs, rhs)[0]
	require.Equal(t, ir.BF16, rounded.DType)
	for i, v := range exact.F {
		require.Equal(t, round(ir.BF16, v), rounded.F[i])
	}
}

func TestGatherMMVectors(t *testing.T) {
	b := floats(5, 3, 6)
	got := run(t, "gather_mm", nil, FP32, floats(3), b, nil, Ints(ir.U32, []int{2}, []int64{4, 0}))[0]
	require.Equal(t, []int{2, 6}, got.Shape)
	want := naive(floats(3).F, b.F[4*18:], 1, 3, 6)
	require.InDelta(t, want[5], got.F[5], 1e-5)
	got = run(t, "gather_mm", nil, FP32, floats(5, 2, 3), floats(3), Ints(ir.U32, []int{2}, []int64{4, 0}))[0]
	require.Equal(t, []int{2, 2}, got.Shape)
	requireError(t, "lhs_indices[0] is 5", "gather_mm", nil, floats(5, 2, 3), floats(3),
		Ints(ir.U32, []int{1}, []int64{5}))
}

func TestAddmmConvertsIntegers(t *testing.T) {
	a := Ints(ir.I32, []int{1, 2}, []int64{257, 1})
	b := Floats(ir.BF16, []int{2, 1}, []float32{1, 0})
	require.Equal(t, float32(257), run(t, "addmm", nil, FP32, a, b)[0].F[0])
	require.Equal(t, float32(256), run(t, "addmm", nil, Strict, a, b)[0].F[0], "257 is not a bf16")
}

func BenchmarkLinear(b *testing.B) {
	x, w := floats(1, 2048), floats(512, 2048)
	codes := make([]int, 512*2048)
	q := &Quantized{Ints(ir.U32, []int{512, 256}, packBits(codes, 4)), floats(512, 32), floats(512, 32), ir.F32,
		ir.WeightForm{Bits: 4, Group: 64}}
	for name, weight := range map[string]any{"dense": w, "4-bit": q} {
		b.Run(name, func(b *testing.B) {
			c, err := newCall("linear", nil, FP32, x, weight)
			require.NoError(b, err)
			for b.Loop() {
				_, err := Run(c)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.N)*512*2048/1e9/b.Elapsed().Seconds(), "GMAC/s")
		})
	}
}
