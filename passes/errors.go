package passes

import "fmt"

// SchemeError reports a tensor that cannot be quantized as the recipe says: a group size that does not divide its
// rows, or a dtype that has no such form. Another recipe is the way out.
type SchemeError struct {
	Tensor string
	Shape  []int64
	Err    error // what does not fit, of [quantize.Scheme.Check]
}

// Error names the tensor and its shape.
func (e *SchemeError) Error() string {
	return fmt.Sprintf("tensor %s %v: %v", e.Tensor, e.Shape, e.Err)
}

// Unwrap returns what does not fit.
func (e *SchemeError) Unwrap() error { return e.Err }

// BudgetError reports an [Allocation] of fewer bits than its smallest schemes need.
type BudgetError struct {
	BitsPerWeight float64 // asked for
	Least         float64 // of the smallest scheme of each weight
}

// Error names both numbers.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("%.4g bits a weight: the least for these linears is %.4g", e.BitsPerWeight, e.Least)
}
