package prequantized

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
)

// form is how a weight [rows, columns] is stored.
type form struct {
	bits                 int
	rows, columns, group int64
	stored               int64 // group in MLX's form, which divides group
	packed               bool  // two codes a byte, the first one low; else a signed byte a code
	transposed           bool  // scales and zero points are [K/group, N]
}

// quantized returns the weight in MLX's form, from the codes, scales and zero points of a bundle. MLX packs codes in
// words of 32 bits, the first code in the lowest bits. In memory these are the bytes that bundles have: packed codes of
// 4 bits stay as they are, and codes of 8 bits only change from signed to unsigned.
func (f form) quantized(codes, scale, zero ir.Data) *builder.Quantized {
	if !f.packed {
		codes = ir.Map(codes, ir.U8, "plus_128", func(dst, src []byte) {
			for i, b := range src {
				dst[i] = b ^ 0x80
			}
		})
	}
	shape := []int64{f.rows, f.columns / f.stored}
	return &builder.Quantized{
		WeightForm: ir.WeightForm{Bits: f.bits, Group: int(f.stored)},
		Packed:     words{codes, []int64{f.rows, f.columns * int64(f.bits) / 32}},
		Scales:     params{form: f, what: "scales", shape: shape, scale: scale},
		Biases:     params{form: f, what: "biases", shape: shape, scale: scale, zero: zero},
	}
}

// words is data of bytes, read as u32 of another shape.
type words struct {
	ir.Data
	shape []int64
}

func (w words) DType() ir.DType    { return ir.U32 }
func (w words) Shape() []int64     { return w.shape }
func (w words) Provenance() string { return "words(" + w.Data.Provenance() + ")" }
func (w words) From() []ir.Data    { return []ir.Data{w.Data} }

// params is the data of a weight's scales in MLX's form, bf16 [rows, columns/stored]; with zero points, of its biases,
// -scale · (zero point + 128 for signed codes). Both are computed from a bundle's scales and zero points when they are
// read.
type params struct {
	form
	what        string
	shape       []int64
	scale, zero ir.Data
}

func (p params) DType() ir.DType { return ir.BF16 }
func (p params) Shape() []int64  { return p.shape }
func (p params) From() []ir.Data {
	if p.zero == nil {
		return []ir.Data{p.scale}
	}
	return []ir.Data{p.scale, p.zero}
}

func (p params) Provenance() string {
	zero := ""
	if p.zero != nil {
		zero = "," + p.zero.Provenance()
	}
	return fmt.Sprintf("torchao_%s(%s%s,%d,%d,%t,%t)", p.what, p.scale.Provenance(), zero, p.group, p.stored,
		p.packed, p.transposed)
}

// pieceRows bounds the rows that are computed at a time.
const pieceRows = 4096

// ReadAt computes the rows in which the range of bytes lies.
func (p params) ReadAt(dst []byte, off int64) (int, error) {
	rowBytes := 2 * p.shape[1]
	size := p.shape[0] * rowBytes
	if off < 0 || off >= size {
		return 0, io.EOF
	}
	n := 0
	for n < len(dst) && off < size {
		first := off / rowBytes
		count := min(pieceRows, p.rows-first, (off+int64(len(dst)-n)-1)/rowBytes+1-first)
		block, err := p.block(first, count)
		if err != nil {
			return n, err
		}
		got := copy(dst[n:], block[off-first*rowBytes:])
		n, off = n+got, off+int64(got)
	}
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

// block returns rows [first, first+count) of the scales or biases as bf16.
func (p params) block(first, count int64) ([]byte, error) {
	groups, repeat := p.columns/p.group, p.group/p.stored
	scales, err := p.read(p.scale, first, count)
	if err != nil {
		return nil, err
	}
	var zeros []float32
	if p.zero != nil {
		if zeros, err = p.read(p.zero, first, count); err != nil {
			return nil, err
		}
	}
	offset := float32(0)
	if !p.packed {
		offset = 128
	}
	out := make([]byte, 0, 2*count*p.shape[1])
	for i, s := range scales { // in the order of rows
		v := s
		if zeros != nil {
			v = -float32(s * float32(zeros[i]+offset))
		}
		for range repeat {
			out = binary.LittleEndian.AppendUint16(out, numeric.F32ToBF16(v))
		}
	}
	if int64(len(scales)) != count*groups {
		return nil, io.ErrUnexpectedEOF
	}
	return out, nil
}

// read returns rows [first, first+count) of a bundle's scales or zero points d, one row after the other, also where the
// bundle stores them transposed.
func (p params) read(d ir.Data, first, count int64) ([]float32, error) {
	groups, size := p.columns/p.group, int64(d.DType().Size())
	values := make([]float32, count*groups)
	part := func(at, n int64) ([]float32, error) {
		raw := make([]byte, n*size)
		if got, err := d.ReadAt(raw, at*size); got < len(raw) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		v := make([]float32, n)
		if d.DType() == ir.BF16 {
			numeric.BF16SliceToF32(v, raw)
		} else {
			for i, b := range raw {
				v[i] = float32(int8(b))
			}
		}
		return v, nil
	}
	if !p.transposed {
		return part(first*groups, count*groups)
	}
	for g := range groups {
		column, err := part(g*p.rows+first, count)
		if err != nil {
			return nil, err
		}
		for i, v := range column {
			values[int64(i)*groups+g] = v
		}
	}
	return values, nil
}
