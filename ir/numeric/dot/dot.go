package dot

// Product is the sum of products that every matrix product of the reference semantics consists of: eight partial sums over
// k mod 8, joined pairwise. x and y have one length. Its bits are the same on every CPU.
func Product(x, y []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	y = y[:len(x)]
	for len(x) >= 8 {
		a, b := (*[8]float32)(x), (*[8]float32)(y)
		s0 += float32(a[0] * b[0])
		s1 += float32(a[1] * b[1])
		s2 += float32(a[2] * b[2])
		s3 += float32(a[3] * b[3])
		s4 += float32(a[4] * b[4])
		s5 += float32(a[5] * b[5])
		s6 += float32(a[6] * b[6])
		s7 += float32(a[7] * b[7])
		x, y = x[8:], y[8:]
	}
	for k := range x {
		s0 += float32(x[k] * y[k])
	}
	return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
}

// Rows sets out[i·stride+j] to the [Product] of row i of a [m, k] and row j of b [n, k], for all i and j. stride is at
// least n.
func Rows(out []float32, stride int, a []float32, m int, b []float32, n, k int) {
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		for i := range m {
			clear(out[i*stride : i*stride+n])
		}
		return
	}
	_, _, _ = out[(m-1)*stride+n-1], a[m*k-1], b[n*k-1]
	i, cols := 0, 0
	if k%8 == 0 {
		cols = n &^ (tileCols - 1)
		for ; i+tileRows <= m && cols > 0; i += tileRows {
			tileProducts(out[i*stride:], stride, a[i*k:], b, cols, k)
		}
	}
	for r := range m {
		first := 0
		if r < i {
			first = cols
		}
		for j := first; j < n; j++ {
			out[r*stride+j] = Product(a[r*k:(r+1)*k], b[j*k:(j+1)*k])
		}
	}
}

// A tile is what the kernels of [Rows] compute at a time.
const tileRows, tileCols = 2, 4
