package kernels

import "fmt"

// Embedding looks up rows of a weight [N, K] by the numbers of tokens: y[t] = Multiplier · w[tokens[t]], with
// negative numbers counted from the end.
type Embedding struct {
	Format
	N, K int
	// Multiplier multiplies the rows; 1 leaves them unchanged.
	Multiplier float32
}

// Launch is the dispatch for up to tokens tokens. It takes EmbeddingArguments: Tokens i32 [T], Y f32 [T, K].
func (e Embedding) Launch(tokens int) (Launch, error) {
	if err := e.check(e.K); err != nil {
		return Launch{}, fmt.Errorf("embedding [%d, %d]: %w", e.N, e.K, err)
	}
	threads := min(256, ceil(e.K/8, 32)*32)
	return Launch{
		File: "embedding", Kernel: "embedding", Case: e.newCase,
		Defines: append(e.defines(), define("EMBED_N", e.N, "EMBED_K", e.K, "EMBED_THREADS", threads,
			"EMBED_MULTIPLIER", e.Multiplier)...),
		Groups: [3]int{ceil(e.K/8, threads), tokens, 1}, Threads: [3]int{threads, 1, 1},
	}, nil
}

// Reference computes what the kernel does: y [len(tokens), K].
func (e Embedding) Reference(w *Weight, tokens []int32, y []float32) {
	for t, row := range tokens {
		if row < 0 {
			row += int32(e.N)
		}
		row = min(max(row, 0), int32(e.N-1))
		for k := range e.K {
			y[t*e.K+k] = float32(w.At(int(row), k) * float64(e.Multiplier))
		}
	}
}
