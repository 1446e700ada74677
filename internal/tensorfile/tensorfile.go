package tensorfile

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// dtypes pairs the dtypes of programs with the dtypes of safetensors.
var dtypes = []struct {
	ir   ir.DType
	file safetensors.DType
}{
	{ir.Bool, "BOOL"}, {ir.U8, "U8"}, {ir.I8, "I8"}, {ir.U16, "U16"}, {ir.I16, "I16"}, {ir.U32, "U32"}, {ir.I32, "I32"},
	{ir.U64, "U64"}, {ir.I64, "I64"}, {ir.F16, "F16"}, {ir.BF16, "BF16"}, {ir.F32, "F32"}, {ir.F64, "F64"},
}

// DType returns the dtype of a program that a dtype of a file stands for; false if no program has it.
func DType(d safetensors.DType) (ir.DType, bool) {
	for _, x := range dtypes {
		if x.file == d {
			return x.ir, true
		}
	}
	return 0, false
}

// DTypeNamed returns the dtype of a program by its name, as bf16; false if there is none of the name.
func DTypeNamed(name string) (ir.DType, bool) {
	for _, x := range dtypes {
		if x.ir.String() == name {
			return x.ir, true
		}
	}
	return 0, false
}

// FileDType returns the dtype as which a file stores elements of d, without rounding; false if no file has it.
func FileDType(d ir.DType) (safetensors.DType, bool) {
	for _, x := range dtypes {
		if x.ir == d {
			return x.file, true
		}
	}
	return "", false
}

// Entry returns the tensor of a file that holds a value. An integer is an i64 of no dims.
func Entry(name string, v eval.Value) safetensors.Entry {
	t := v.Tensor
	if t == nil {
		t = eval.Ints(ir.I64, nil, []int64{v.Int})
	}
	d, ok := FileDType(t.DType)
	if !ok {
		panic(fmt.Sprintf("tensorfile: %s has no dtype of a file", t.DType)) // the table has all that values have
	}
	return safetensors.Entry{Name: name, DType: d, Shape: t.Shape, Data: safetensors.Bytes(t.Encode())}
}

// Read reads a whole tensor of a file. The error names the file and the tensor.
func Read(f *safetensors.File, name string) (*eval.Tensor, error) {
	t, ok := f.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("%s: no tensor %q", f.Path(), name)
	}
	d, ok := DType(t.DType)
	if !ok {
		return nil, fmt.Errorf("%s: tensor %q is %s", f.Path(), name, t.DType)
	}
	raw := make([]byte, t.Size())
	if n, err := t.ReadAt(raw, 0); n < len(raw) {
		return nil, fmt.Errorf("%s: tensor %q: %d of %d bytes can be read: %w", f.Path(), name, n, len(raw), err)
	}
	v, err := eval.Decode(d, t.Shape, raw)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", f.Path(), name, err)
	}
	return v, nil
}
