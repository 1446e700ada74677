package ir

import (
	"fmt"
	"slices"
)

// QuantMode is how the codes of a quantized weight stand for numbers: MLX's quantization modes.
type QuantMode uint8

const (
	// Affine codes c stand for scale·c + bias, with scale and bias in floating point.
	Affine QuantMode = iota
	// MXFP4 codes are floats e2m1 with a scale e8m0 (OCP Microscaling Formats 1.0). This mode and those below have
	// scales in u8 and no biases.
	MXFP4
	// MXFP8 codes are floats e4m3 with a scale e8m0.
	MXFP8
	// NVFP4 codes are floats e2m1 with a scale e4m3.
	NVFP4
)

// quantModes are the modes with what they take.
var quantModes = [...]struct {
	name         string
	bits, groups []int
}{
	Affine: {"affine", []int{2, 3, 4, 5, 6, 8}, []int{16, 32, 64, 128}},
	MXFP4:  {"mxfp4", []int{4}, []int{32}},
	MXFP8:  {"mxfp8", []int{8}, []int{32}},
	NVFP4:  {"nvfp4", []int{4}, []int{16}},
}

// String returns the mode's name in attributes and files.
func (m QuantMode) String() string { return quantModes[m].name }

// WeightForm is the form of a quantized weight [..., N, K]: packed codes u32 [..., N, K·Bits/32], each row a stream of
// numbers of Bits bits from the lowest bit of its first word on, and scales [..., N, K/Group]; mode affine has biases
// of the scales' shape and dtype too. It is the one type that says so, from the files of checkpoints to the kernels.
type WeightForm struct {
	Mode QuantMode
	// Bits is the size of a code.
	Bits int
	// Group is the number of neighbours in a row that share a scale and a bias.
	Group int
}

// ParseQuantMode finds the mode of a name.
func ParseQuantMode(name string) (QuantMode, error) {
	for i := range quantModes {
		if quantModes[i].name == name {
			return QuantMode(i), nil
		}
	}
	return 0, fmt.Errorf("mode must be affine, mxfp4, mxfp8 or nvfp4, found %q", name)
}

// NewWeightForm returns the form with a mode of that name, if there is such a form.
func NewWeightForm(mode string, bits, group int) (WeightForm, error) {
	m, err := ParseQuantMode(mode)
	if err != nil {
		return WeightForm{}, err
	}
	f := WeightForm{m, bits, group}
	return f, f.Check()
}

// Check reports a size of codes or groups that the mode does not have.
func (f WeightForm) Check() error {
	if int(f.Mode) >= len(quantModes) {
		return fmt.Errorf("mode must be one of %d, found number %d", len(quantModes), f.Mode)
	}
	m := quantModes[f.Mode]
	if !slices.Contains(m.bits, f.Bits) {
		return fmt.Errorf("mode %s has bits of %v, found %d", m.name, m.bits, f.Bits)
	}
	if !slices.Contains(m.groups, f.Group) {
		return fmt.Errorf("mode %s has group sizes of %v, found %d", m.name, m.groups, f.Group)
	}
	return nil
}

// HasProducts reports whether MLX multiplies by such weights: groups of 16 in mode affine can be dequantized only.
func (f WeightForm) HasProducts() bool { return f.Mode != Affine || f.Group != 16 }

// Words returns the number of u32 words of a row of columns codes, which must fill them.
func (f WeightForm) Words(columns int64) int64 { return columns * int64(f.Bits) / 32 }

// Columns returns the number of codes in words u32 words.
func (f WeightForm) Columns(words int64) int64 { return words * 32 / int64(f.Bits) }

// Groups returns the number of scales of a row of columns codes, which groups must divide.
func (f WeightForm) Groups(columns int64) int64 { return columns / int64(f.Group) }

// String returns the form for people: "affine 4-bit g64".
func (f WeightForm) String() string { return fmt.Sprintf("%s %d-bit g%d", f.Mode, f.Bits, f.Group) }

// FormOf returns the form of the quantized weight that an operation takes or, for quantized, gives; false where it
// has none, or attributes that its type rule refuses.
func FormOf(op *Op) (WeightForm, bool) {
	f, err := formOf(op)
	return f, err == nil
}

func formOf(op *Op) (WeightForm, error) {
	switch a := op.Attrs.(type) {
	case *QuantizedAttrs:
		f := WeightForm{a.Mode, a.Bits, a.GroupSize}
		return f, f.Check()
	case *QuantizedMatmulAttrs:
		return NewWeightForm(a.Mode, a.Bits, a.GroupSize)
	case *GatherQmmAttrs:
		return NewWeightForm(a.Mode, a.Bits, a.GroupSize)
	case *DequantizeAttrs:
		return NewWeightForm(a.Mode, a.Bits, a.GroupSize)
	}
	return WeightForm{}, fmt.Errorf("%s has no quantized weight", op.Def.Name)
}
