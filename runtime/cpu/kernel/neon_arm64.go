package kernel

// neonWith is a level of arm64, whose integer products have two kinds. It is long because it is a table: the functions
// of the level.
func neonWith(name string, dotInteger [2][2]func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
	sums []float32, cols, group int), tileInteger [2][2]func(sums []float32, panel []byte, scales, biases []float32,
	codes []int8, codeStride int, codeScales, codeSums []float32, groupStride, vectors, groups,
	group int)) *implementation {
	return &implementation{
		name: name,

		singleLimit: [2]int{3, 1},
		deltaLimit:  15,

		touch: touchNEON,

		codeBlock: 32,
		quantize:  quantizeNEON,
		groupSums: groupSumsNEON,
		spread: func(dst, x []float32) {
			whole := len(x) &^ 31
			spread4NEON(dst, x[:whole])
			if whole < len(x) {
				var rest [32]float32
				copy(rest[:], x[whole:])
				spread4NEON(dst[whole:], rest[:])
			}
		},

		expandE2M1: expandE2M1NEON,
		halfSix:    halfSixNEON,
		expandE4M3: expandE4M3NEON,
		fromCodes:  fromCodesGeneric,

		dotQuantized: [2][2]func(y []float32, data, scales, biases []byte, x, sums []float32, cols, group int){
			{dotQuantizedQ4BF16NEON, dotQuantizedQ4F32NEON},
			{dotQuantizedQ8BF16NEON, dotQuantizedQ8F32NEON},
		},
		dotInteger: dotInteger,
		dotDense: [2]func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32,
			xStride, vectors, cols int){
			dotDenseBF16NEON, dotDenseF32NEON,
		},

		panelRows:   8,
		tileVectors: 8, tileCodeVectors: 8,
		tileFloat: [2]func(sums []float32, stride int, panel []byte, panelBytes int, x []float32, xStride, vectors,
			depth int, keep float32){
			tileFloatBF16NEON, tileFloatF32NEON,
		},
		tileInteger: tileInteger,

		packRows: 4,
		packCodes: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int){
			packCodesQ4NEON, packCodesQ8NEON,
		},
		packQuantized: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int, scales, biases []float32,
			scaleStride, group int){
			packQuantizedQ4NEON, packQuantizedQ8NEON,
		},
		packDense: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int){
			packDenseBF16NEON, packDenseF32NEON,
		},
		packScales: [2]func(dst []float32, stride int, data []byte, rowBytes, groups int){
			packScalesNEON(BF16), packScalesNEON(F32),
		},

		vectorFunctions: vectorFunctions{
			fromBF16: func(dst []float32, src []byte) {
				whole := len(dst) &^ 7
				fromBF16NEON(dst[:whole], src[:2*whole])
				genericVectorFunctions.fromBF16(dst[whole:], src[2*whole:])
			},
			toBF16: func(dst []byte, src []float32) {
				whole := len(src) &^ 3
				toBF16NEON(dst[:2*whole], src[:whole])
				genericVectorFunctions.toBF16(dst[2*whole:], src[whole:])
			},
			add:   addNEON,
			mul:   mulNEON,
			scale: scaleNEON,
			axpy:  axpyNEON,
			dot:   dotNEON,
			sum:   sumNEON,
			maximum: func(x []float32) float32 {
				whole := len(x) &^ 3
				return max(maximumNEON(x[:whole]), genericVectorFunctions.maximum(x[whole:]))
			},
			scaleMul:   scaleMulNEON,
			exp:        expNEON,
			sigmoid:    sigmoidNEON,
			sigmoidMul: sigmoidMulNEON,
			siluMul:    siluMulNEON,
			geluMul:    geluMulNEON,
			tanh:       tanhNEON,
			rotate: func(x, cos, sin []float32) {
				rotateHalvesNEON(x[:len(cos)], x[len(cos):], cos, sin)
			},
			convolve:  func(dst, taps, weight []float32) { convolveNEON(dst, taps, weight, len(taps)/len(dst)) },
			scaleRows: scaleRowsNEON,
			deltaRows: deltaRowsNEON,
		},
	}
}

// packScalesNEON turns 4 rows of numbers.
func packScalesNEON(format Format) func(dst []float32, stride int, data []byte, rowBytes, groups int) {
	return func(dst []float32, stride int, data []byte, rowBytes, groups int) {
		for r := range 4 {
			row := data[r*rowBytes:]
			for g := range groups {
				dst[g*stride+r] = stored(row, format, g)
			}
		}
	}
}

// inParts calls a tileInteger function that takes a few vectors at most.
func inParts(most int, tile func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int,
	codeScales, codeSums []float32, groupStride, vectors, groups, group int)) func(sums []float32, panel []byte, scales,
	biases []float32, codes []int8, codeStride int, codeScales, codeSums []float32, groupStride,
	vectors, groups, group int) {
	return func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int, codeScales,
		codeSums []float32, groupStride, vectors, groups, group int) {
		for i := 0; i < vectors; i += most {
			tile(sums[i*8:], panel, scales, biases, codes[i*codeStride:], codeStride, codeScales[i*groupStride:],
				codeSums[i*groupStride:], groupStride, min(most, vectors-i), groups, group)
		}
	}
}
