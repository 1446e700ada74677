package dot

// Strides are in elements.
//
//go:noescape
func tileNEON(out *float32, outStride int, a *float32, aStride int, b *float32, bStride, cols, k int)

// tileProducts sets out, of two rows and a multiple of four columns, to a·bᵀ, for rows of a multiple of eight numbers.
func tileProducts(out, a, b Matrix) {
	_, _, _ = out.Values[out.Stride+out.Cols-1], a.Values[a.Stride+a.Cols-1], b.Values[(out.Cols-1)*b.Stride+b.Cols-1]
	tileNEON(&out.Values[0], out.Stride, &a.Values[0], a.Stride, &b.Values[0], b.Stride, out.Cols, a.Cols)
}
