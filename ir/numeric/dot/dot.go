package dot

// Product returns the sum of products that every matrix product of the reference semantics consists of: eight partial
// sums over k mod 8, joined pairwise. x and y have one length. Its bits are the same on every CPU.
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

// Matrix is rows of numbers in memory: row i begins at element i·Stride of Values.
type Matrix struct {
	Values             []float32
	Rows, Cols, Stride int
}

// Dense returns a matrix whose rows follow each other.
func Dense(values []float32, rows, cols int) Matrix { return Matrix{values, rows, cols, cols} }

// Row is row i.
func (m Matrix) Row(i int) []float32 { return m.Values[i*m.Stride:][:m.Cols] }

// Part returns the submatrix of m with rows rows and cols columns whose first element is (row, col).
func (m Matrix) Part(row, col, rows, cols int) Matrix {
	return Matrix{m.Values[min(row*m.Stride+col, len(m.Values)):], rows, cols, m.Stride}
}

// Rows sets out[i·stride+j] to the [Product] of row i of a [m, k] and row j of b [n, k], for all i and j. stride is at
// least n.
func Rows(out []float32, stride int, a []float32, m int, b []float32, n, k int) {
	Multiply(Matrix{out, m, n, stride}, Dense(a, m, k), Dense(b, n, k))
}

// Multiply sets out to a·bᵀ: element (i, j) is the [Product] of row i of a and row j of b. It panics where the matrices
// do not fit each other.
func Multiply(out, a, b Matrix) {
	m, n, k := a.Rows, b.Rows, a.Cols
	if out.Rows != m || out.Cols != n || b.Cols != k {
		panic("dot: matrices that do not fit each other")
	}
	if m == 0 || n == 0 {
		return
	}
	_ = out.Values[(m-1)*out.Stride+n-1]
	i, cols := 0, 0
	if k > 0 && k%8 == 0 {
		cols = n &^ (tileCols - 1)
		for ; i+tileRows <= m && cols > 0; i += tileRows {
			tileProducts(out.Part(i, 0, tileRows, cols), a.Part(i, 0, tileRows, k), b)
		}
	}
	for r := range m {
		first := 0
		if r < i {
			first = cols
		}
		for j := first; j < n; j++ {
			out.Values[r*out.Stride+j] = Product(a.Row(r), b.Row(j))
		}
	}
}

// A tile is what the kernels of [Multiply] compute at a time.
const tileRows, tileCols = 2, 4
