package kernel

// avx2 is the level of CPUs with AVX2, FMA and BMI2: Intel from Haswell on, AMD from Zen on.
var avx2 = implementation{
	name: "avx2",

	singleLimit: [2]int{3, 2},
	deltaLimit:  11,

	touch: touchAVX2,

	codeBlock: 64,
	quantize:  quantizeAVX2,
	groupSums: groupSumsAVX2,
	spread: func(dst, x []float32) {
		whole := len(x) &^ 63
		spread4AVX2(dst, x[:whole])
		if whole < len(x) {
			var rest [64]float32
			copy(rest[:], x[whole:])
			spread4AVX2(dst[whole:], rest[:])
		}
	},

	expandE2M1: expandE2M1AVX2,
	halfSix:    halfSixAVX2,
	expandE4M3: expandE4M3AVX2,
	fromCodes:  fromCodesAVX2,

	dotQuantized: [2][2]func(y []float32, data, scales, biases []byte, x, sums []float32, cols, group int){
		{dotQuantizedQ4BF16AVX2, dotQuantizedQ4F32AVX2},
		{dotQuantizedQ8BF16AVX2, dotQuantizedQ8F32AVX2},
	},
	dotInteger: [2][2]func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
		sums []float32, cols, group int){
		{inFours(4, 2, 4, dotIntegerFourQ4BF16AVX2, dotIntegerQ4BF16AVX2),
			inFours(4, 4, 4, dotIntegerFourQ4F32AVX2, dotIntegerQ4F32AVX2)},
		{inFours(8, 2, 4, dotIntegerFourQ8BF16AVX2, dotIntegerQ8BF16AVX2),
			inFours(8, 4, 4, dotIntegerFourQ8F32AVX2, dotIntegerQ8F32AVX2)},
	},
	dotDense: [2]func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32,
		xStride, vectors, cols int){
		dotDenseBF16AVX2, dotDenseF32AVX2,
	},

	panelRows:   16,
	tileVectors: 6, tileCodeVectors: 3,
	tileFloat: [2]func(sums []float32, stride int, panel []byte, panelBytes int, x []float32, xStride, vectors,
		depth int, keep float32){
		tileFloatBF16AVX2, tileFloatF32AVX2,
	},
	tileInteger: [2][2]func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int,
		codeScales, codeSums []float32, groupStride, vectors, groups, group int){
		{tileIntegerQ4AVX2, tileIntegerQ4AVX2},
		{tileIntegerQ8AVX2, tileIntegerQ8AVX2},
	},

	packRows: 8,
	packCodes: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int){
		packCodesQ4AVX2, packCodesQ8AVX2,
	},
	packQuantized: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int, scales, biases []float32,
		scaleStride, group int){
		packQuantizedQ4AVX2, packQuantizedQ8AVX2,
	},
	packDense: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int){
		packDenseBF16AVX2, packDenseF32AVX2,
	},
	packScales: [2]func(dst []float32, stride int, data []byte, rowBytes, groups int){
		packScalesAVX2(BF16, packScalesBF16AVX2), packScalesAVX2(F32, packScalesF32AVX2),
	},

	vectorFunctions: vectorFunctions{
		fromBF16: func(dst []float32, src []byte) {
			whole := len(dst) &^ 7
			fromBF16AVX2(dst[:whole], src[:2*whole])
			genericVectorFunctions.fromBF16(dst[whole:], src[2*whole:])
		},
		toBF16: func(dst []byte, src []float32) {
			whole := len(src) &^ 7
			toBF16AVX2(dst[:2*whole], src[:whole])
			genericVectorFunctions.toBF16(dst[2*whole:], src[whole:])
		},
		add:   addAVX2,
		mul:   mulAVX2,
		scale: scaleAVX2,
		axpy:  axpyAVX2,
		dot:   dotAVX2,
		sum:   sumAVX2,
		maximum: func(x []float32) float32 {
			whole := len(x) &^ 7
			return max(maximumAVX2(x[:whole]), genericVectorFunctions.maximum(x[whole:]))
		},
		scaleMul:   scaleMulAVX2,
		exp:        expAVX2,
		sigmoid:    sigmoidAVX2,
		sigmoidMul: sigmoidMulAVX2,
		siluMul:    siluMulAVX2,
		geluMul:    geluMulAVX2,
		tanh:       tanhAVX2,
		rotate: func(x, cos, sin []float32) {
			rotateHalvesAVX2(x[:len(cos)], x[len(cos):], cos, sin)
		},
		convolve:  func(dst, taps, weight []float32) { convolveAVX2(dst, taps, weight, len(taps)/len(dst)) },
		scaleRows: scaleRowsAVX2,
		deltaRows: deltaRowsAVX2,
	},
}

// packScalesAVX2 adds to a packScales function of whole eights of groups the rest of them.
func packScalesAVX2(format Format, eights func(dst []float32, stride int, data []byte, rowBytes,
	groups int)) func(dst []float32, stride int, data []byte, rowBytes, groups int) {
	return func(dst []float32, stride int, data []byte, rowBytes, groups int) {
		eights(dst, stride, data, rowBytes, groups)
		for g := groups &^ 7; g < groups; g++ {
			for r := range 8 {
				dst[g*stride+r] = stored(data[r*rowBytes:], format, g)
			}
		}
	}
}
