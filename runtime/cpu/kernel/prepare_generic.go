package kernel

import "math"

// quantizeGeneric rounds each group of x to codes[i] = round(x·(127/m)), m the largest magnitude of the
// group, half to even, with scale m/127, so that |code| ≤ 127. sums are those of the rounded numbers: of
// exact ones, which meet the biases, and rounded ones, which meet the weights' codes, the difference would
// be multiplied by codes that lie around 8 or 128, not around 0 as the weights do. NaN is passed over by m
// and gives code 127; the sum keeps it, as it keeps infinity.
func quantizeGeneric(codes []int8, scales, sums, x []float32, group, block int) {
	for g := range len(x) / group {
		var largest, nan float32
		total := 0
		for _, v := range x[g*group : (g+1)*group] {
			nan += v - v // 0 for what is finite
			if v < 0 {
				v = -v
			}
			if v > largest {
				largest = v
			}
		}
		scales[g] = largest / 127
		var inverse float32
		if largest > 0 {
			inverse = 127 / largest
		}
		for k := g * group; k < (g+1)*group; k++ {
			code := roundCode(float32(x[k] * inverse))
			codes[blockPlace(k, block)] = code
			total += int(code)
		}
		sums[g] = float32(float32(total)*scales[g]) + nan
	}
}

// roundCode is v as an integer of at most 127 in magnitude; NaN gives 127.
func roundCode(v float32) int8 {
	switch {
	case !(v < 127):
		return 127
	case v < -127:
		return -127
	}
	return int8(math.RoundToEven(float64(v)))
}

// groupSumsGeneric sums the groups of x.
func groupSumsGeneric(sums, x []float32, group int) {
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
