package safetensors

import (
	"slices"
	"strings"
)

// DType is the element type of a tensor, spelled as in the header: "BF16".
type DType string

// The element types of the format.
const (
	Bool       DType = "BOOL"
	F4         DType = "F4" // two elements a byte (OCP microscaling)
	F6E2M3     DType = "F6_E2M3"
	F6E3M2     DType = "F6_E3M2"
	U8         DType = "U8"
	I8         DType = "I8"
	F8E5M2     DType = "F8_E5M2"
	F8E4M3     DType = "F8_E4M3"
	F8E8M0     DType = "F8_E8M0"
	F8E4M3FNUZ DType = "F8_E4M3FNUZ"
	F8E5M2FNUZ DType = "F8_E5M2FNUZ"
	I16        DType = "I16"
	U16        DType = "U16"
	F16        DType = "F16"
	BF16       DType = "BF16"
	I32        DType = "I32"
	U32        DType = "U32"
	F32        DType = "F32"
	C64        DType = "C64" // two F32: real, imaginary
	F64        DType = "F64"
	I64        DType = "I64"
	U64        DType = "U64"
)

// dtypes lists every element type with its width in the order of alignment that the reference
// implementation gives them (safetensors/src/tensor.rs, enum Dtype): it writes the last ones first.
var dtypes = []struct {
	dtype DType
	bits  int
}{
	{Bool, 8}, {F4, 4}, {F6E2M3, 6}, {F6E3M2, 6}, {U8, 8}, {I8, 8}, {F8E5M2, 8}, {F8E4M3, 8}, {F8E8M0, 8},
	{F8E4M3FNUZ, 8}, {F8E5M2FNUZ, 8}, {I16, 16}, {U16, 16}, {F16, 16}, {BF16, 16}, {I32, 32}, {U32, 32}, {F32, 32},
	{C64, 64}, {F64, 64}, {I64, 64}, {U64, 64},
}

func (d DType) rank() int {
	for i, t := range dtypes {
		if t.dtype == d {
			return i
		}
	}
	return -1
}

// Valid reports whether d is an element type of the format.
func (d DType) Valid() bool { return d.rank() >= 0 }

// Bits returns the width of one element: 4, 6, 8, 16, 32 or 64; 0 for an unknown type.
func (d DType) Bits() int {
	if i := d.rank(); i >= 0 {
		return dtypes[i].bits
	}
	return 0
}

// knownDTypes returns the list for error messages, sorted by name.
func knownDTypes() string {
	names := make([]string, len(dtypes))
	for i, t := range dtypes {
		names[i] = string(t.dtype)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
