package dot

import "golang.org/x/sys/cpu"

// avx2 chooses the kernel of tile_amd64.s, which gives the bits of [Product].
var avx2 = cpu.X86.HasAVX2

//go:noescape
func tileAVX2(out *float32, stride int, a, b *float32, cols, k int)

// tileProducts is [Rows] of two rows of a and cols rows of b, a multiple of 4; k is a multiple of 8 and not 0.
func tileProducts(out []float32, stride int, a, b []float32, cols, k int) {
	if !avx2 {
		tileGeneric(out, stride, a, b, cols, k)
		return
	}
	_, _, _ = out[stride+cols-1], a[2*k-1], b[cols*k-1]
	tileAVX2(&out[0], stride, &a[0], &b[0], cols, k)
}
