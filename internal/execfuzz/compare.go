package execfuzz

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir/eval"
)

// answer is the result of the calls of a module: its outputs and its state, each with a name.
type answer struct {
	names   []string
	values  []eval.Value
	refusal error
}

// differs describes how two answers differ; "" if they do not. Floats may differ by tolerance times the largest
// number of their tensor.
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
		if a := math.Abs(float64(v)); a <= huge {
			largest = max(largest, a)
		}
	}
	for i, v := range w.F {
		a, b := float64(v), float64(g.F[i])
		if a == b || math.IsNaN(a) && math.IsNaN(b) {
			continue
		}
		scale := largest
		if math.Abs(a) > huge {
			scale = math.Abs(a) // an infinity equals itself alone
		}
		if d := math.Abs(a - b); math.IsInf(a, 0) || !(d <= tolerance*scale) && !(d < 1e-30) {
			return fmt.Sprintf("element %d is %v, want %v (%d elements up to %v)", i, b, a, len(w.F), largest)
		}
	}
	return ""
}

// huge is the magnitude from which on numbers must be nearly equal themselves. Beside 1e30, a tolerance relative to
// the largest number would accept anything.
const huge = 1e30
