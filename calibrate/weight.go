package calibrate

import (
	"fmt"
	"io"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes/quantize"
)

// rows returns rows [first, first+n) of a matrix, or of a stack of matrices one below the other, in float32.
type rows func(first, n int) (dot.Matrix, error)

// weight is a matrix [rows, cols] of the checkpoint, or a stack of such matrices, that a linear, a mixture or an
// embedding uses.
type weight struct {
	constant *ir.Constant
	stack    int // the number of matrices
	rows     int // of one matrix
	cols     int
	scheme   *quantize.Scheme // nil: the weight stays as it is
}

func newWeight(c *ir.Constant, scheme *quantize.Scheme) (*weight, error) {
	if c == nil || c.Data == nil {
		return nil, fmt.Errorf("calibration needs weights in floating point, found one that is quantized already")
	}
	shape := c.Data.Shape()
	if d := c.Data.DType(); len(shape) < 2 || d != ir.BF16 && d != ir.F16 && d != ir.F32 {
		return nil, fmt.Errorf("tensor %s: expected a matrix in bf16, f16 or f32 to calibrate, found %s%v", c.Name, d,
			shape)
	}
	w := &weight{constant: c, stack: 1, rows: int(shape[len(shape)-2]), cols: int(shape[len(shape)-1]), scheme: scheme}
	for _, d := range shape[:len(shape)-2] {
		w.stack *= int(d)
	}
	if scheme != nil {
		if err := scheme.Check(w.cols); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", c.Name, err)
		}
	}
	return w, nil
}

// given reads rows of the checkpoint's weight.
func (w *weight) given(first, n int) (dot.Matrix, error) {
	d := w.constant.Data
	size := d.DType().Size()
	raw := make([]byte, n*w.cols*size)
	if got, err := d.ReadAt(raw, int64(first)*int64(w.cols*size)); got < len(raw) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return dot.Matrix{}, fmt.Errorf("tensor %s: %w", w.constant.Name, err)
	}
	values := make([]float32, n*w.cols)
	map[ir.DType]quantize.Float{ir.BF16: quantize.BF16, ir.F16: quantize.F16,
		ir.F32: quantize.F32}[d.DType()].Decode(values, raw)
	return dot.Dense(values, n, w.cols), nil
}

// weightRows is the number of rows of a weight that are read at a time. Rows are independent, so the result does not
// depend on it.
const weightRows = 64
