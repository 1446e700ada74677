package eval

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func TestRopeAgreesWithMLX(t *testing.T) {
	a := answers(t, "rope")
	tested := 0
	for key, want := range a {
		d, rest, _ := strings.Cut(key, "_")
		x, attrs := a[d+"_x"], ir.RopeAttrs{Dims: 64, Base: 10000, Scale: 1}
		var offset any = 7
		var freqs *Tensor
		traditional, at := 0, 0
		switch n, _ := fmt.Sscanf(rest, "tr%d_off%d_d%d_base%f", &traditional, &at, &attrs.Dims, &attrs.Base); {
		case n == 4:
			attrs.Traditional, offset = traditional == 1, at
		case rest == "3d":
			x, offset = Floats(x.DType, []int{4, 5, 64}, x.F), 7
		case rest == "arroff_1elt_i64_13":
			offset = Ints(ir.I64, []int{1}, []int64{13})
		case rest == "arroff_scalar13":
			offset = Ints(ir.I32, nil, []int64{13})
		case rest == "xb_arroff_3_9":
			x, offset = a[d+"_xb"], Ints(ir.I32, []int{2}, []int64{3, 9})
		case rest == "freqs_off7":
			freqs = a["freqs"]
		case rest == "freqsinf_off7":
			freqs = a["freqs_inf"]
		case rest == "freqs16_d32_off7":
			freqs, attrs.Dims = a["freqs16"], 32
		case rest == "scale0.5_off7":
			attrs.Scale = 0.5
		default:
			continue
		}
		t.Run(key, func(t *testing.T) {
			got := run(t, "rope", &attrs, Strict, x, offset, freqs)[0]
			// An inverse frequency of float32 has a relative error of 2^-24, which the position multiplies:
			// MLX's exponential is not rounded correctly.
			requireWithin(t, want, got, tolerance[want.DType]+float64(at)*math.Exp2(-23)*2)
		})
		tested++
	}
	require.Equal(t, 16, tested)
}

func TestRopeAgreesWithExecuTorch(t *testing.T) {
	a := answers(t, "executorch")
	requireNear(t, a["rope1.y"], run(t, "rope", &ir.RopeAttrs{Dims: 16, Base: 10000, Scale: 1},
		FP32, a["rope1.x"], 37)[0])
	requireWithin(t, a["rope3.y"], run(t, "rope", &ir.RopeAttrs{Dims: 64, Base: 1e7, Scale: 1}, FP32,
		a["rope3.x"], 1000)[0], 2e-4)
	requireNear(t, a["rope_freqs_hf.y"], run(t, "rope", &ir.RopeAttrs{Dims: 128, Scale: 1}, FP32, a["rope_freqs_hf.x"],
		9, a["rope_freqs_hf.freqs"])[0])
}

// TestRopeByDefinition rotates single pairs in float64.
func TestRopeByDefinition(t *testing.T) {
	x := floats(2, 3, 2, 4, 6)
	freqs := Floats(ir.F32, []int{2}, []float32{2, 5})
	offsets := Ints(ir.I64, []int{2}, []int64{10, -3})
	for _, traditional := range []bool{false, true} {
		attrs := &ir.RopeAttrs{Dims: 4, Traditional: traditional, Scale: 0.25}
		got := run(t, "rope", attrs, FP32, x, offsets, freqs)[0]
		for r := range len(x.F) / 6 {
			in, out := x.F[r*6:r*6+6], got.F[r*6:r*6+6]
			require.Equal(t, in[4:], out[4:], "dims behind the rotated ones stay")
			for pair := range 2 {
				i, j := pair, pair+2
				if traditional {
					i, j = 2*pair, 2*pair+1
				}
				theta := float64(offsets.I[r/24]+int64(r%4)) * 0.25 / float64(freqs.F[pair])
				sin, cos := numeric.Sincos(theta)
				require.InDelta(t, float64(in[i])*cos-float64(in[j])*sin, out[i], 1e-5)
				require.InDelta(t, float64(in[i])*sin+float64(in[j])*cos, out[j], 1e-5)
			}
		}
	}
}

func TestRopeRefusals(t *testing.T) {
	attrs := func(dims int) *ir.RopeAttrs { return &ir.RopeAttrs{Dims: dims, Base: 10000, Scale: 1} }
	requireError(t, "dims", "rope", attrs(3), floats(1, 2, 3, 4), 0)
	requireError(t, "dims", "rope", attrs(0), floats(1, 2, 3, 4), 0)
	requireError(t, "dims", "rope", attrs(6), floats(1, 2, 3, 4), 0)
	requireError(t, "3", "rope", attrs(4), floats(3, 4), 0)
	requireError(t, "offset", "rope", attrs(4), floats(2, 2, 3, 4), Ints(ir.I32, []int{3}, make([]int64, 3)))
	requireError(t, "offset", "rope", attrs(4), floats(2, 2, 3, 4), floats(1))
	requireError(t, "freqs", "rope", attrs(4), floats(2, 2, 3, 4), 0, floats(3))
	requireError(t, "x", "rope", attrs(4), Ints(ir.I32, []int{1, 1, 4}, make([]int64, 4)), 0)
}
