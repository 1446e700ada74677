package kernel

import "math"

// generic is the level of plain Go. Its functions define what the other levels compute, up to the order
// of float32 additions.
var generic = implementation{
	name: "generic",

	singleLimit: [2]int{1, 1},
	deltaLimit:  math.MaxInt,

	touch: touchGeneric,

	codeBlock: 1,
	quantize:  quantizeGeneric,
	groupSums: groupSumsGeneric,
	spread:    spreadGeneric,

	expandE2M1: expandE2M1Generic,
	halfSix:    halfSixGeneric,
	expandE4M3: expandE4M3Generic,
	fromCodes:  fromCodesGeneric,

	dotQuantized: [2][2]func(y []float32, data, scales, biases []byte, x, sums []float32, cols, group int){
		{dotQuantizedGeneric(Q4, BF16), dotQuantizedGeneric(Q4, F32)},
		{dotQuantizedGeneric(Q8, BF16), dotQuantizedGeneric(Q8, F32)},
	},
	dotInteger: [2][2]func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
		sums []float32, cols, group int){
		{dotIntegerGeneric(Q4, BF16), dotIntegerGeneric(Q4, F32)},
		{dotIntegerGeneric(Q8, BF16), dotIntegerGeneric(Q8, F32)},
	},
	dotDense: [2]func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32,
		xStride, vectors, cols int){
		dotDenseGeneric(BF16), dotDenseGeneric(F32),
	},

	panelRows:   8,
	tileVectors: 4, tileCodeVectors: 4,
	tileFloat: [2]func(sums []float32, stride int, panel []byte, panelBytes int, x []float32, xStride, vectors,
		depth int, keep float32){
		tileFloatGeneric(BF16, 8), tileFloatGeneric(F32, 8),
	},
	tileInteger: [2][2]func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int,
		codeScales, codeSums []float32, groupStride, vectors, groups, group int){
		{tileIntegerGeneric(8), tileIntegerGeneric(8)},
		{tileIntegerGeneric(8), tileIntegerGeneric(8)},
	},

	vectorFunctions: genericVectorFunctions,
}
