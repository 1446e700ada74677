//go:build !amd64

package dot

func tileProducts(out []float32, stride int, a, b []float32, cols, k int) {
	tileGeneric(out, stride, a, b, cols, k)
}
