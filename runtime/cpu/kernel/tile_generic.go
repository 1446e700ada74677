package kernel

// tileFloatGeneric is sums[i][r] = keep·sums[i][r] + Σ_k x[i][k]·panel[k][r] for r < width.
func tileFloatGeneric(format Format, width int) func(sums []float32, stride int, panel []byte, panelBytes int,
	x []float32, xStride, vectors, depth int, keep float32) {
	return func(sums []float32, stride int, panel []byte, panelBytes int, x []float32, xStride, vectors,
		depth int, keep float32) {
		for i := range vectors {
			out := sums[i*stride:][:width]
			for r := range out {
				out[r] *= keep
			}
			for k, v := range x[i*xStride:][:depth] {
				row := panel[k*panelBytes:]
				for r := range out {
					out[r] += float32(v * stored(row, format, r))
				}
			}
		}
	}
}

// tileIntegerGeneric is, with sums [vectors, width] and for r < width,
//
//	sums[i][r] += Σ_g (scales[g][r]·codeScales[i][g]·Σ_{k in g} codes[i][k]·panel[k/4][r][k%4] +
//	                   biases[g][r]·codeSums[i][g])
func tileIntegerGeneric(width int) func(sums []float32, panel []byte, scales, biases []float32, codes []int8,
	codeStride int, codeScales, codeSums []float32, groupStride, vectors, groups, group int) {
	return func(sums []float32, panel []byte, scales, biases []float32, codes []int8, codeStride int, codeScales,
		codeSums []float32, groupStride, vectors, groups, group int) {
		for i := range vectors {
			for g := range groups {
				for r := range width {
					var part int32
					for k := g * group; k < (g+1)*group; k++ {
						part += int32(codes[i*codeStride+k]) * int32(panel[(k/4*width+r)*4+k%4])
					}
					at := g*width + r
					scaled := float32(float32(part)*scales[at]) * codeScales[i*groupStride+g]
					sums[i*width+r] += scaled + float32(biases[at]*codeSums[i*groupStride+g])
				}
			}
		}
	}
}
