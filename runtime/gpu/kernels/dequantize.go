package kernels

import "fmt"

// Dequantize converts a stored weight [N, K] to bf16, for a library of matrix products.
type Dequantize struct {
	Format
	N, K int
}

// Launch is the dispatch. It takes DequantizeArguments: Y bf16 [N, K].
func (d Dequantize) Launch() (Launch, error) {
	if err := d.check(d.K); err != nil {
		return Launch{}, fmt.Errorf("dequantize [%d, %d]: %w", d.N, d.K, err)
	}
	threads := min(256, ceil(d.K/8, 32)*32)
	return Launch{
		File: "dequantize", Kernel: "dequantize", Case: d.newCase,
		Defines: append(d.defines(), define("DEQUANTIZE_K", d.K, "DEQUANTIZE_THREADS", threads)...),
		Groups:  [3]int{d.N, ceil(d.K/8, threads), 1}, Threads: [3]int{threads, 1, 1},
	}, nil
}

// Reference computes what the kernel does, as numbers.
func (d Dequantize) Reference(w *Weight, y []float32) {
	for n := range d.N {
		for k := range d.K {
			y[n*d.K+k] = roundBF16(float32(w.At(n, k)))
		}
	}
}
