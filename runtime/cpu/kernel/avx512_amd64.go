package kernel

// avx512 is the level of CPUs with AVX-512 F, BW, DQ, VL and VNNI: Intel from Ice Lake on, AMD from Zen 4
// on.
var avx512 = implementation{
	name: "avx512",

	singleLimit: [2]int{3, 1},
	deltaLimit:  11,

	touch: touchAVX512,

	codeBlock: 128,
	quantize:  quantizeAVX512,
	groupSums: groupSumsAVX512,
	spread: func(dst, x []float32) {
		whole := len(x) &^ 127
		spread4AVX512(dst, x[:whole])
		if whole < len(x) {
			var rest [128]float32
			copy(rest[:], x[whole:])
			spread4AVX512(dst[whole:], rest[:])
		}
	},

	expandE2M1: expandE2M1AVX2,
	halfSix:    halfSixAVX2,
	expandE4M3: expandE4M3AVX2,
	fromCodes:  fromCodesAVX2,

	dotQuantized: [2][2]func(y []float32, data, scales, biases []byte, x, sums []float32, cols, group int){
		{dotQuantizedQ4BF16AVX512, dotQuantizedQ4F32AVX512},
		{dotQuantizedQ8BF16AVX512, dotQuantizedQ8F32AVX512},
	},
	dotInteger: [2][2]func(y []float32, data, scales, biases []byte, codes []int8, codeScales,
		sums []float32, cols, group int){
		{inFours(4, 2, 1, dotIntegerFourQ4BF16AVX512, dotIntegerQ4BF16AVX512),
			inFours(4, 4, 1, dotIntegerFourQ4F32AVX512, dotIntegerQ4F32AVX512)},
		{inFours(8, 2, 1, dotIntegerFourQ8BF16AVX512, dotIntegerQ8BF16AVX512),
			inFours(8, 4, 1, dotIntegerFourQ8F32AVX512, dotIntegerQ8F32AVX512)},
	},
	dotDense: [2]func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32,
		xStride, vectors, cols int){
		denseInFours(2, dotDenseFourBF16AVX512, dotDenseBF16AVX512),
		denseInFours(4, dotDenseFourF32AVX512, dotDenseF32AVX512),
	},

	panelRows:   32,
	tileVectors: 12, tileCodeVectors: 12,
	tileFloat: [2]func(sums []float32, stride int, panel []byte, panelBytes int, x []float32, xStride, vectors,
		depth int, keep float32){
		tileFloatBF16AVX512, tileFloatF32AVX512,
	},
	tileInteger: [2][2]func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int,
		codeScales, codeSums []float32, groupStride, vectors, groups, group int){
		{tileIntegerBF16AVX512, tileIntegerF32AVX512},
		{tileIntegerBF16AVX512, tileIntegerF32AVX512},
	},

	fewVectors: 8,
	fewInteger: [2][2]func(sums []float32, data []byte, rowBytes int, scales, biases []float32, codes []int8,
		codeStride int, codeScales, codeSums []float32, groupStride, vectors, groups, group int){
		{fewIntegerQ4BF16AVX512, fewIntegerQ4F32AVX512},
		{fewIntegerQ8BF16AVX512, fewIntegerQ8F32AVX512},
	},

	packRows: 16,
	packCodes: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int){
		packCodesQ4AVX512, packCodesQ8AVX512,
	},
	packQuantized: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int, scales, biases []float32,
		scaleStride, group int){
		packQuantizedQ4AVX512, packQuantizedQ8AVX512,
	},
	packDense: [2]func(panel []byte, stride int, data []byte, rowBytes, chunks int){
		packDenseBF16AVX512, packDenseF32AVX512,
	},
	packScales: [2]func(dst []float32, stride int, data []byte, rowBytes, groups int){
		packScalesBF16AVX512, packScalesF32AVX512,
	},

	vectorFunctions: vectorFunctions{
		fromBF16: func(dst []float32, src []byte) {
			whole := len(dst) &^ 15
			fromBF16AVX512(dst[:whole], src[:2*whole])
			genericVectorFunctions.fromBF16(dst[whole:], src[2*whole:])
		},
		toBF16: func(dst []byte, src []float32) {
			whole := len(src) &^ 15
			toBF16AVX512(dst[:2*whole], src[:whole])
			genericVectorFunctions.toBF16(dst[2*whole:], src[whole:])
		},
		add:   addAVX512,
		mul:   mulAVX512,
		scale: scaleAVX512,
		axpy:  axpyAVX512,
		dot:   dotAVX512,
		sum:   sumAVX512,
		maximum: func(x []float32) float32 {
			whole := len(x) &^ 15
			return max(maximumAVX512(x[:whole]), genericVectorFunctions.maximum(x[whole:]))
		},
		scaleMul:   scaleMulAVX512,
		exp:        expAVX512,
		sigmoid:    sigmoidAVX512,
		sigmoidMul: sigmoidMulAVX512,
		siluMul:    siluMulAVX512,
		geluMul:    geluMulAVX512,
		tanh:       tanhAVX512,
		rotate: func(x, cos, sin []float32) {
			rotateHalvesAVX512(x[:len(cos)], x[len(cos):], cos, sin)
		},
		convolve:  func(dst, taps, weight []float32) { convolveAVX512(dst, taps, weight, len(taps)/len(dst)) },
		scaleRows: scaleRowsAVX512,
		deltaRows: deltaRowsAVX512,
	},
}
