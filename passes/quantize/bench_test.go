package quantize

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchWeights returns normally distributed bf16 weights and their bytes.
func benchWeights(rows, cols int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64() * 0.02)
	}
	b := make([]byte, 2*len(w))
	BF16.Encode(b, w)
	return b
}

// BenchmarkQuantize measures the path of an export, from bf16 bytes to packed words; the rate is
// that of the bf16 bytes.
func BenchmarkQuantize(b *testing.B) {
	const rows, cols = 64, 2048
	raw := benchWeights(rows, cols)
	w := make([]float32, rows*cols)
	for _, s := range []Scheme{
		{Method: MinMax, Bits: 4, GroupSize: 64},
		{Method: MinMax, Bits: 8, GroupSize: 64},
		{Method: TorchAOAsymmetric, Bits: 4, GroupSize: 64},
		{Method: TorchAOSymmetric, Bits: 8},
		{Method: HQQ, Bits: 4, GroupSize: 64, Iterations: 20},
		{Method: HQQ, Bits: 4, GroupSize: 64},
		{Method: HQQ, Bits: 8},
		{Method: Best, Bits: 4, GroupSize: 64},
		{Method: Best, Bits: 8, GroupSize: 64},
	} {
		b.Run(fmt.Sprintf("%s/%dbit/g%d/iterations%d", s.Method, s.Bits, s.GroupSize, s.Iterations),
			func(b *testing.B) {
				var r Result
				b.SetBytes(int64(len(raw)))
				for b.Loop() {
					BF16.Decode(w, raw)
					if err := Quantize(&r, w, rows, cols, s); err != nil {
						b.Fatal(err)
					}
				}
			})
	}
}

func BenchmarkDequantize(b *testing.B) {
	const rows, cols = 64, 2048
	w := make([]float32, rows*cols)
	BF16.Decode(w, benchWeights(rows, cols))
	for _, bits := range []int{4, 8} {
		b.Run(fmt.Sprintf("%dbit", bits), func(b *testing.B) {
			var r Result
			if err := Quantize(&r, w, rows, cols, Scheme{Bits: bits, GroupSize: 64}); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(4 * len(w)))
			for b.Loop() {
				if err := r.Dequantize(w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
