package kernel

import "fmt"

// MatMul is y[i][r] = Σ_k a[i][k]·w[r][k] for every vector i of a and rows r of w in [row0, row1). y is
// [a.Vectors(), stride] and its other elements are left alone; the element of row r is at r. It does not
// depend on how the rows are divided among calls. a must have the layout of w on one of the paths.
//
// With one vector a call reads the rows once, in order. With many it unpacks panels of rows and multiplies
// them in tiles; ranges of rows that are multiples of PanelRows waste nothing. For what lies between see few.go.
func MatMul(y []float32, stride int, w *Matrix, a *Activations, row0, row1 int) {
	if !w.takes(a.layout) || a.cols != w.Cols {
		panic(fmt.Sprintf("kernel: %v matrix of %d × %d elements in groups of %d with activations of %d elements for "+
			"%v in groups of %d", w.Format, w.Rows, w.Cols, w.Group, a.cols, a.layout.Format, a.layout.Group))
	}
	if row0 < 0 || row0 > row1 || row1 > w.Rows ||
		a.vectors > 0 && (stride < row1 || len(y) < (a.vectors-1)*stride+row1) {
		panic(fmt.Sprintf("kernel: rows %d to %d of %d to %d × %d of %d elements", row0, row1, w.Rows,
			a.vectors, stride, len(y)))
	}
	if row0 == row1 || a.vectors == 0 {
		return
	}
	if w.Format.SmallFloats() {
		matMulSmallFloats(y, stride, w, a, row0, row1)
		return
	}
	part := w.Slice(row0, row1)
	switch {
	case a.layout.Alone && !a.layout.tiled():
		matMulAlone(y[row0:], stride, &part, a)
	case !w.Format.Quantized() && a.vectors <= denseDotLimit:
		active.dotDense[floatIndex(w.Format)](y[row0:], stride, part.Data, part.rowBytes(), part.Rows, a.values,
			a.valueStride, a.vectors, a.cols)
	case !a.single || !w.Format.Quantized():
		switch {
		case a.blocked():
			matMulBlocks(y[row0:], stride, &part, a)
		case a.layout.Path == Integer && a.isFew(&part):
			matMulFew(y[row0:], stride, &part, a)
		case a.layout.Path == Integer:
			matMulInteger(y[row0:], stride, &part, a)
		default:
			matMulFloat(y[row0:], stride, &part, a)
		}
	default:
		matMulAlone(y[row0:], stride, &part, a)
	}
}

// aloneBytes is what the rows of matMulAlone take at most, so that they stay in a core's second cache for all
// vectors. In less, as the first cache holds, the first vector would wait for memory at the start of each step: see
// pieces of cpu.
const aloneBytes = 128 << 10

// matMulAlone is MatMul of all rows of w with one vector after the other, some rows at a time.
func matMulAlone(y []float32, stride int, w *Matrix, a *Activations) {
	step := max(aloneBytes/max(w.Bytes(1), 1), 4) &^ 3
	if a.vectors == 1 { // nothing is read twice, and a kernel asks for rows ahead as far as its own go
		step = w.Rows
	}
	for row := 0; row < w.Rows; row += step {
		part := w.Slice(row, min(row+step, w.Rows))
		for i := range a.vectors {
			matMulOne(y[i*stride+row:][:part.Rows], &part, a, i)
		}
	}
}

// matMulOne multiplies all rows of w with vector i of a, which is ordered for products with one row at a time.
func matMulOne(out []float32, w *Matrix, a *Activations, i int) {
	if !w.Format.Quantized() {
		active.dotDense[floatIndex(w.Format)](out, len(out), w.Data, w.rowBytes(), w.Rows, a.values[i*a.valueStride:],
			a.valueStride, 1, a.cols)
		return
	}
	bits, scale, sums := w.bitsIndex(), w.scaleIndex(), a.groupRow(a.sums, i)
	if a.layout.Path == Integer {
		active.dotInteger[bits][scale](out, w.Data, w.Scales, w.Biases, a.codes[i*a.codeStride:][:a.codeStride],
			a.groupRow(a.scales, i), sums, a.cols, w.Group)
		return
	}
	active.dotQuantized[bits][scale](out, w.Data, w.Scales, w.Biases, a.values[i*a.valueStride:][:a.valueStride], sums,
		a.cols, w.Group)
}

// denseDotLimit is the largest number of vectors for which rows that are not quantized are multiplied one
// by one: unpacking them costs more.
const denseDotLimit = 8

// PanelRows returns the number of rows that MatMul unpacks at a time.
func PanelRows() int { return active.panelRows }
