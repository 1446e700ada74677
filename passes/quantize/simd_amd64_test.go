package quantize

import "testing"

// TestSameBitsWithoutKernels runs the tests of bits on a processor without AVX2.
func TestSameBitsWithoutKernels(t *testing.T) {
	if !avx2 {
		t.Log("this processor has no AVX2; the other tests ran without kernels")
	}
	defer func(before bool) { avx2 = before }(avx2)
	avx2 = false
	t.Run("same bits", TestSameBits)
	t.Run("mlx", TestMinMaxEqualsMLX)
	t.Run("torchao", TestTorchAO)
}
