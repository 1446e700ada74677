package kernel

import "math"

// quantizeGeneric rounds each group of x to codes[i] = round(x·(127/m)), m the largest magnitude of the
// group, half to even, with scale m/127, so that |code| ≤ 127. sums are those of x itself. NaN is passed
// over by m and gives code 127; the sum keeps it.
func quantizeGeneric(codes []int8, scales, sums, x []float32, group, block int) {
	groupSumsGeneric(sums, x, group)
	for g := range len(x) / group {
		var largest float32
		for _, v := range x[g*group : (g+1)*group] {
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
			codes[blockPlace(k, block)] = roundCode(float32(x[k] * inverse))
		}
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
