package eval

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

func TestNormsAgreeWithMLX(t *testing.T) {
	a := answers(t, "norm")
	tested := 0
	for key, want := range a {
		d, rest, _ := strings.Cut(key, "_")
		x, w, b := a[d+"_x"], a[d+"_w"], a[d+"_b"]
		eps := &ir.NormAttrs{Eps: 1e-6}
		if strings.HasSuffix(rest, "1e-5") {
			eps.Eps = 1e-5
		}
		var got *Tensor
		switch {
		case strings.HasPrefix(rest, "rms_eps"):
			got = run(t, "rms_norm", eps, Strict, x, w)[0]
		case strings.HasPrefix(rest, "rms_now"):
			got = run(t, "rms_norm", eps, Strict, x)[0]
		case rest == "rms_wf32":
			got = run(t, "rms_norm", eps, Strict, x, Floats(ir.F32, w.Shape, w.F))[0]
		case strings.HasPrefix(rest, "ln"):
			got = run(t, "layer_norm", eps, Strict, x, w, b)[0]
		default:
			continue
		}
		t.Run(key, func(t *testing.T) { requireNear(t, want, got) })
		tested++
	}
	require.Equal(t, 15, tested)
	e := answers(t, "executorch")
	requireNear(t, e["rms.y_eps1e-6"], run(t, "rms_norm", &ir.NormAttrs{Eps: 1e-6}, FP32, e["rms.x"], e["rms.w"])[0])
	requireNear(t, e["rms.y_noweight_eps1e-5"], run(t, "rms_norm", &ir.NormAttrs{Eps: 1e-5}, FP32, e["rms.x"])[0])
}

// TestNormRounding: the normalised value is rounded before it meets the weight, under Strict only.
func TestNormRounding(t *testing.T) {
	x := Floats(ir.BF16, []int{1, 2}, []float32{1, 3})
	w := Floats(ir.BF16, []int{2}, []float32{1.5, 1.25})
	exact := run(t, "rms_norm", &ir.NormAttrs{}, FP32, x, w)[0]
	require.InDelta(t, 3/2.2360679775*1.25, exact.F[1], 1e-6)
	strict := run(t, "rms_norm", &ir.NormAttrs{}, Strict, x, w)[0]
	require.Equal(t, round(ir.BF16, round(ir.BF16, 3/2.2360679775)*1.25), strict.F[1])
	require.NotEqual(t, exact.F[1], strict.F[1])
}

func TestLayerNormBiasAlone(t *testing.T) {
	x := Floats(ir.F32, []int{1, 2}, []float32{-1, 1})
	got := run(t, "layer_norm", &ir.NormAttrs{}, FP32, x, nil, Floats(ir.F32, []int{2}, []float32{10, 20}))[0]
	require.Equal(t, []float32{9, 21}, got.F)
}

func TestNormRefusals(t *testing.T) {
	requireError(t, "dim", "rms_norm", nil, floats())
	requireError(t, "weight", "rms_norm", nil, floats(2, 3), floats(2))
	requireError(t, "bias", "layer_norm", nil, floats(2, 3), floats(3), floats(1, 3))
	require.Empty(t, run(t, "rms_norm", nil, FP32, floats(2, 0), floats(0))[0].F)
}
