package builder

import (
	"fmt"
	"io"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// permuted is data whose blocks lie in another order: of each run of len(order) blocks, block i of the result is
// block order[i] of the source.
type permuted struct {
	ir.Data
	block int64 // bytes
	order []int
}

func (p permuted) Provenance() string {
	return fmt.Sprintf("permuted(%s,%dB,%s)", p.Data.Provenance(), p.block,
		strings.ReplaceAll(fmt.Sprint(p.order), " ", ","))
}

// From returns the data in its own order.
func (p permuted) From() []ir.Data { return []ir.Data{p.Data} }

func (p permuted) ReadAt(dst []byte, off int64) (int, error) {
	size, run := ir.DataSize(p), int64(len(p.order))
	if off < 0 || off >= size {
		return 0, io.EOF
	}
	n := 0
	for n < len(dst) && off < size {
		i, within := off/p.block, off%p.block
		from := i/run*run + int64(p.order[i%run])
		part := dst[n:min(int64(len(dst)), int64(n)+p.block-within)]
		got, err := p.Data.ReadAt(part, from*p.block+within)
		n, off = n+got, off+int64(got)
		if got < len(part) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
	}
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

// each applies a function to the bytes of a tensor, or to each part of a quantized one.
func (t Tensor) each(f func(ir.Data) ir.Data) Tensor {
	if t.Quantized != nil {
		t.Quantized = t.Quantized.each(f)
	} else if t.Data != nil {
		t.Data = f(t.Data)
	}
	return t
}

// PermuteRows puts the rows of t from row start on in another order, as len(order) blocks of equally many: block i
// of the result is block order[i]. The number of rows must be a multiple of the blocks.
func (t Tensor) PermuteRows(start int, order []int) Tensor {
	return t.each(func(d ir.Data) ir.Data {
		rows := d.Shape()[0]
		rest := ir.Rows(d, int64(start), rows-int64(start))
		moved := permuted{rest, ir.DataSize(rest) / int64(len(order)), order}
		if start == 0 {
			return moved
		}
		return ir.Concat(ir.Rows(d, 0, int64(start)), moved)
	})
}

// PermuteRowsOfEach puts the rows of every run of len(order) rows in another order: row i of a run is its row order[i].
// The number of rows must be a multiple of the run's.
func (t Tensor) PermuteRowsOfEach(order []int) Tensor {
	return t.each(func(d ir.Data) ir.Data { return permuted{d, ir.DataSize(d) / d.Shape()[0], order} })
}

// CanPermuteColumns reports whether rows of t divide into that many blocks of whole groups.
func (t Tensor) CanPermuteColumns(blocks int) bool {
	columns := t.Shape[len(t.Shape)-1]
	if t.Quantized != nil {
		columns /= int64(t.Quantized.Group)
	}
	return columns%int64(blocks) == 0
}

// PermuteColumns puts the columns of t in another order, as [Tensor.PermuteRows] does rows.
func (t Tensor) PermuteColumns(order []int) Tensor {
	return t.each(func(d ir.Data) ir.Data {
		shape := d.Shape()
		return permuted{d, shape[len(shape)-1] * int64(d.DType().Size()) / int64(len(order)), order}
	})
}

// Reshaped gives a tensor that is not quantized another shape with as many elements; where it has another number of
// them it stays as it is, for the builder to refuse.
func (t Tensor) Reshaped(shape ...int64) Tensor {
	if t.Data != nil && ir.Elements(shape) == ir.Elements(t.Shape) {
		t.Data, t.Shape = ir.Reshape(t.Data, shape...), shape
	}
	return t
}

// Rows returns rows [start, start+count) of a matrix.
func (t Tensor) Rows(start, count int64) Tensor {
	t = t.each(func(d ir.Data) ir.Data { return ir.Rows(d, start, count) })
	t.Shape = append([]int64{count}, t.Shape[1:]...)
	return t
}
