package eval

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// TestCausalConvolutionAgreesWithExecuTorch is the depthwise convolution of the gated delta net with its
// state of the last four inputs, followed by silu.
func TestCausalConvolutionAgreesWithExecuTorch(t *testing.T) {
	a := answers(t, "executorch")
	state := run(t, "transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, FP32, a["conv.state_in"])[0]
	w := run(t, "transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, FP32, a["conv.w"])[0]
	x := run(t, "concatenate", &ir.AxisAttrs{Axis: 1}, FP32, []*Tensor{state, a["conv.x_BTC"]})[0]
	y := run(t, "conv1d", &ir.Conv1DAttrs{Stride: 1, Dilation: 1, Groups: 6}, FP32, x, w)[0]
	require.Equal(t, []int{1, 6, 6}, y.Shape)
	y = run(t, "slice", &ir.StepAttrs{Step: 1}, FP32, y, 1, 1, 6)[0]
	requireNear(t, a["conv.y_silu_BTC"], run(t, "silu", nil, FP32, y)[0])
}

// convolution is the definition over three spatial dims in float64: out[o] = Σ_t x[o·stride + t·dilation −
// padding]·w[t].
func convolution(x, w *Tensor, stride, padding, dilation [3]int, groups int, at [5]int) float64 {
	sum := 0.0
	channels := w.Shape[4]
	group := at[4] / (w.Shape[0] / groups)
	for i := range w.Shape[1] {
		for j := range w.Shape[2] {
			for k := range w.Shape[3] {
				p := [3]int{at[1]*stride[0] + i*dilation[0] - padding[0], at[2]*stride[1] + j*dilation[1] - padding[1],
					at[3]*stride[2] + k*dilation[2] - padding[2]}
				if p[0] < 0 || p[1] < 0 || p[2] < 0 || p[0] >= x.Shape[1] || p[1] >= x.Shape[2] || p[2] >= x.Shape[3] {
					continue
				}
				for c := range channels {
					from := (((at[0]*x.Shape[1]+p[0])*x.Shape[2]+p[1])*x.Shape[3]+p[2])*x.Shape[4] + group*channels + c
					weight := (((at[4]*w.Shape[1]+i)*w.Shape[2]+j)*w.Shape[3]+k)*channels + c
					sum += float64(x.F[from]) * float64(w.F[weight])
				}
			}
		}
	}
	return sum
}

// eachIndex calls f with every index of a shape of five dims.
func eachIndex(shape []int, f func(i int, at [5]int)) {
	n, _ := elements(shape)
	for i := range n {
		var at [5]int
		for d, rest := 4, i; d >= 0; d-- {
			at[d], rest = rest%shape[d], rest/shape[d]
		}
		f(i, at)
	}
}

// five gives a convolution's shape three spatial dims.
func five(x *Tensor) *Tensor {
	shape := append([]int{x.Shape[0]}, []int{1, 1, 1}[:5-len(x.Shape)]...)
	return Floats(x.DType, append(shape, x.Shape[1:]...), x.F)
}

func TestConvByDefinition(t *testing.T) {
	for i, test := range []struct {
		op                        string
		x, w, want                []int
		attrs                     any
		stride, padding, dilation [3]int
		groups                    int
	}{
		{"conv1d", []int{2, 9, 4}, []int{6, 3, 2}, []int{2, 6, 6},
			&ir.Conv1DAttrs{Stride: 2, Padding: 3, Dilation: 2, Groups: 2},
			[3]int{1, 1, 2}, [3]int{0, 0, 3}, [3]int{1, 1, 2}, 2},
		{"conv2d", []int{1, 6, 5, 3}, []int{4, 2, 3, 3}, []int{1, 3, 5, 4},
			&ir.Conv2DAttrs{StrideH: 2, StrideW: 1, PaddingW: 1, DilationH: 1, DilationW: 1, Groups: 1},
			[3]int{1, 2, 1}, [3]int{0, 0, 1}, [3]int{1, 1, 1}, 1},
		{"conv2d", []int{1, 4, 4, 4}, []int{4, 3, 3, 1}, []int{1, 2, 2, 4},
			&ir.Conv2DAttrs{StrideH: 1, StrideW: 1, DilationH: 1, DilationW: 1, Groups: 4},
			[3]int{1, 1, 1}, [3]int{}, [3]int{1, 1, 1}, 4},
		{"conv3d", []int{1, 4, 3, 5, 2}, []int{3, 2, 1, 3, 2}, []int{1, 5, 3, 2, 3},
			&ir.Conv3DAttrs{StrideD: 1, StrideH: 1, StrideW: 2, PaddingD: 1, DilationD: 1, DilationH: 1,
				DilationW: 1, Groups: 1},
			[3]int{1, 1, 2}, [3]int{1, 0, 0}, [3]int{1, 1, 1}, 1},
	} {
		t.Run(fmt.Sprint(i, test.op), func(t *testing.T) {
			x, w := floats(test.x...), floats(test.w...)
			got := run(t, test.op, test.attrs, FP32, x, w)[0]
			require.Equal(t, test.want, got.Shape)
			eachIndex(five(got).Shape, func(i int, at [5]int) {
				require.InDelta(t, convolution(five(x), five(w), test.stride, test.padding, test.dilation, test.groups,
					at), got.F[i], 1e-4, at)
			})
		})
	}
}

// transposed is the definition of a transposed convolution over three spatial dims in float64: every
// element of x adds its multiple of the kernel to out[i·stride + t·dilation − padding].
func transposed(x, w *Tensor, shape []int, stride, padding, dilation [3]int, groups int) []float64 {
	n, _ := elements(shape)
	out := make([]float64, n)
	perGroup := w.Shape[0] / groups
	eachIndex(x.Shape, func(i int, at [5]int) {
		eachIndex(w.Shape, func(j int, tap [5]int) {
			if at[4] != tap[0]/perGroup*w.Shape[4]+tap[4] {
				return
			}
			to := [5]int{at[0], 0, 0, 0, tap[0]}
			for d := range 3 {
				to[1+d] = at[1+d]*stride[d] + tap[1+d]*dilation[d] - padding[d]
				if to[1+d] < 0 || to[1+d] >= shape[1+d] {
					return
				}
			}
			position := 0
			for d, v := range to {
				position = position*shape[d] + v
			}
			out[position] += float64(x.F[i]) * float64(w.F[j])
		})
	})
	return out
}

func TestConvTransposeByDefinition(t *testing.T) {
	for i, test := range []struct {
		op                        string
		x, w, want                []int
		attrs                     any
		stride, padding, dilation [3]int
		groups                    int
	}{
		{"conv_transpose1d", []int{2, 5, 4}, []int{6, 3, 2}, []int{2, 12, 6},
			&ir.ConvTranspose1DAttrs{Stride: 2, Padding: 1, Dilation: 2, OutputPadding: 1, Groups: 2},
			[3]int{1, 1, 2}, [3]int{0, 0, 1}, [3]int{1, 1, 2}, 2},
		{"conv_transpose1d", []int{1, 6, 2}, []int{3, 2, 2}, []int{1, 3, 3},
			&ir.ConvTranspose1DAttrs{Stride: 1, Padding: 2, Dilation: 1, Groups: 1},
			[3]int{1, 1, 1}, [3]int{0, 0, 2}, [3]int{1, 1, 1}, 1}, // padding beyond the kernel cuts the input
		{"conv_transpose2d", []int{1, 3, 4, 2}, []int{3, 3, 2, 2}, []int{1, 7, 5, 3},
			&ir.ConvTranspose2DAttrs{StrideH: 2, StrideW: 1, DilationH: 1, DilationW: 1, Groups: 1},
			[3]int{1, 2, 1}, [3]int{}, [3]int{1, 1, 1}, 1},
		{"conv_transpose3d", []int{1, 2, 3, 2, 2}, []int{2, 2, 3, 2, 2}, []int{1, 4, 5, 5, 2},
			&ir.ConvTranspose3DAttrs{StrideD: 2, StrideH: 1, StrideW: 3, DilationD: 1, DilationH: 1,
				DilationW: 1, Groups: 1},
			[3]int{2, 1, 3}, [3]int{}, [3]int{1, 1, 1}, 1},
	} {
		t.Run(fmt.Sprint(i, test.op), func(t *testing.T) {
			x, w := floats(test.x...), floats(test.w...)
			got := run(t, test.op, test.attrs, FP32, x, w)[0]
			require.Equal(t, test.want, got.Shape)
			want := transposed(five(x), five(w), five(got).Shape, test.stride, test.padding, test.dilation, test.groups)
			for i, w := range want {
				require.InDelta(t, w, got.F[i], 1e-4, i)
			}
		})
	}
}

func TestConvRefusals(t *testing.T) {
	plain := func() *ir.Conv1DAttrs { return &ir.Conv1DAttrs{Stride: 1, Dilation: 1, Groups: 1} }
	for _, test := range []struct {
		want   string
		x, w   *Tensor
		change func(*ir.Conv1DAttrs)
	}{
		{"dims", floats(3, 4), floats(2, 2, 4), func(*ir.Conv1DAttrs) {}},
		{"float", Ints(ir.I32, []int{1, 2, 1}, make([]int64, 2)), floats(1, 1, 1), func(*ir.Conv1DAttrs) {}},
		{"channels", floats(1, 5, 4), floats(2, 2, 3), func(*ir.Conv1DAttrs) {}},
		{"groups", floats(1, 5, 4), floats(3, 2, 2), func(a *ir.Conv1DAttrs) { a.Groups = 2 }},
		{"groups", floats(1, 5, 4), floats(2, 2, 4), func(a *ir.Conv1DAttrs) { a.Groups = 0 }},
		{"stride", floats(1, 5, 4), floats(2, 2, 4), func(a *ir.Conv1DAttrs) { a.Stride = 0 }},
		{"dilation", floats(1, 5, 4), floats(2, 2, 4), func(a *ir.Conv1DAttrs) { a.Dilation = -1 }},
		{"too short", floats(1, 2, 4), floats(2, 3, 4), func(a *ir.Conv1DAttrs) { a.Stride = 2 }},
		{"too short", floats(1, 0, 4), floats(2, 3, 4), func(*ir.Conv1DAttrs) {}},
		{"kernel of 0", floats(1, 5, 4), floats(2, 0, 4), func(*ir.Conv1DAttrs) {}},
		{"too short", floats(1, 5, 4), floats(2, 2, 4), func(a *ir.Conv1DAttrs) { a.Padding = -3 }},
		{"padding", floats(1, 5, 4), floats(2, 2, 4), func(a *ir.Conv1DAttrs) { a.Padding = math.MaxInt }},
	} {
		attrs := plain()
		test.change(attrs)
		requireError(t, test.want, "conv1d", attrs, test.x, test.w)
	}
}
