package kernel

//go:generate go run ./gen

import (
	"fmt"
	"strings"
)

// implementation is one level: the functions that differ between levels. Exported functions check all
// lengths before they call one.
type implementation struct {
	name string

	// singleLimit is the largest number of vectors, on each path, for which rows of codes are multiplied
	// by one vector after the other; for more it is worth to unpack a panel.
	singleLimit [2]int

	// deltaLimit is the largest number of tokens for which DeltaRule goes step by step.
	deltaLimit int

	// touch is Touch of whole blocks of 256 bytes.
	touch func(data []byte) uint64

	// codeBlock is the order of codes for dotInteger with 4-bit weights, see Activations.codeBlock.
	codeBlock int
	quantize  func(codes []int8, scales, sums, x []float32, group, block int)
	groupSums func(sums, x []float32, group int)
	// spread orders values for dotQuantized with 4-bit weights; len(dst) is len(x) rounded up to a multiple
	// of 128.
	spread func(dst, x []float32)

	// expandE2M1 and the functions below convert rows of small floats to codes of 8 bits or to bf16, see smallfloat.go.
	// Lengths are whole groups.
	expandE2M1 func(dst, src []byte)
	halfSix    func(halves, sixes, scales []byte)
	expandE4M3 func(dst, src, scales []byte)
	// fromCodes reads codes of whole groups of 32, see cacherow.go.
	fromCodes func(dst []float32, codes, scales []byte)

	// Rows times one vector, one function for each of 4 and 8 bits and of BF16 and F32 scales. len(y) is
	// the number of rows.
	dotQuantized [2][2]func(y []float32, data, scales, biases []byte, x, sums []float32, cols, group int)
	dotInteger   [2][2]func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
		sums []float32, cols, group int)
	// Rows of BF16 or F32, rowBytes apart, times several vectors: y[i*stride+r].
	dotDense [2]func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32, xStride, vectors, cols int)

	// Tiles: tileVectors vectors at most, or tileCodeVectors vectors of codes, times panels of panelRows
	// rows, see gemm.go. A float panel is of
	// stored BF16 or F32 numbers, whose rows are panelBytes apart:
	// sums[i*stride+r] = keep·sums[i*stride+r] + Σ_k x[i*xStride+k]·panel[k][r].
	panelRows, tileVectors, tileCodeVectors int
	tileFloat                               [2]func(sums []float32, stride int, panel []byte, panelBytes int,
		x []float32, xStride, vectors, depth int, keep float32)
	// By 4 and 8 bits and by the format of the scales, which are float32 here.
	tileInteger [2][2]func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int,
		codeScales, codeSums []float32, groupStride, vectors, groups, group int)

	// Few vectors of codes, fewVectors at most, times 16 rows of stored codes, by 4 and 8 bits and by the format of the
	// scales: the bits of tileInteger without a panel, see few.go. Scales, biases and sums are those of a panel of 32
	// rows. Nil where a level has no such function.
	fewVectors int
	fewInteger [2][2]func(sums []float32, data []byte, rowBytes int, scales, biases []float32, codes []int8,
		codeStride int, codeScales, codeSums []float32, groupStride, vectors, groups, group int)

	// Blocks of 16 vectors, turned, times 16 rows, see blocks.go; instead of tiles of codes, if not nil.
	blockInteger func(sums []float32, rows []byte, codes []int8, scales, biases, codeScales, codeSums []float32, parts,
		rowStride, scaleStride, blocks, codeStride, codeScaleStride, groups, group int)
	blockRows  [2]func(panel, data []byte, rowBytes, rows, pieces, piece int)
	blockStore func(y []float32, stride int, sums []float32, vectors, rows int)

	// Panels are packed in squares of packRows rows and as many 32-bit words, chunks of them in a row, see
	// pack.go. With packRows 0 there are none of these functions.
	packRows      int
	packCodes     [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int)
	packQuantized [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int, scales, biases []float32,
		scaleStride, group int)
	packDense  [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int)
	packScales [2]func(dst []float32, stride int, data []byte, rowBytes, groups int)

	vectorFunctions
}

// vectorFunctions are the functions of vectors, see vector.go.
type vectorFunctions struct {
	fromBF16   func(dst []float32, src []byte)
	toBF16     func(dst []byte, src []float32)
	add        func(dst, a, b []float32)
	mul        func(dst, a, b []float32)
	scale      func(dst, x []float32, s float32)
	axpy       func(dst []float32, s float32, x []float32)
	dot        func(a, b []float32) float32
	sum        func(x []float32) float32
	maximum    func(x []float32) float32
	scaleMul   func(dst, x, weight []float32, s float32)
	exp        func(dst, x []float32, shift float32) float32
	sigmoid    func(dst, x []float32)
	sigmoidMul func(dst, gate, x []float32)
	tanh       func(dst, x []float32)
	siluMul    func(dst, gate, up []float32)
	geluMul    func(dst, gate, up []float32)
	rotate     func(x, cos, sin []float32)
	convolve   func(dst, taps, weight []float32)
	scaleRows  func(dst []float32, dstStride int, x []float32, xStride int, factors []float32, cols int)
	deltaRows  func(y, state, q, k, v []float32, decay, beta float32)
}

// implementations of this CPU, the best last.
var implementations = append([]*implementation{&generic}, native()...)

// active is the level that the exported functions use.
var active = implementations[len(implementations)-1]

// Level returns the name of the level in use: the best one that the CPU has, unless SetLevel chose another.
func Level() string { return active.name }

// Levels returns the names of the levels that this CPU can run, the best last.
func Levels() []string {
	names := make([]string, len(implementations))
	for i, level := range implementations {
		names[i] = level.name
	}
	return names
}

// SetLevel chooses the level of all kernels, one of Levels. It is for the start of a program and for tests:
// no kernel may run meanwhile, and Activations filled at one level are not readable at another.
func SetLevel(name string) error {
	for _, level := range implementations {
		if level.name == name {
			active = level
			return nil
		}
	}
	return fmt.Errorf("CPU level %q: this CPU has %s", name, strings.Join(Levels(), ", "))
}
