package passes

import "github.com/etc-ml/etc/ir"

// From returns the weight that is quantized.
func (q *quantization) From() []ir.Data { return []ir.Data{q.source} }

// hqqFitBytes is the memory of hqq's search for each group of a matrix: a float32 and a count, padded.
const hqqFitBytes = 8

// WorkerBytes returns the memory that a worker needs for a block: its source bytes, a tile of decoded weights with
// the quantizer's work on it, and the encoded outputs.
func (q *quantization) WorkerBytes() int64 {
	row := int64(q.cols * q.source.DType().Size())
	_, rows := q.blockRange(0)
	encoded := int64(0)
	for output := range q.outputs() {
		encoded += q.rowBytes(output)
	}
	tile := int64(max(tileWeights, q.cols))
	return int64(rows)*(row+2*encoded) + tile*decodedBytes
}

// decodedBytes is the memory for a weight of a tile while it is quantized: the weight in float32, its code, and the
// data of methods that search.
const decodedBytes = 32

// SharedBytes returns the memory that all workers share while a matrix is being quantized: hqq's fits.
func (q *quantization) SharedBytes() int64 {
	if q.searches == nil {
		return 0
	}
	return hqqFitBytes * int64(q.groups(q.rows))
}

// Skip says that block i is not needed, so that what hqq's search keeps for it can go.
func (q *quantization) Skip(i int) {
	if q.searches != nil {
		q.searches[i/q.matrixBlocks()].release()
	}
}
