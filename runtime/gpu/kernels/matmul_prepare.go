package kernels

import "fmt"

// Prepare brings x f32 [T, K] into the form that tiled products take, after a norm if Norm says so. The result is bf16,
// or f32 if Exact. Packed is the same as in the products' Matrices. The result for a row does not depend on the number
// of rows.
type Prepare struct {
	K      int
	Exact  bool
	Packed int
	Norm   Norm
	Eps    float32
}

const (
	// prepareThreads is the number of threads of a threadgroup if there is no norm. It is small, so that even a few
	// rows are spread over many multiprocessors. Then the kernel takes about as long as one read of memory.
	prepareThreads = 64
	// prepareNormed is the largest number of threads of a threadgroup that norms several packed rows.
	prepareNormed = 512
)

// Size returns the number of elements of Y for tokens vectors. Packed vectors take a whole number of tiles.
func (p Prepare) Size(tokens int) int {
	if n := p.eights(); n > 0 {
		tokens = ceil(tokens, n*8) * n * 8
	}
	return tokens * p.K
}

// Launch is the dispatch for up to tokens vectors. It takes MatMulPrepareArguments: X f32 [T, K], Norm [K], Y [T, K].
// No kernel may write Norm, since this kernel reads it before the kernels before it are done.
func (p Prepare) Launch(tokens int) (Launch, error) {
	if p.K <= 0 || p.K%8 != 0 {
		return Launch{}, fmt.Errorf("matmul_prepare: %d columns, want a multiple of 8", p.K)
	}
	if p.Packed != 0 && (p.Exact || p.K%packedColumns != 0) {
		return Launch{}, fmt.Errorf("matmul_prepare: %d columns to pack, want a multiple of %d in bf16", p.K,
			packedColumns)
	}
	rows, each, threads := p.divided()
	columns := 1
	if p.Norm == NoNorm {
		columns = ceil(p.items(), threads/rows)
	}
	return Launch{
		File: "matmul_prepare", Kernel: "matmul_prepare", Case: p.newCase,
		Defines: define("PREPARE_K", p.K, "PREPARE_EXACT", p.Exact, "PREPARE_NORM", int(p.Norm), "PREPARE_EPS", p.Eps,
			"PREPARE_EIGHTS", p.eights(), "PREPARE_LANES", p.Packed == InLanes, "PREPARE_ROWS", rows, "PREPARE_EACH", each,
			"PREPARE_THREADS", threads),
		Groups: [3]int{ceil(tokens, rows), columns, 1}, Threads: [3]int{threads, 1, 1},
	}, nil
}

// items returns the number of items of a row. An item is what a thread takes at a time: eight columns, or 32 if packed.
func (p Prepare) items() int {
	if p.eights() > 0 {
		return p.K / 32
	}
	return p.K / 8
}

// divided returns the number of rows of a threadgroup, the number of items of a row that each thread takes, and the
// number of threads. None of them depends on the number of rows of a call. In a tile of packed rows the pieces of
// adjacent rows, 16 bytes each, are adjacent, so eight rows fill a cache line of 128 bytes. With a norm one threadgroup
// has all columns of a row, so it has fewer rows.
func (p Prepare) divided() (rows, each, threads int) {
	items, packed := p.items(), p.eights() > 0
	if p.Norm == NoNorm {
		if packed {
			return 8, 1, prepareThreads
		}
		return 1, 1, min(prepareThreads, ceil(items, 32)*32)
	}
	for rows = 1; packed && rows < 4 && 2*rows*items <= prepareNormed; {
		rows *= 2
	}
	each = ceil(items*rows, 1024)
	return rows, each, ceil(ceil(items, each)*rows, 32) * 32
}

// Reference computes what the kernel computes for len(x)/K vectors, without the rounding to bf16.
func (p Prepare) Reference(x, norm, y []float32) {
	v := Vectors{K: p.K, Norm: p.Norm, Eps: p.Eps}
	for t := range len(x) / p.K {
		for k, e := range v.normed(x[t*p.K:(t+1)*p.K], norm) {
			y[p.at(t, k)] = float32(e)
		}
	}
}
