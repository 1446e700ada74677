package safetensors

import (
	"fmt"
	"io"
	"math"
)

// Tensor is one tensor of a [File]. Its bytes stay in the file until they are read.
type Tensor struct {
	Name  string
	DType DType
	Shape []int // each ≥ 0; empty for a scalar; must not be changed

	file       *File
	begin, end int64 // byte range; relative to the data part until checkLayout makes it absolute
}

// Elements returns the product of the shape: 1 for a scalar.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Size is the number of bytes of the tensor.
func (t *Tensor) Size() int64 { return t.end - t.begin }

// Offset returns the position of the tensor's first byte in its file.
func (t *Tensor) Offset() int64 { return t.begin }

// File returns the file that holds the tensor.
func (t *Tensor) File() *File { return t.file }

// ReadAt reads len(p) bytes of the tensor from its byte off on; it implements [io.ReaderAt]. At the tensor's end it
// reads fewer, with io.EOF. It reads directly into p and is safe for concurrent use.
func (t *Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: tensor %q: expected an offset ≥ 0, found %d", t.file.path, t.Name, off)
	}
	rest := t.Size() - off
	if rest <= 0 {
		return 0, io.EOF
	}
	want := int64(len(p))
	if want > rest {
		want = rest
	}
	n, err := t.file.data.ReadAt(p[:want], t.begin+off)
	switch {
	case int64(n) < want:
		if err == io.EOF || err == nil {
			err = io.ErrUnexpectedEOF // the file was whole when it was opened
		}
		return n, fmt.Errorf("%s: tensor %q at byte %d: %w", t.file.path, t.Name, off+int64(n), err)
	case n < len(p):
		return n, io.EOF
	}
	return n, nil
}

// Reader reads the tensor's bytes from first to last, and seeks. Every call gives a reader of its own.
func (t *Tensor) Reader() *io.SectionReader { return io.NewSectionReader(t, 0, t.Size()) }

// byteSize returns the number of bytes of a tensor, or a text that says what is wrong with its shape.
func byteSize(dtype DType, shape []int) (int64, string) {
	bits := int64(dtype.Bits())
	for _, d := range shape {
		if d == 0 {
			return 0, ""
		}
	}
	for _, d := range shape {
		if bits > math.MaxInt64/int64(d) {
			return 0, fmt.Sprintf("the shape %v of %s elements, which overflows 64 bits", shape, dtype)
		}
		bits *= int64(d)
	}
	if bits%8 != 0 {
		return 0, fmt.Sprintf("the shape %v of %d-bit %s elements, %d bits", shape, dtype.Bits(), dtype, bits)
	}
	return bits / 8, ""
}
