package eval

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

// What engines share with the machine.

// CheckInputs checks the inputs of a call of f against its parameters: how many there are, and of each the dtype, rank,
// constant dims and upper bounds of symbolic dims. The error names the input.
func CheckInputs(f *ir.Func, inputs []Value) error {
	if len(inputs) != len(f.Params) {
		return fmt.Errorf("%s: %d inputs, want %d", f.Name, len(inputs), len(f.Params))
	}
	for i, p := range f.Params {
		if err := checkInput(p.Type, inputs[i]); err != nil {
			return fmt.Errorf("%s: input %d (%s): %w", f.Name, i, p.Param, err)
		}
	}
	return nil
}

// ConvertOutput gives a result the dtype that its output declares, in memory of its own.
func ConvertOutput(t *Tensor, d ir.DType, p Precision) *Tensor {
	out := convert(t, d, p)
	if sameStorage(out, t) || out == t {
		out = out.Clone()
	}
	return out
}

// StateDType returns the dtype in which the content of a buffer of dtype d is held exactly: float32 for floats in
// FP32, else d.
func StateDType(d ir.DType, p Precision) ir.DType {
	if p == FP32 && d.IsFloat() {
		return ir.F32
	}
	return d
}

// ConvertState gives t the dtype of the buffer that it is stored in, rounded to it but in FP32. It may be t.
func ConvertState(t *Tensor, d ir.DType, p Precision) *Tensor {
	if p == Mixed {
		p = Strict
	}
	return convert(t, d, p)
}
