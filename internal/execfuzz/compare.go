package execfuzz

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir/eval"
)

// answer is what came of the calls of a module: outputs and state, each with a name.
type answer struct {
	names   []string
	values  []eval.Value
	refusal error
}

// differs says how two answers differ; "" where they do not. Floats may differ by a share of the largest number of
// their tensor.
func differs(want, got *answer, tolerance float64) string {
	if len(want.values) != len(got.values) {
		return fmt.Sprintf("%d values, want %d", len(got.values), len(want.values))
	}
	for i, w := range want.values {
		if text := valueDiffers(w, got.values[i], tolerance); text != "" {
			return want.names[i] + ": " + text
		}
	}
	return ""
}

func valueDiffers(want, got eval.Value, tolerance float64) string {
	w, g := want.Tensor, got.Tensor
	if (w == nil) != (g == nil) || want.Int != got.Int {
		return fmt.Sprintf("%v, want %v", got, want)
	}
	if w == nil {
		return ""
	}
	if w.DType != g.DType || !slices.Equal(w.Shape, g.Shape) {
		return fmt.Sprintf("%s%v, want %s%v", g.DType, g.Shape, w.DType, w.Shape)
	}
	for i, n := range w.I {
		if g.I[i] != n {
			return fmt.Sprintf("element %d is %d, want %d", i, g.I[i], n)
		}
	}
	largest := 0.0
	for _, v := range w.F {
		if a := math.Abs(float64(v)); !overflows(a) {
			largest = max(largest, a)
		}
	}
	for i, v := range w.F {
		a, b := float64(v), float64(g.F[i])
		if a == b || overflows(a) && overflows(b) {
			continue
		}
		if d := math.Abs(a - b); !(d <= tolerance*largest) && !(d < 1e-30) {
			return fmt.Sprintf("element %d is %v, want %v (%d elements up to %v)", i, b, a, len(w.F), largest)
		}
	}
	return ""
}

// overflows reports whether a number is none, or so large that one order of its sum is a number and another is none:
// with x = 1e38, s·Σx·q + b·Σx is Inf - Inf where Σx·(s·q + b) is Inf.
func overflows(v float64) bool { return !(math.Abs(v) <= 1e30) }
