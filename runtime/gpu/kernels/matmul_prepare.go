package kernels

import "fmt"

// Prepare brings x f32 [T, K] into the form that tiled products take, normed: bf16, or f32 where Exact. Packed is that
// of the products' Matrices. What a row becomes does not depend on the number of rows.
type Prepare struct {
	K      int
	Exact  bool
	Packed int
	Norm   Norm
	Eps    float32
}

const (
	// prepareThreads is the number of threads of a threadgroup where rows are not normed. They are few, so that few
	// rows too go to many multiprocessors: the time is that of one read of memory.
	prepareThreads = 64
	// prepareNormed is the number of threads up to which several packed rows that are normed share a threadgroup.
	prepareNormed = 512
)

// Size is the number of elements of Y for tokens vectors: packed ones are a whole number of tiles.
func (p Prepare) Size(tokens int) int {
	if n := p.eights(); n > 0 {
		tokens = ceil(tokens, n*8) * n * 8
	}
	return tokens * p.K
}

// Launch is the dispatch for up to tokens vectors. It takes MatMulPrepareArguments: X f32 [T, K], Norm [K], Y [T, K].
// No kernel may write Norm: it is read before it is this kernel's turn.
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

// items is the number of parts of a row that a thread takes at a time: eight columns, or 32 that are packed.
func (p Prepare) items() int {
	if p.eights() > 0 {
		return p.K / 32
	}
	return p.K / 8
}

// divided returns how many rows a threadgroup has, how many items of a row a thread, and the number of threads. None
// follows from the number of rows of a call. A tile of packed rows has the pieces of its rows one behind the other, so
// that eight rows fill a line of 128 bytes. A row that is normed is in one threadgroup with all of its columns, so that
// fewer rows share it.
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

// Reference computes what the kernel does for len(x)/K vectors, but for the rounding to bf16.
func (p Prepare) Reference(x, norm, y []float32) {
	v := Vectors{K: p.K, Norm: p.Norm, Eps: p.Eps}
	for t := range len(x) / p.K {
		for k, e := range v.normed(x[t*p.K:(t+1)*p.K], norm) {
			y[p.at(t, k)] = float32(e)
		}
	}
}
