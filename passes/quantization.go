package passes

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// quantization is the computation of a quantized weight: packed codes, scales and biases of a matrix,
// or of a stack of matrices each of which is quantized by itself. It streams in blocks of rows.
type quantization struct {
	name      string
	source    ir.Data
	scheme    quantize.Scheme
	cols      int
	rows      int // of one matrix
	stack     int // matrices
	shape     []int64
	blockRows int // of all blocks of a matrix but the last

	searches []search // hqq's stop test by matrix
	measured measurement
}

const (
	// blockBytes bounds the source bytes of a block of rows.
	blockBytes = 2 << 20
	// tileWeights bounds the weights that are decoded at a time, so that they stay in a core's cache.
	tileWeights = 64 << 10
)

func newQuantization(name string, source ir.Data, s quantize.Scheme) (*quantization, error) {
	if !source.DType().IsFloat() || source.DType() == ir.F64 {
		return nil, &SchemeError{name, source.Shape(),
			fmt.Errorf("%s, want bf16, f16 or f32 to quantize", source.DType())}
	}
	shape := source.Shape()
	q := &quantization{name: name, source: source, scheme: s, cols: int(shape[len(shape)-1]),
		rows: int(shape[len(shape)-2]), stack: 1, shape: shape}
	for _, d := range shape[:len(shape)-2] {
		q.stack *= int(d)
	}
	q.blockRows = max(1, min(q.rows, blockBytes/(q.cols*source.DType().Size())))
	if s.Method == quantize.HQQ {
		q.searches = newSearches(q)
	}
	return q, nil
}

// Provenance names the source and the scheme.
func (q *quantization) Provenance() string {
	if q.scheme.Mode != ir.Affine {
		return fmt.Sprintf("quantize(%s,%s,%s,%d)", q.source.Provenance(), q.scheme.Method,
			q.scheme.Mode, q.scheme.GroupSize)
	}
	params := ""
	if q.scheme.Params != quantize.BF16 {
		params = "," + q.scheme.Params.String()
	}
	return fmt.Sprintf("quantize(%s,%s,%d,%d%s)", q.source.Provenance(), q.scheme.Method, q.scheme.Bits,
		q.scheme.GroupSize, params)
}

// outputs of a quantization.
const (
	packedOutput = iota
	scalesOutput
	biasesOutput
)

// outputs returns the number of outputs: modes other than affine have no biases.
func (q *quantization) outputs() int {
	if q.scheme.HasBiases() {
		return biasesOutput + 1
	}
	return scalesOutput + 1
}

// paramTypes are the dtypes of scales and biases of the mode affine.
var paramTypes = map[quantize.Float]ir.DType{quantize.BF16: ir.BF16, quantize.F16: ir.F16, quantize.F32: ir.F32}

func (q *quantization) output(i int) ir.Data {
	last := int64(q.scheme.ParamCols(q.cols))
	d := q.scaleDType()
	if i == packedOutput {
		last, d = int64(q.scheme.PackedCols(q.cols)), ir.U32
	}
	shape := append(append([]int64{}, q.shape[:len(q.shape)-1]...), last)
	return quantizedPart{q, i, d, shape}
}

// storedGroup returns the group size of the stored form.
func (q *quantization) storedGroup() int { return q.scheme.StoredGroupSize(q.cols) }

// rowBytes returns the number of bytes of a row of an output.
func (q *quantization) rowBytes(output int) int64 {
	if output == packedOutput {
		return int64(4 * q.scheme.PackedCols(q.cols))
	}
	return int64(q.scaleDType().Size() * q.scheme.ParamCols(q.cols))
}

// scaleDType returns the dtype of scales and biases.
func (q *quantization) scaleDType() ir.DType {
	if q.scheme.Mode != ir.Affine {
		return ir.U8
	}
	return paramTypes[q.scheme.Params]
}

// matrixBlocks returns the number of blocks of a matrix: none spans two.
func (q *quantization) matrixBlocks() int { return (q.rows + q.blockRows - 1) / q.blockRows }

// Blocks returns the number of blocks of rows.
func (q *quantization) Blocks() int { return q.stack * q.matrixBlocks() }

// blockRange returns the rows of the stack in block i.
func (q *quantization) blockRange(i int) (first, rows int) {
	matrix, within := i/q.matrixBlocks(), i%q.matrixBlocks()*q.blockRows
	return matrix*q.rows + within, min(q.blockRows, q.rows-within)
}

// Produce computes all blocks in order.
func (q *quantization) Produce(emit func(output int, offset int64, p []byte) error) error {
	for i := range q.Blocks() {
		if err := q.ProduceBlock(i, emit); err != nil {
			return err
		}
	}
	return nil
}

// ProduceBlock computes block i.
func (q *quantization) ProduceBlock(i int, emit func(output int, offset int64, p []byte) error) error {
	w := newBlockWork()
	defer w.release()
	if err := q.block(w, i); err != nil {
		return err
	}
	first, _ := q.blockRange(i)
	for output, p := range w.encoded[:q.outputs()] {
		if err := emit(output, int64(first)*q.rowBytes(output), p); err != nil {
			return err
		}
	}
	return nil
}

// blockWork is the scratch memory for a block, reused from block to block and from weight to weight.
type blockWork struct {
	raw     []byte
	values  []float32
	result  quantize.Result
	stored  []float32 // the result's weights
	encoded [3][]byte
}

var blockWorks = sync.Pool{New: func() any { return new(blockWork) }}

func newBlockWork() *blockWork { return blockWorks.Get().(*blockWork) }
func (w *blockWork) release()  { blockWorks.Put(w) }
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// tiles reads block i and calls f for one piece of rows after another.
func (q *quantization) tiles(w *blockWork, i int, f func(first, rows int) error) error {
	size := q.source.DType().Size()
	first, rows := q.blockRange(i)
	w.raw = grow(w.raw, rows*q.cols*size)
	if got, err := q.source.ReadAt(w.raw, int64(first)*int64(q.cols*size)); got < len(w.raw) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("tensor %s: %w", q.name, err)
	}
	raw, format := w.raw, floatOf(q.source.DType())
	for rows > 0 {
		n := min(rows, max(1, tileWeights/q.cols))
		w.values = grow(w.values, n*q.cols)
		format.Decode(w.values, raw)
		if err := f(first, n); err != nil {
			return fmt.Errorf("tensor %s, rows from %d: %w", q.name, first, err)
		}
		first, rows, raw = first+n, rows-n, raw[n*q.cols*size:]
	}
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

// block quantizes block i and encodes the outputs.
func (q *quantization) block(w *blockWork, i int) error {
	for output, p := range w.encoded {
		w.encoded[output] = p[:0]
	}
	quantizeTile := func(_, rows int) error { return quantize.Quantize(&w.result, w.values, rows, q.cols, q.scheme) }
	if q.scheme.Method == quantize.HQQ {
		s, err := q.search(i / q.matrixBlocks())
		if err != nil {
			return err
		}
		defer s.release()
		scheme := q.scheme
		scheme.Iterations = s.test.Iterations()
		quantizeTile = func(first, rows int) error {
			return quantize.QuantizeFitted(&w.result, w.values, rows, q.cols, scheme, s.fitsOf(q, first, rows))
		}
	}
	measured := false
	return q.tiles(w, i, func(first, rows int) error {
		if err := quantizeTile(first, rows); err != nil {
			return err
		}
		if !measured { // a tile of each block is enough to know the error
			measured = true
			noise, signal, stored, err := squares(&w.result, w.values, w.stored)
			if err != nil {
				return err
			}
			w.stored = stored
			q.measured.set(i, noise, signal)
		}
		w.encode(q.scheme.Params)
		return nil
	})
}

// encode appends the result, with scales and biases of a format.
func (w *blockWork) encode(params quantize.Float) {
	words := w.extend(packedOutput, 4*len(w.result.Packed))
	for i, word := range w.result.Packed {
		binary.LittleEndian.PutUint32(words[4*i:], word)
	}
	if w.result.Mode != ir.Affine {
		w.result.EncodeScales(w.extend(scalesOutput, len(w.result.Scales)))
		return
	}
	params.Encode(w.extend(scalesOutput, params.Size()*len(w.result.Scales)), w.result.Scales)
	params.Encode(w.extend(biasesOutput, params.Size()*len(w.result.Biases)), w.result.Biases)
}

// extend makes an output n bytes longer and gives those.
func (w *blockWork) extend(output, n int) []byte {
	p := w.encoded[output]
	w.encoded[output] = slices.Grow(p, n)[:len(p)+n]
	return w.encoded[output][len(p):]
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
	w := newBlockWork()
	defer w.release()
	row := int(off / rowBytes)
	for i := row/p.q.rows*p.q.matrixBlocks() + row%p.q.rows/p.q.blockRows; n < len(dst) && i < p.q.Blocks(); i++ {
		if err := p.q.block(w, i); err != nil {
			return n, err
		}
		first, _ := p.q.blockRange(i)
		n += copy(dst[n:], w.encoded[p.number][max(0, off+int64(n)-int64(first)*rowBytes):])
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
