package container

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/schema/program"
)

// Constant returns the results of a constant method, one that has neither inputs nor instructions: its
// outputs are the values that the file holds. The second result is false where there is no method of the
// name. A method that computes is an error, not a missing constant.
func (f *File) Constant(name string) ([]Value, bool, error) {
	m, ok := f.Method(name)
	if !ok {
		return nil, false, nil
	}
	if len(m.Inputs) > 0 || len(m.Calls) > 0 || len(m.Others) > 0 {
		return nil, true, f.wrong(-1, "method "+name, "it has %d inputs and %d instructions, expected a constant",
			len(m.Inputs), len(m.Calls)+len(m.Others))
	}
	values := make([]Value, len(m.Outputs))
	for i, index := range m.Outputs {
		values[i] = m.Values[index]
	}
	return values, true, nil
}

// ConstantInts returns the integers of a constant method: those of all its outputs, which may be Ints, lists
// of Ints, and tensors of INT or LONG.
func (f *File) ConstantInts(name string) ([]int64, bool, error) {
	values, ok, err := f.Constant(name)
	if err != nil || !ok {
		return nil, ok, err
	}
	m, _ := f.Method(name)
	var out []int64
	for i, v := range values {
		ints, ok := m.ints(v)
		if !ok {
			return nil, true, f.wrong(-1, fmt.Sprintf("method %s, output %d", name, i),
				"%s, expected integers", describe(v))
		}
		out = append(out, ints...)
	}
	return out, true, nil
}

// ConstantInt returns the one integer of a constant method.
func (f *File) ConstantInt(name string) (int64, bool, error) {
	ints, ok, err := f.ConstantInts(name)
	if err != nil || !ok {
		return 0, ok, err
	}
	if len(ints) != 1 {
		return 0, true, f.wrong(-1, "method "+name, "%d integers, expected one", len(ints))
	}
	return ints[0], true, nil
}

// ConstantBool returns the one bool of a constant method.
func (f *File) ConstantBool(name string) (value, ok bool, err error) {
	values, ok, err := f.Constant(name)
	if err != nil || !ok {
		return false, ok, err
	}
	if len(values) != 1 {
		return false, true, f.wrong(-1, "method "+name, "%d outputs, expected one bool", len(values))
	}
	if values[0].Kind != program.KernelTypesBool {
		return false, true, f.wrong(-1, "method "+name, "%s, expected a bool", describe(values[0]))
	}
	return values[0].Bool, true, nil
}

// ints returns the integers of a value of the method; false where it holds none.
func (m *Method) ints(v Value) ([]int64, bool) {
	switch v.Kind {
	case program.KernelTypesInt:
		return []int64{v.Int}, true
	case program.KernelTypesIntList:
		out := make([]int64, len(v.Items))
		for i, item := range v.Items {
			if m.Values[item].Kind != program.KernelTypesInt {
				return nil, false
			}
			out[i] = m.Values[item].Int
		}
		return out, true
	case program.KernelTypesTensor:
		var out []int64
		switch t := v.Tensor; {
		case t.Data == nil || !t.Contiguous():
			return nil, false
		case t.ScalarType == program.ScalarTypeINT:
			for at := 0; at < len(t.Data); at += 4 {
				out = append(out, int64(int32(binary.LittleEndian.Uint32(t.Data[at:]))))
			}
		case t.ScalarType == program.ScalarTypeLONG:
			for at := 0; at < len(t.Data); at += 8 {
				out = append(out, int64(binary.LittleEndian.Uint64(t.Data[at:])))
			}
		default:
			return nil, false
		}
		return out, true
	}
	return nil, false
}

// describe names the type of a value for an error.
func describe(v Value) string {
	if v.Kind == program.KernelTypesTensor {
		return fmt.Sprintf("a tensor %v%d", v.Tensor.ScalarType, v.Tensor.Sizes)
	}
	return "a value of type " + v.Kind.String()
}
