package kernel

// dotQuantizedGeneric is y[r] = Σ_g scale[r][g]·Σ_{k in g} x[k]·code[r][k] + bias[r][g]·sums[g].
func dotQuantizedGeneric(format, scaleFormat Format) func(y []float32, data, scales, biases []byte, x,
	sums []float32, cols, group int) {
	return func(y []float32, data, scales, biases []byte, x, sums []float32, cols, group int) {
		w := Matrix{format, len(y), cols, data, group, scales, biases, scaleFormat}
		for r := range y {
			var total, offset float32
			for g := range cols / group {
				var part float32
				for k := g * group; k < (g+1)*group; k++ {
					part += float32(x[k] * float32(w.code(r, k)))
				}
				scale, bias := w.scale(r, g)
				total += float32(scale * part)
				offset += float32(bias * sums[g])
			}
			y[r] = total + offset
		}
	}
}

// dotIntegerGeneric is y[r] = Σ_g scale[r][g]·codeScales[g]·Σ_{k in g} codes[k]·code[r][k] + bias[r][g]·sums[g];
// the inner sum is exact.
func dotIntegerGeneric(format, scaleFormat Format) func(y []float32, data, scales, biases []byte, codes []int8,
	codeScales, sums []float32, cols, group int) {
	return func(y []float32, data, scales, biases []byte, codes []int8, codeScales, sums []float32, cols, group int) {
		w := Matrix{format, len(y), cols, data, group, scales, biases, scaleFormat}
		for r := range y {
			var total, offset float32
			for g := range cols / group {
				var part int32
				for k := g * group; k < (g+1)*group; k++ {
					part += int32(codes[k]) * int32(w.code(r, k))
				}
				scale, bias := w.scale(r, g)
				total += float32(float32(scale*codeScales[g]) * float32(part))
				offset += float32(bias * sums[g])
			}
			y[r] = total + offset
		}
	}
}

// dotDenseGeneric is y[i*stride+r] = Σ_k x[i*xStride+k]·data[r][k].
func dotDenseGeneric(format Format) func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32,
	xStride, vectors, cols int) {
	return func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32, xStride, vectors, cols int) {
		for r := range rows {
			row := data[r*rowBytes:]
			for i := range vectors {
				var total float32
				for k, v := range x[i*xStride:][:cols] {
					total += float32(v * stored(row, format, k))
				}
				y[i*stride+r] = total
			}
		}
	}
}
