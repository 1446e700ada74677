package fp8

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// decoded has the value of every code in E4M3: a sign, four bits of exponent with bias 7, three of mantissa. There are
// no infinities; the largest magnitude is the only NaN.
var decoded = func() (table [256]float32) {
	for i := range table {
		exponent, mantissa := i>>3&15, float64(i&7)
		v := math.Ldexp(1+mantissa/8, exponent-7)
		switch {
		case i&127 == 127:
			v = math.NaN()
		case exponent == 0:
			v = math.Ldexp(mantissa/8, -6)
		}
		if i > 127 {
			v = -v
		}
		table[i] = float32(v)
	}
	return table
}()

// values are the weights of matrices [..., N, K] in float32.
type values struct {
	codes, scales ir.Data
	rows, columns int64 // of a block
	n, k          int64 // of a matrix
	across        int64 // blocks side by side
	down          int64 // blocks of a matrix one above the other
}

func newValues(codes, scales ir.Data, rows, columns int64) values {
	shape := codes.Shape()
	n, k := shape[len(shape)-2], shape[len(shape)-1]
	return values{codes, scales, rows, columns, n, k, (k + columns - 1) / columns, (n + rows - 1) / rows}
}

func (v values) DType() ir.DType { return ir.F32 }
func (v values) Shape() []int64  { return v.codes.Shape() }

func (v values) Provenance() string {
	return fmt.Sprintf("fp8_e4m3(%s,%s,%dx%d)", v.codes.Provenance(), v.scales.Provenance(), v.rows, v.columns)
}

// From returns the data that the weights are computed from.
func (v values) From() []ir.Data { return []ir.Data{v.codes, v.scales} }

// ReadAt computes the bytes row by row.
func (v values) ReadAt(p []byte, off int64) (int, error) {
	size := ir.DataSize(v)
	if off < 0 || off >= size {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && off < size {
		first := off / 4
		row, column := first/v.k, first%v.k
		last := min(v.k, column+(int64(len(p)-n)+off%4+3)/4)
		bytes, err := v.row(row, column, last)
		if err != nil {
			return n, err
		}
		got := copy(p[n:], bytes[off%4:])
		n, off = n+got, off+int64(got)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// row returns columns [from, to) of a row, counted over all matrices.
func (v values) row(row, from, to int64) ([]byte, error) {
	codes := make([]byte, to-from)
	if err := readFull(v.codes, codes, row*v.k+from); err != nil {
		return nil, err
	}
	first, last := from/v.columns, (to-1)/v.columns
	width := int64(v.scales.DType().Size())
	block := (row/v.n*v.down + row%v.n/v.rows) * v.across // of the row's first block
	raw := make([]byte, (last-first+1)*width)
	if err := readFull(v.scales, raw, (block+first)*width); err != nil {
		return nil, err
	}
	scales := make([]float32, last-first+1)
	switch v.scales.DType() {
	case ir.BF16:
		numeric.BF16SliceToF32(scales, raw)
	case ir.F16:
		numeric.F16SliceToF32(scales, raw)
	default:
		numeric.F32SliceFromBytes(scales, raw)
	}
	out := make([]byte, 4*len(codes))
	for i, c := range codes {
		x := float32(decoded[c] * scales[(from+int64(i))/v.columns-first])
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
	}
	return out, nil
}

// readFull reads all of p.
func readFull(d ir.Data, p []byte, off int64) error {
	n, err := d.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
