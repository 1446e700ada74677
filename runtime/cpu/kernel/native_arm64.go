package kernel

import "golang.org/x/sys/cpu"

// native returns the levels of this CPU, the best last: "neon", which every arm64 has, and "dotprod" with the dot
// product instructions of Armv8.2: Apple's M series, Neoverse N1 and Cortex-A75 and later.
func native() []*implementation {
	levels := []*implementation{neonWith("neon", dotIntegerNEON, tileIntegerNEON)}
	if cpu.ARM64.HasASIMDDP {
		levels = append(levels, neonWith("dotprod", dotIntegerDotProd, tileIntegerDotProd))
	}
	return levels
}

var (
	dotIntegerNEON = [2][2]func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
		sums []float32, cols, group int){
		{dotIntegerQ4BF16NEON, dotIntegerQ4F32NEON},
		{dotIntegerQ8BF16NEON, dotIntegerQ8F32NEON},
	}
	dotIntegerDotProd = [2][2]func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
		sums []float32, cols, group int){
		{dotIntegerQ4BF16DotProd, dotIntegerQ4F32DotProd},
		{dotIntegerQ8BF16DotProd, dotIntegerQ8F32DotProd},
	}
	tileIntegerNEON = [2][2]func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int,
		codeScales, codeSums []float32, groupStride, vectors, groups, group int){
		{inParts(4, tileIntegerQ4NEON), inParts(4, tileIntegerQ4NEON)},
		{inParts(4, tileIntegerQ8NEON), inParts(4, tileIntegerQ8NEON)},
	}
	tileIntegerDotProd = [2][2]func(sums []float32, panel []byte, scales, biases []float32, codes []int8,
		codeStride int, codeScales, codeSums []float32, groupStride, vectors, groups, group int){
		{tileIntegerQ4DotProd, tileIntegerQ4DotProd},
		{inParts(4, tileIntegerQ8DotProd), inParts(4, tileIntegerQ8DotProd)},
	}
)
