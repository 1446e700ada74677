package kernel

import "fmt"

// AttentionScores is scores[h][t-lo] = Σ_d q[h][d]·keys[t][d] for every query h and keys [lo, hi). Queries
// are [queries, keys.Cols], qStride elements apart, and come with their scale; keys is a part of a cache,
// BF16 or F32. scores is [queries, stride].
func AttentionScores(scores []float32, stride int, q []float32, qStride, queries int, keys *Matrix, lo, hi int) {
	checkAttention("AttentionScores", keys, lo, hi)
	checkRows("AttentionScores", len(q), qStride, queries, keys.Cols)
	checkRows("AttentionScores", len(scores), stride, queries, hi-lo)
	if lo < hi && queries > 0 {
		width := keys.rowBytes()
		active.dotDense[floatIndex(keys.Format)](scores, stride, keys.Data[lo*width:hi*width], width, hi-lo, q,
			qStride, queries, keys.Cols)
	}
}

// AttentionValues is dst[h][d] += Σ_t weights[h][t-lo]·values[t][d] for every query h and values [lo, hi).
// dst is [queries, values.Cols], dstStride elements apart, and weights [queries, hi-lo], stride elements
// apart.
func AttentionValues(dst []float32, dstStride int, weights []float32, stride, queries int, values *Matrix, lo, hi int) {
	checkAttention("AttentionValues", values, lo, hi)
	checkRows("AttentionValues", len(dst), dstStride, queries, values.Cols)
	checkRows("AttentionValues", len(weights), stride, queries, hi-lo)
	if lo == hi {
		return
	}
	// Some rows at a time, which stay in the first cache while their columns are gone through. A sum adds
	// its products in the order of the rows, whatever their number.
	rows := max(valueBytes/max(values.rowBytes(), 1), 1)
	for at := lo; at < hi; at += rows {
		addValues(dst, dstStride, weights[at-lo:], stride, queries, values, at, min(at+rows, hi))
	}
}

const valueBytes = 16 << 10

func addValues(dst []float32, dstStride int, weights []float32, stride, queries int, values *Matrix, lo, hi int) {
	width, format := values.rowBytes(), values.Format
	data := values.Data[lo*width : hi*width]
	whole := values.Cols - values.Cols%active.panelRows
	for i, n := 0, 0; i < queries; i += n {
		n = tileSize(queries-i, active.tileVectors)
		for at := 0; at < whole; at += active.panelRows {
			active.tileFloat[floatIndex(format)](dst[i*dstStride+at:], dstStride, data[at*format.Bits()/8:], width,
				weights[i*stride:], stride, n, hi-lo, 1)
		}
		if whole < values.Cols {
			tileFloatGeneric(format, values.Cols-whole)(dst[i*dstStride+whole:], dstStride,
				data[whole*format.Bits()/8:], width, weights[i*stride:], stride, n, hi-lo, 1)
		}
	}
}

func checkAttention(name string, w *Matrix, lo, hi int) {
	if w.Format.Quantized() || lo < 0 || lo > hi || hi > w.Rows {
		panic(fmt.Sprintf("kernel: %s: rows %d to %d of a %v matrix of %d rows", name, lo, hi, w.Format, w.Rows))
	}
}

// checkRows panics unless n elements hold rows rows of width elements, stride apart.
func checkRows(name string, n, stride, rows, width int) {
	if stride < 0 || rows > 0 && n < (rows-1)*stride+width {
		panic(fmt.Sprintf("kernel: %s: %d elements for %d rows of %d, %d apart", name, n, rows, width, stride))
	}
}
