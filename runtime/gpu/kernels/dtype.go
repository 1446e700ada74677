package kernels

import (
	"fmt"
	"math"
)

// DType is the type of the elements of a buffer. None says that an operand is absent.
type DType int

// The types. Bool is a byte, 0 or 1.
const (
	None DType = iota
	F32
	BF16
	I32
	U32
	I64
	Bool
	U8
)

var dtypes = [...]struct {
	name, text, cast string
	size             int
}{
	None: {"none", "float", "", 4}, // the text of an operand that is not read
	F32:  {"f32", "float", "float(v)", 4},
	BF16: {"bf16", "bfloat", "bfloat(float(v))", 2},
	I32:  {"i32", "int", "int(v)", 4},
	U32:  {"u32", "uint", "uint(v)", 4},
	I64:  {"i64", "long", "long(v)", 8},
	Bool: {"bool", "uchar", "uchar((v) != 0 ? 1 : 0)", 1},
	U8:   {"u8", "uchar", "uchar(v)", 1},
}

// String is the name that the graph has for the type.
func (d DType) String() string { return dtypes[d].name }

// Size is the number of bytes of an element.
func (d DType) Size() int { return dtypes[d].size }

// text returns the type's name in a kernel's source.
func (d DType) text() string { return dtypes[d].text }

// needFloat returns an error unless d is F32 or BF16.
func needFloat(operand string, d DType) error {
	if d != F32 && d != BF16 {
		return fmt.Errorf("%s is %s, want f32 or bf16", operand, d)
	}
	return nil
}

// store returns v as a buffer of the type stores it.
func (d DType) store(v float32) float32 {
	if d != BF16 {
		return v
	}
	u := math.Float32bits(v)
	if u&0x7fffffff > 0x7f800000 {
		return v
	}
	return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
}

// Rows is the layout of the rows of an operand: the distances in elements from one token to the next, and from one row
// (a head) of a token to the next. The zero value stands for contiguous rows.
type Rows struct{ Token, Row int }

// or returns r, or for the zero value the distances of contiguous rows of n elements, count rows to a token.
func (r Rows) or(count, n int) Rows {
	if r == (Rows{}) {
		return Rows{count * n, n}
	}
	return r
}

// at returns the index of the first element of a row.
func (r Rows) at(token, row int) int { return token*r.Token + row*r.Row }
