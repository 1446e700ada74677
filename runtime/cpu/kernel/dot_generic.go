package kernel

import "math"

// dotQuantizedGeneric is y[r] = Σ_g scale[r][g]·Σ_{k in g} x[k]·code[r][k] + bias[r][g]·sums[g].
func dotQuantizedGeneric(format, scaleFormat Format) func(y []float32, data, scales, biases []byte, x, sums []float32, cols, group int) {
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
func dotIntegerGeneric(format, scaleFormat Format) func(y []float32, data, scales, biases []byte, codes []int8, codeScales, sums []float32, cols, group int) {
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
func dotDenseGeneric(format Format) func(y []float32, stride int, data []byte, rowBytes, rows int, x []float32, xStride, vectors, cols int) {
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

// quantizeGeneric rounds each group of x to codes[i] = round(x·127/m), m the largest magnitude of the
// group, half to even, with scale m/127, so that |code| ≤ 127. sums are those of x itself.
func quantizeGeneric(codes []int8, scales, sums, x []float32, group, block int) {
	groupSumsGeneric(sums, x, group)
	clear(scales[len(x)/group:])
	for g := range len(x) / group {
		var largest float32
		for _, v := range x[g*group : (g+1)*group] {
			largest = max(largest, v, -v)
		}
		scales[g] = largest / 127
		var inverse float32
		if largest > 0 {
			inverse = 127 / largest
		}
		for k := g * group; k < (g+1)*group; k++ {
			codes[blockPlace(k, block)] = roundCode(float32(x[k] * inverse))
		}
	}
}

// roundCode is v, at most 127 in magnitude, as an integer; what is not a number gives 0.
func roundCode(v float32) int8 {
	r := math.RoundToEven(float64(v))
	if !(r >= -127 && r <= 127) {
		return 0
	}
	return int8(r)
}

// groupSumsGeneric sums the groups of x and clears the rest of sums.
func groupSumsGeneric(sums, x []float32, group int) {
	clear(sums[len(x)/group:])
	for g := range len(x) / group {
		var total float32
		for _, v := range x[g*group : (g+1)*group] {
			total += v
		}
		sums[g] = total
	}
}

// spreadGeneric keeps the order.
func spreadGeneric(dst, x []float32) {
	copy(dst, x)
	clear(dst[len(x):])
}
