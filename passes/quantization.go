package passes

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/passes/quantize"
)

// quantization is the computation of a quantized weight: packed codes, scales and biases of a matrix,
// or of a stack of matrices each of which is quantized by itself. It streams in blocks of rows.
type quantization struct {
	name   string
	source ir.Data
	scheme quantize.Scheme
	cols   int
	rows   int // of one matrix
	stack  int // matrices
	shape  []int64

	searches []search // hqq's stop test by matrix
}

// search holds the number of hqq's iterations for a matrix once it is known.
type search struct {
	once       sync.Once
	iterations int
	err        error
}

// blockBytes bounds the source bytes of a block of rows.
const blockBytes = 1 << 20

func newQuantization(name string, source ir.Data, s quantize.Scheme) (*quantization, error) {
	if !source.DType().IsFloat() || source.DType() == ir.F64 {
		return nil, fmt.Errorf("tensor %s is %s, want bf16, f16 or f32 to quantize", name, source.DType())
	}
	shape := source.Shape()
	q := &quantization{name: name, source: source, scheme: s, cols: int(shape[len(shape)-1]), rows: int(shape[len(shape)-2]), stack: 1, shape: shape}
	for _, d := range shape[:len(shape)-2] {
		q.stack *= int(d)
	}
	q.searches = make([]search, q.stack)
	return q, nil
}

// Provenance names the source and the scheme.
func (q *quantization) Provenance() string {
	return fmt.Sprintf("quantize(%s,%s,%d,%d)", q.source.Provenance(), q.scheme.Method, q.scheme.Bits, q.scheme.GroupSize)
}

// outputs of a quantization.
const (
	packedOutput = iota
	scalesOutput
	biasesOutput
)

func (q *quantization) output(i int) ir.Data {
	last := int64(q.scheme.ParamCols(q.cols))
	d := ir.BF16
	if i == packedOutput {
		last, d = int64(q.scheme.PackedCols(q.cols)), ir.U32
	}
	shape := append(append([]int64{}, q.shape[:len(q.shape)-1]...), last)
	return quantizedPart{q, i, d, shape}
}

// rowBytes is the number of bytes of a row of an output.
func (q *quantization) rowBytes(output int) int64 {
	if output == packedOutput {
		return int64(4 * q.scheme.PackedCols(q.cols))
	}
	return int64(2 * q.scheme.ParamCols(q.cols))
}

// Produce computes all blocks in order.
func (q *quantization) Produce(emit func(output int, offset int64, p []byte) error) error {
	w := &blockWork{}
	for first := 0; first < q.rows*q.stack; {
		rows := q.blockRows(first)
		if err := q.block(w, first, rows); err != nil {
			return err
		}
		for i, p := range w.encoded {
			if err := emit(i, int64(first)*q.rowBytes(i), p); err != nil {
				return err
			}
		}
		first += rows
	}
	return nil
}

// blockRows is the number of rows of the block that starts at a row: a block never spans two matrices.
func (q *quantization) blockRows(first int) int {
	most := max(1, blockBytes/(q.cols*q.source.DType().Size()))
	return min(most, q.rows-first%q.rows)
}

// blockWork is what a block needs, kept from block to block.
type blockWork struct {
	raw     []byte
	values  []float32
	result  quantize.Result
	encoded [3][]byte
}

func (q *quantization) read(w *blockWork, first, rows int) error {
	size := q.source.DType().Size()
	n := rows * q.cols
	if cap(w.raw) < n*size {
		w.raw, w.values = make([]byte, n*size), make([]float32, n)
	}
	w.raw, w.values = w.raw[:n*size], w.values[:n]
	if got, err := q.source.ReadAt(w.raw, int64(first)*int64(q.cols*size)); got < len(w.raw) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("tensor %s: %w", q.name, err)
	}
	floatOf(q.source.DType()).Decode(w.values, w.raw)
	return nil
}

func floatOf(d ir.DType) quantize.Float {
	switch d {
	case ir.F16:
		return quantize.F16
	case ir.F32:
		return quantize.F32
	}
	return quantize.BF16
}

// block quantizes rows [first, first+rows) of the stack and encodes the outputs.
func (q *quantization) block(w *blockWork, first, rows int) error {
	scheme := q.scheme
	if scheme.Method == quantize.HQQ {
		var err error
		if scheme.Iterations, err = q.iterations(first / q.rows); err != nil {
			return err
		}
	}
	if err := q.read(w, first, rows); err != nil {
		return err
	}
	if err := quantize.Quantize(&w.result, w.values, rows, q.cols, scheme); err != nil {
		return fmt.Errorf("tensor %s, rows from %d: %w", q.name, first, err)
	}
	w.encoded[packedOutput] = w.encoded[packedOutput][:0]
	for _, word := range w.result.Packed {
		w.encoded[packedOutput] = binary.LittleEndian.AppendUint32(w.encoded[packedOutput], word)
	}
	for i, values := range [][]float32{w.result.Scales, w.result.Biases} {
		p := w.encoded[scalesOutput+i][:0]
		for _, v := range values {
			p = binary.LittleEndian.AppendUint16(p, numeric.F32ToBF16(v))
		}
		w.encoded[scalesOutput+i] = p
	}
	return nil
}

// iterations runs hqq's stop test over a matrix, once.
func (q *quantization) iterations(matrix int) (int, error) {
	s := &q.searches[matrix]
	s.once.Do(func() {
		var test quantize.Search
		w := &blockWork{}
		for first := matrix * q.rows; first < (matrix+1)*q.rows; {
			rows := q.blockRows(first)
			if s.err = q.read(w, first, rows); s.err != nil {
				return
			}
			if err := test.Observe(w.values, rows, q.cols, q.scheme); err != nil {
				s.err = fmt.Errorf("tensor %s, rows from %d: %w", q.name, first, err)
				return
			}
			first += rows
		}
		s.iterations = test.Iterations()
	})
	return s.iterations, s.err
}

// quantizedPart is one output of a quantization.
type quantizedPart struct {
	q      *quantization
	number int
	dtype  ir.DType
	shape  []int64
}

func (p quantizedPart) DType() ir.DType              { return p.dtype }
func (p quantizedPart) Shape() []int64               { return p.shape }
func (p quantizedPart) Group() (ir.Computation, int) { return p.q, p.number }
func (p quantizedPart) Provenance() string {
	return fmt.Sprintf("%s.%d", p.q.Provenance(), p.number)
}

// ReadAt computes the blocks that hold the range.
func (p quantizedPart) ReadAt(dst []byte, off int64) (int, error) {
	size, rowBytes := ir.DataSize(p), p.q.rowBytes(p.number)
	if off < 0 || off >= size {
		return 0, io.EOF
	}
	n := 0
	w := &blockWork{}
	for first := int(off / rowBytes); n < len(dst) && first < p.q.rows*p.q.stack; {
		rows := p.q.blockRows(first)
		if err := p.q.block(w, first, rows); err != nil {
			return n, err
		}
		encoded := w.encoded[p.number]
		n += copy(dst[n:], encoded[max(0, off+int64(n)-int64(first)*rowBytes):])
		first += rows
	}
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

// toBF16 rounds data to bf16.
func toBF16(d ir.Data) ir.Data {
	from := floatOf(d.DType())
	return ir.Map(d, ir.BF16, "bf16", func(dst, src []byte) {
		values := make([]float32, len(src)/from.Size())
		from.Decode(values, src)
		quantize.BF16.Encode(dst, values)
	})
}
