//go:build !amd64 && !arm64

package dot

func tileProducts(out, a, b Matrix) { tileGeneric(out, a, b) }
