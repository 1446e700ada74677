package eval

import "github.com/etc-ml/etc/ir"

// What engines share with the machine.

// CheckInput checks an input against its parameter's type: dtype, rank, constant dims, upper bounds of
// symbolic dims.
func CheckInput(t ir.Type, v Value) error { return checkInput(t, v) }

// ConvertOutput gives a result the dtype that its output declares, in memory of its own.
func ConvertOutput(t *Tensor, d ir.DType, p Precision) *Tensor {
	out := convert(t, d, p)
	if sameStorage(out, t) || out == t {
		out = out.Clone()
	}
	return out
}

// ConvertState gives t the dtype of the buffer that it is stored in, rounded to it but in FP32. It may be t.
func ConvertState(t *Tensor, d ir.DType, p Precision) *Tensor {
	if p == Mixed {
		p = Strict
	}
	return convert(t, d, p)
}
