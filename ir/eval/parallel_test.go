package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestParallelCoversEveryIndexOnce(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 1000} {
		for _, cost := range []int{0, 1, grain, math.MaxInt} {
			seen := make([]int, n)
			parallel(n, cost, func(lo, hi int) {
				for i := lo; i < hi; i++ {
					seen[i]++
				}
			})
			for i, times := range seen {
				require.Equal(t, 1, times, "index %d of %d", i, n)
			}
		}
	}
}

// TestParallelEnds: after done is closed no thread begins another part, and parts are bounded only where there is
// something that may end them.
func TestParallelEnds(t *testing.T) {
	const n = 10_000
	for _, cost := range []int{1, longestPart / 4, 2 * longestPart} {
		done := make(chan struct{})
		var parts, longest atomic.Int64
		parallelUntil(done, n, cost, func(lo, hi int) {
			parts.Add(1)
			longest.Store(max(longest.Load(), int64(hi-lo)))
			if lo == 0 {
				close(done)
			}
			<-done // so that each of the threads is in its first part when it is closed
		})
		require.LessOrEqual(t, parts.Load(), int64(runtime.GOMAXPROCS(0)), "cost %d", cost)
		require.LessOrEqual(t, longest.Load(), int64(max(1, longestPart/cost)), "cost %d", cost)
		parallelUntil(done, n, cost, func(lo, hi int) { t.Errorf("cost %d: a part ran after the end", cost) })
	}
}

// counting has the elements 0, 1, 2, … in i64.
func counting(shape ...int) *Tensor {
	n, _ := elements(shape)
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(i)
	}
	return Ints(ir.I64, shape, v)
}

// randomLike makes a tensor of the dtype and rank of x with other dims; integers are small, of either sign.
func randomLike(r *rand.Rand, x *Tensor) *Tensor {
	shape := append([]int{}, x.Shape...)
	for range r.IntN(3) {
		if len(shape) > 0 {
			shape[r.IntN(len(shape))] = r.IntN(5)
		}
	}
	out, err := NewTensor(x.DType, shape...)
	if err != nil {
		panic(err)
	}
	for i := range out.F {
		out.F[i] = float32(r.NormFloat64())
	}
	for i := range out.I {
		out.I[i] = wrap(x.DType, int64(r.IntN(9)-3))
	}
	return out
}

// TestWrongDimsAreErrors gives kernels, of operations that type, tensors with other dims, as dynamic dims
// may be: the answer is a result of the right size or an error, never a panic.
func TestWrongDimsAreErrors(t *testing.T) {
	u32 := func(shape ...int) *Tensor {
		n, _ := elements(shape)
		return Ints(ir.U32, shape, make([]int64, n))
	}
	codes, scale := u32(3, 2, 4), floats(3, 2, 1)
	kernel, kernelArgs := step(deltaArgs(answers(t, "executorch"), "gdr1"))
	affine := "affine"
	cases := []struct {
		op    string
		attrs any
		args  []any
	}{
		{"addmm", nil, []any{floats(2, 3, 4), floats(4, 5), floats(5)}},
		{"addmm", nil, []any{floats(4), floats(2, 4, 5), floats(2, 5)}},
		{"gather_mm", nil, []any{floats(3, 2, 4), floats(3, 4, 2), u32(2, 1), u32(3)}},
		{"gather_mm", nil, []any{floats(4), floats(3, 4, 2), nil, u32(3)}},
		{"quantized", &ir.QuantizedAttrs{GroupSize: 32, Bits: 4}, []any{codes, scale, scale}},
		{"dequantize", &ir.DequantizeAttrs{GroupSize: 32, Bits: 4, Mode: affine}, []any{codes, scale, scale}},
		{"quantized_matmul", &ir.QuantizedMatmulAttrs{GroupSize: 32, Bits: 4, Mode: affine, Transpose: true},
			[]any{floats(3, 2, 32), codes, scale, scale}},
		{"quantized_matmul", &ir.QuantizedMatmulAttrs{GroupSize: 32, Bits: 4, Mode: affine},
			[]any{floats(3, 5, 2), codes, scale, scale}},
		{"gather_qmm", &ir.GatherQmmAttrs{GroupSize: 32, Bits: 4, Mode: affine, Transpose: true},
			[]any{floats(3, 2, 32), codes, scale, scale, u32(2, 1), u32(4)}},
		{"gather_qmm", &ir.GatherQmmAttrs{GroupSize: 32, Bits: 4, Mode: affine},
			[]any{floats(3, 5, 2), codes, scale, scale}},
		{"conv1d", nil, []any{floats(2, 5, 3), floats(4, 2, 3)}},
		{"conv2d", nil, []any{floats(2, 5, 4, 3), floats(4, 2, 1, 3)}},
		{"conv3d", nil, []any{floats(2, 5, 4, 3, 2), floats(4, 2, 1, 3, 2)}},
		{"conv_transpose1d", &ir.ConvTranspose1DAttrs{Stride: 2, Padding: 1, Dilation: 2, OutputPadding: 1, Groups: 2},
			[]any{floats(2, 5, 4), floats(4, 2, 2)}},
		{"conv_transpose3d", nil, []any{floats(2, 2, 4, 3, 2), floats(4, 2, 1, 3, 2)}},
		{"rms_norm", nil, []any{floats(2, 3), floats(3)}},
		{"layer_norm", nil, []any{floats(2, 3), floats(3), floats(3)}},
		{"rope", &ir.RopeAttrs{Dims: 4, Base: 100, Scale: 1}, []any{floats(2, 3, 4, 4), u32(2), floats(2)}},
		{"rope", &ir.RopeAttrs{Dims: 2, Base: 100, Scale: 1}, []any{floats(2, 3, 4), 5}},
		{"sdpa", &ir.SdpaAttrs{Scale: 1},
			[]any{floats(2, 4, 3, 5), floats(2, 2, 4, 5), floats(2, 2, 4, 3), floats(4, 3, 4)}},
		{"sdpa", &ir.SdpaAttrs{Scale: 1, Causal: true},
			[]any{floats(2, 4, 3, 5), floats(2, 2, 4, 5), floats(2, 2, 4, 3)}},
		{"gated_delta_rule", nil, []any{floats(2, 3, 2, 4), floats(2, 3, 2, 4), floats(2, 3, 4, 5), floats(2, 3, 4),
			floats(2, 3, 4), floats(2, 4, 5, 4)}},
		{"metal_kernel", kernel, kernelArgs},
		{"linear", nil, []any{floats(2, 4), floats(3, 4), floats(3)}},
		{"linear", nil, []any{floats(2, 64), quantize(32, 3, 64), floats(3)}},
		{"embedding", nil, []any{u32(2, 3), floats(3, 4)}},
		{"embedding", nil, []any{u32(2, 3), quantize(32, 3, 64)}},
		{"top_k", &ir.TopKAttrs{K: 2}, []any{floats(2, 4)}},
		{"switch_mlp", nil, []any{floats(1, 2, 4), floats(3, 4, 4), floats(3, 4, 4), floats(3, 4, 4),
			u32(1, 2, 2), floats(1, 2, 2)}},
		{"sample", nil, sampleArgs(floats(2, 4), 1, 2, 0.5, 3)},
		{"draw", nil, []any{floats(2, 4), floats(2), list(ir.I64, 2, 0), floats(2), floats(2), list(ir.I64, 3, 4)}},
		{"adjust_logits", nil, []any{floats(2, 4), counting(2, 3), floats(2, 3), counting(2, 3, 2), floats(2, 3),
			list(ir.I64, 1, 3), counting(1, 1), list(ir.I64, 0, -1)}},
		{"logprobs", &ir.LogprobsAttrs{Top: 2}, []any{floats(2, 4), list(ir.I64, 1, 3), list(ir.I64, 2, -1)}},
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i, k := range cases {
		t.Run(fmt.Sprint(i, k.op), func(t *testing.T) {
			succeeded, refused := 0, 0
			for range 300 {
				c, err := newCall(k.op, k.attrs, []Precision{FP32, Strict}[r.IntN(2)], k.args...)
				require.NoError(t, err)
				for _, operand := range c.Args {
					for j := range operand {
						if x := operand[j].Tensor; x != nil && r.IntN(4) == 0 {
							operand[j].Tensor = randomLike(r, x)
						}
					}
				}
				values, err := Run(c)
				if err != nil {
					refused++
					continue
				}
				succeeded++
				for _, v := range values {
					if v.Tensor != nil {
						n, err := elements(v.Tensor.Shape)
						require.NoError(t, err)
						require.Equal(t, n, v.Tensor.Len())
					}
				}
			}
			require.NotZero(t, refused)
			require.NotZero(t, succeeded)
		})
	}
}
