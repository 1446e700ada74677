package ir

import "fmt"

// DType is the element type of a tensor. Its values are ExecuTorch's ScalarType codes
// (runtime/core/portable_type/scalar_type.h), so that the wire needs no translation table.
type DType int8

// The element types that the MLX delegate knows.
const (
	U8   DType = 0
	I8   DType = 1
	I16  DType = 2
	I32  DType = 3
	I64  DType = 4
	F16  DType = 5
	F32  DType = 6
	F64  DType = 7
	Bool DType = 11
	BF16 DType = 15
	U16  DType = 27
	U32  DType = 28
	U64  DType = 29
)

type dtypeInfo struct {
	name string
	size int
}

var dtypeTable = map[DType]dtypeInfo{
	U8: {"u8", 1}, I8: {"i8", 1}, I16: {"i16", 2}, I32: {"i32", 4}, I64: {"i64", 8},
	F16: {"f16", 2}, F32: {"f32", 4}, F64: {"f64", 8}, Bool: {"bool", 1}, BF16: {"bf16", 2},
	U16: {"u16", 2}, U32: {"u32", 4}, U64: {"u64", 8},
}

// String returns the name used in the text form: f32, bf16, i64, bool, …
func (d DType) String() string {
	if i, ok := dtypeTable[d]; ok {
		return i.name
	}
	return fmt.Sprintf("dtype(%d)", int8(d))
}

// Valid reports whether d is an element type that tensors can have.
func (d DType) Valid() bool { _, ok := dtypeTable[d]; return ok }

// Size is the number of bytes of one element.
func (d DType) Size() int { return dtypeTable[d].size }

// IsFloat reports whether d is one of f16, bf16, f32, f64.
func (d DType) IsFloat() bool { return d == F16 || d == BF16 || d == F32 || d == F64 }

// IsUnsigned reports whether d is an unsigned integer type (bool excluded).
func (d DType) IsUnsigned() bool { return d == U8 || d == U16 || d == U32 || d == U64 }

// IsInteger reports whether d is a signed or unsigned integer type (bool excluded).
func (d DType) IsInteger() bool { return d.Valid() && !d.IsFloat() && d != Bool }

// ParseDType is the inverse of [DType.String].
func ParseDType(name string) (DType, error) {
	for d, i := range dtypeTable {
		if i.name == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown dtype %q; known are bool, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64",
		name)
}

// Promote returns the dtype of an arithmetic operation between a and b, as MLX defines it
// (mlx/dtype.cpp, promote_types; observed in goldens: f16 with bf16 gives f32, bf16 with any integer bf16).
func Promote(a, b DType) DType {
	if a == b {
		return a
	}
	if a == Bool {
		return b
	}
	if b == Bool {
		return a
	}
	switch {
	case a.IsFloat() && b.IsFloat():
		if a == F64 || b == F64 {
			return F64
		}
		return F32 // f16 with bf16, or either of them with f32
	case a.IsFloat():
		return a
	case b.IsFloat():
		return b
	}
	if a.IsUnsigned() == b.IsUnsigned() {
		if a.Size() > b.Size() {
			return a
		}
		return b
	}
	if a.IsUnsigned() {
		a, b = b, a
	}
	// a is signed, b unsigned: the smallest signed type that holds both; u64 has none and becomes f32.
	if b == U64 {
		return F32
	}
	size := max(a.Size(), 2*b.Size())
	return map[int]DType{2: I16, 4: I32, 8: I64}[size]
}
