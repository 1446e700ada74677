package kernel

// dotInteger is the type of functions that multiply rows of codes by one vector of codes.
type dotInteger = func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
	sums []float32, cols, group int)

// inFours multiplies the rows by four, which takes a multiple of 4 rows and of some groups, and what is left by
// one, with the same bits. Codes have bits bits, scales scaleSize bytes.
func inFours(bits, scaleSize, groups int, four, one dotInteger) dotInteger {
	return func(y []float32, data, scales, biases []byte, codes []int8, codeScales, sums []float32, cols, group int) {
		whole := len(y) &^ 3
		if cols/group%groups != 0 {
			whole = 0
		}
		if whole > 0 {
			four(y[:whole], data, scales, biases, codes, codeScales, sums, cols, group)
		}
		if whole < len(y) {
			at := whole * (cols / group) * scaleSize
			if biases != nil {
				biases = biases[at:]
			}
			one(y[whole:], data[whole*cols*bits/8:], scales[at:], biases, codes, codeScales, sums, cols, group)
		}
	}
}

// dotDense is the type of functions that multiply rows that are not quantized by vectors.
type dotDense = func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32, xStride, vectors, cols int)

// denseInFours is inFours for rows of elements of size bytes, where there is one vector.
func denseInFours(size int, four func(y []float32, data []byte, x []float32), one dotDense) dotDense {
	return func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32, xStride, vectors, cols int) {
		if vectors == 1 && rowBytes == cols*size && rows >= 4 {
			whole := rows &^ 3
			four(y[:whole], data, x[:cols])
			y, data, rows = y[whole:], data[whole*rowBytes:], rows-whole
		}
		if rows > 0 {
			one(y, stride, data, rowBytes, rows, x, xStride, vectors, cols)
		}
	}
}
