package ir

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Data produces the bytes of a constant when they are asked for: little-endian elements in row-major
// order. It knows its dtype, its shape and where its bytes come from, never the bytes themselves, so
// that a checkpoint of any size is compiled in bounded memory. Implementations are safe for concurrent use.
type Data interface {
	// DType is the element type.
	DType() DType
	// Shape is the constant shape.
	Shape() []int64
	// Provenance names sources and transforms; equal provenance means equal bytes.
	Provenance() string
	// ReaderAt reads any range of the bytes; at the end of the data it gives io.EOF like any io.ReaderAt.
	io.ReaderAt
}

// Joint is Data that is computed together with other Data: packed codes, scales and biases of one
// quantized weight. A writer that has room for all of them calls Produce once instead of reading each.
type Joint interface {
	Data
	// Group tells which computation the data belongs to and which of its outputs it is.
	Group() (computation Computation, output int)
}

// Computation produces several outputs in one pass over its sources.
type Computation interface {
	// Provenance identifies the computation; equal provenance means equal outputs.
	Provenance() string
	// Produce computes all outputs and hands their bytes to emit in pieces, in any order; emit is not
	// called concurrently. p is valid only during the call.
	Produce(emit func(output int, offset int64, p []byte) error) error
}

// Blocked is a computation whose outputs come in blocks that do not depend on each other, so that several
// workers share a large one.
type Blocked interface {
	Computation
	// Blocks is the number of blocks.
	Blocks() int
	// ProduceBlock computes block i, from 0, and hands its bytes to emit as Produce does. Together the
	// blocks give every byte that Produce gives, once. It is safe for concurrent use with any i.
	ProduceBlock(i int, emit func(output int, offset int64, p []byte) error) error
}

// Elements returns the number of elements of a constant shape.
func Elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// DataSize returns the number of bytes of d.
func DataSize(d Data) int64 { return Elements(d.Shape()) * int64(d.DType().Size()) }

// ReadData reads all bytes of d, for small constants and tests.
func ReadData(d Data) ([]byte, error) {
	p := make([]byte, DataSize(d))
	n, err := d.ReadAt(p, 0)
	if n == len(p) {
		return p, nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("%s: read %d of %d bytes: %w", d.Provenance(), n, len(p), err)
}

// readPart copies from a data of size bytes: it limits p to what is there and maps the end to io.EOF.
func readPart(p []byte, off, size int64, read func(p []byte, off int64) error) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at negative offset %d", off)
	}
	if off >= size {
		return 0, io.EOF
	}
	var end error
	if int64(len(p)) > size-off {
		p, end = p[:size-off], io.EOF
	}
	if err := read(p, off); err != nil {
		return 0, err
	}
	return len(p), end
}

// readFull reads exactly len(p) bytes of d at off.
func readFull(d Data, p []byte, off int64) error {
	n, err := d.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

type bytesData struct {
	dtype DType
	shape []int64
	bytes []byte
}

// Bytes is data held in memory, for scalars and other small constants; its provenance is its content.
func Bytes(dtype DType, shape []int64, bytes []byte) Data {
	if want := Elements(shape) * int64(dtype.Size()); want != int64(len(bytes)) {
		panic(fmt.Sprintf("ir: %d bytes for %s%v, want %d", len(bytes), dtype, shape, want))
	}
	return bytesData{dtype, shape, bytes}
}

func (b bytesData) DType() DType   { return b.dtype }
func (b bytesData) Shape() []int64 { return b.shape }
func (b bytesData) Provenance() string {
	return fmt.Sprintf("bytes(%s%v,%x)", b.dtype, b.shape, b.bytes)
}
func (b bytesData) ReadAt(p []byte, off int64) (int, error) {
	return readPart(p, off, int64(len(b.bytes)), func(p []byte, off int64) error { copy(p, b.bytes[off:]); return nil })
}

// Float32s returns an inline f32 constant.
func Float32s(shape []int64, values ...float32) Data {
	p := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b := math.Float32bits(v)
		p = append(p, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	return Bytes(F32, shape, p)
}

type reshaped struct {
	Data
	shape []int64
}

// Reshape gives the bytes of d another shape with as many elements.
func Reshape(d Data, shape ...int64) Data {
	if Elements(shape) != Elements(d.Shape()) {
		panic(fmt.Sprintf("ir: reshape of %v to %v", d.Shape(), shape))
	}
	if slices.Equal(shape, d.Shape()) {
		return d
	}
	return reshaped{d, shape}
}

func (r reshaped) Shape() []int64 { return r.shape }

// Provenance returns the provenance of the bytes, which a reshape does not change.
func (r reshaped) Provenance() string { return r.Data.Provenance() }

type rowSlice struct {
	src         Data
	shape       []int64
	start, step int64 // in rows of src
	block       int64 // rows taken per step
	rowBytes    int64
}

// Rows takes rows [start, start+count) of the first axis of d.
func Rows(d Data, start, count int64) Data {
	shape := slices.Clone(d.Shape())
	shape[0] = count
	return rowSlice{d, shape, start, count, count, DataSize(d) / max(d.Shape()[0], 1)}
}

// Axis1Rows takes rows [start, start+count) of the second axis of d, for every index of the first: the
// gate or the up half of fused expert weights [experts, 2*intermediate, hidden].
func Axis1Rows(d Data, start, count int64) Data {
	shape := slices.Clone(d.Shape())
	per := shape[1]
	shape[1] = count
	return rowSlice{d, shape, start, per, count, DataSize(d) / max(d.Shape()[0]*per, 1)}
}

func (r rowSlice) DType() DType   { return r.src.DType() }
func (r rowSlice) Shape() []int64 { return r.shape }
func (r rowSlice) Provenance() string {
	return fmt.Sprintf("rows(%s,%d+%d/%d,%dB)", r.src.Provenance(), r.start, r.block, r.step, r.rowBytes)
}
func (r rowSlice) ReadAt(p []byte, off int64) (int, error) {
	blockBytes := r.block * r.rowBytes
	return readPart(p, off, DataSize(r), func(p []byte, off int64) error {
		for len(p) > 0 {
			block, within := off/blockBytes, off%blockBytes
			n := min(int64(len(p)), blockBytes-within)
			if err := readFull(r.src, p[:n], (block*r.step+r.start)*r.rowBytes+within); err != nil {
				return err
			}
			p, off = p[n:], off+n
		}
		return nil
	})
}

type concat struct {
	parts []Data
	shape []int64
}

// Concat joins data of one dtype along the first axis; the other dims must agree.
func Concat(parts ...Data) Data {
	if len(parts) == 1 {
		return parts[0]
	}
	shape := slices.Clone(parts[0].Shape())
	for _, p := range parts[1:] {
		if p.DType() != parts[0].DType() || !slices.Equal(p.Shape()[1:], shape[1:]) {
			panic(fmt.Sprintf("ir: concat of %s%v and %s%v", parts[0].DType(), parts[0].Shape(), p.DType(), p.Shape()))
		}
		shape[0] += p.Shape()[0]
	}
	return concat{parts, shape}
}

// Stack joins data of one dtype and shape along a new first axis.
func Stack(parts ...Data) Data {
	shape := append([]int64{int64(len(parts))}, parts[0].Shape()...)
	flat := make([]Data, len(parts))
	for i, p := range parts {
		flat[i] = Reshape(p, append([]int64{1}, p.Shape()...)...)
	}
	return Reshape(Concat(flat...), shape...)
}

func (c concat) DType() DType   { return c.parts[0].DType() }
func (c concat) Shape() []int64 { return c.shape }
func (c concat) Provenance() string {
	names := make([]string, len(c.parts))
	for i, p := range c.parts {
		names[i] = p.Provenance()
	}
	return "concat(" + strings.Join(names, ",") + ")"
}
func (c concat) ReadAt(p []byte, off int64) (int, error) {
	return readPart(p, off, DataSize(c), func(p []byte, off int64) error {
		for _, part := range c.parts {
			size := DataSize(part)
			if off >= size {
				off -= size
				continue
			}
			n := min(int64(len(p)), size-off)
			if err := readFull(part, p[:n], off); err != nil {
				return err
			}
			if p, off = p[n:], 0; len(p) == 0 {
				break
			}
		}
		return nil
	})
}

type mapped struct {
	src   Data
	dtype DType
	name  string
	f     func(dst, src []byte)
}

// Map applies an elementwise function to d. f converts len(dst)/dtype.Size() elements; name says
// what it does in the provenance, so equal names must mean equal functions.
func Map(d Data, dtype DType, name string, f func(dst, src []byte)) Data {
	return mapped{d, dtype, name, f}
}

func (m mapped) DType() DType       { return m.dtype }
func (m mapped) Shape() []int64     { return m.src.Shape() }
func (m mapped) Provenance() string { return m.name + "(" + m.src.Provenance() + ")" }
func (m mapped) ReadAt(p []byte, off int64) (int, error) {
	const piece = 1 << 16 // elements converted at a time
	out, in := int64(m.dtype.Size()), int64(m.src.DType().Size())
	return readPart(p, off, DataSize(m), func(p []byte, off int64) error {
		var src, dst []byte
		for len(p) > 0 {
			first, skip := off/out, off%out
			count := min((skip+int64(len(p))+out-1)/out, piece)
			src, dst = slices.Grow(src[:0], int(count*in))[:count*in], slices.Grow(dst[:0], int(count*out))[:count*out]
			if err := readFull(m.src, src, first*in); err != nil {
				return err
			}
			m.f(dst, src)
			n := copy(p, dst[skip:])
			p, off = p[n:], off+int64(n)
		}
		return nil
	})
}

type exact struct{ Data }

// Exact marks a constant that the model's authors keep in float32 whatever the dtype of the weights:
// frequencies of a rotary embedding, a soft cap. Recipes that round constants leave it as it is.
func Exact(d Data) Data { return exact{d} }

// IsExact reports whether d is marked by [Exact].
func IsExact(d Data) bool { _, ok := d.(exact); return ok }
