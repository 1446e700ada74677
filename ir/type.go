package ir

import (
	"fmt"
	"strings"
)

// Kind tells what a value is.
type Kind uint8

const (
	// TensorKind is a tensor: DType and Shape.
	TensorKind Kind = iota
	// IntKind is a 32-bit integer register that carries its symbolic expression.
	IntKind
	// QuantizedKind is a group-quantized weight: its form, the logical Shape of the weight and the DType that it
	// dequantizes to, in mode affine that of its scales. Its parts are the tensors that [WeightForm] says.
	QuantizedKind
)

// Type is the type of a value.
type Type struct {
	Kind       Kind
	DType      DType
	Shape      []*Expr
	Int        *Expr // IntKind: the value's expression
	WeightForm       // QuantizedKind
}

// TensorType returns the type of a tensor with symbolic dims.
func TensorType(d DType, shape ...*Expr) Type { return Type{Kind: TensorKind, DType: d, Shape: shape} }

// StaticType returns the type of a tensor with constant dims.
func StaticType(d DType, dims ...int64) Type { return TensorType(d, Dims(dims...)...) }

// IntType returns the type of an int register whose value is e.
func IntType(e *Expr) Type { return Type{Kind: IntKind, Int: e} }

// Dims makes constant expressions of dims.
func Dims(dims ...int64) []*Expr {
	out := make([]*Expr, len(dims))
	for i, d := range dims {
		out[i] = Const(d)
	}
	return out
}

// Rank returns the number of dims.
func (t Type) Rank() int { return len(t.Shape) }

// ElementsBefore returns the product of the dims before an axis: the number of rows along the axes up to there.
func (t Type) ElementsBefore(axis int) *Expr {
	n := Const(1)
	for _, d := range t.Shape[:axis] {
		n = n.Mul(d)
	}
	return n
}

// Static returns the dims of a type without symbols.
func (t Type) Static() ([]int64, bool) {
	out := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		v, ok := d.Const()
		if !ok {
			return nil, false
		}
		out[i] = v
	}
	return out, true
}

// Equal reports whether t and o are the same type, symbols compared by identity.
func (t Type) Equal(o Type) bool {
	if t.Kind != o.Kind {
		return false
	}
	if t.Kind == IntKind {
		return t.Int.Equal(o.Int)
	}
	if t.DType != o.DType || t.WeightForm != o.WeightForm {
		return false
	}
	return equalShapes(t.Shape, o.Shape)
}

func equalShapes(a, b []*Expr) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Equal(b[i]) {
			return false
		}
	}
	return true
}

func (t Type) format(name func(*Symbol) string) string {
	if t.Kind == IntKind {
		return "int(" + t.Int.format(name) + ")"
	}
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = d.format(name)
	}
	shape := "[" + strings.Join(dims, ",") + "]"
	if t.Kind == QuantizedKind && t.Mode != Affine {
		return fmt.Sprintf("quantized<%s,%d,%d,%s>%s", t.Mode, t.Bits, t.Group, t.DType, shape)
	}
	if t.Kind == QuantizedKind {
		return fmt.Sprintf("quantized<%d,%d,%s>%s", t.Bits, t.Group, t.DType, shape)
	}
	return t.DType.String() + shape
}

// String returns the type's text form: bf16[1,s0,64], int(s0+1), quantized<4,64,bf16>[2048,1024], and in other modes
// than affine quantized<mxfp4,4,32,bf16>[2048,1024].
func (t Type) String() string { return t.format(symbolName) }
