package kernel

import (
	"encoding/binary"
	"math"
)

var genericVectorFunctions = vectorFunctions{
	fromBF16: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	},
	toBF16: func(dst []byte, src []float32) {
		for i, v := range src {
			bits := math.Float32bits(v)
			if v == v {
				bits += 0x7fff + bits>>16&1
			} else {
				bits |= 1 << 22
			}
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(bits>>16))
		}
	},
	add: func(dst, a, b []float32) {
		for i, v := range a {
			dst[i] = v + b[i]
		}
	},
	mul: func(dst, a, b []float32) {
		for i, v := range a {
			dst[i] = v * b[i]
		}
	},
	scale: func(dst, x []float32, s float32) {
		for i, v := range x {
			dst[i] = v * s
		}
	},
	axpy: func(dst []float32, s float32, x []float32) {
		for i, v := range x {
			dst[i] += float32(s * v)
		}
	},
	dot: func(a, b []float32) float32 {
		var total float32
		for i, v := range a {
			total += float32(v * b[i])
		}
		return total
	},
	sum: func(x []float32) float32 {
		var total float32
		for _, v := range x {
			total += v
		}
		return total
	},
	maximum: func(x []float32) float32 {
		largest := float32(math.Inf(-1))
		for _, v := range x {
			if v > largest {
				largest = v
			}
		}
		return largest
	},
	scaleMul: func(dst, x, weight []float32, s float32) {
		for i, v := range x {
			dst[i] = float32(v*s) * weight[i]
		}
	},
	exp: func(dst, x []float32, shift float32) float32 {
		var total float32
		for i, v := range x {
			dst[i] = exp32(v - shift)
			total += dst[i]
		}
		return total
	},
	sigmoid: func(dst, x []float32) {
		for i, v := range x {
			dst[i] = sigmoid32(v)
		}
	},
	sigmoidMul: func(dst, gate, x []float32) {
		for i, v := range gate {
			dst[i] = sigmoid32(v) * x[i]
		}
	},
	siluMul: func(dst, gate, up []float32) {
		for i, v := range gate {
			dst[i] = float32(v*sigmoid32(v)) * up[i]
		}
	},
	geluMul: func(dst, gate, up []float32) {
		for i, v := range gate {
			cube := float32(float32(v*v) * v)
			dst[i] = float32(v*sigmoid32(geluScale*(v+float32(geluCube*cube)))) * up[i]
		}
	},
	tanh: func(dst, x []float32) {
		for i, v := range x {
			dst[i] = tanh32(v)
		}
	},
	rotate: func(x, cos, sin []float32) {
		second := x[len(cos):]
		for i, c := range cos {
			a, b, s := x[i], second[i], sin[i]
			x[i] = float32(a*c) - float32(b*s)
			second[i] = float32(a*s) + float32(b*c)
		}
	},
	convolve: func(dst, taps, weight []float32) {
		for c := range dst {
			var total float32
			for at := c; at < len(taps); at += len(dst) {
				total += float32(taps[at] * weight[at])
			}
			dst[c] = total
		}
	},
	scaleRows: func(dst []float32, dstStride int, x []float32, xStride int, factors []float32, cols int) {
		for r, factor := range factors {
			to := dst[r*dstStride:]
			for c, v := range x[r*xStride:][:cols] {
				to[c] = v * factor
			}
		}
	},
	deltaRows: func(y, state, q, k, v []float32, decay, beta float32) {
		for r, value := range v {
			row := state[r*len(k):][:len(k)]
			var seen, read float32
			for i, s := range row {
				row[i] = s * decay
				seen += float32(row[i] * k[i])
			}
			delta := (value - seen) * beta
			for i := range row {
				row[i] += float32(delta * k[i])
				read += float32(row[i] * q[i])
			}
			y[r] = read
		}
	},
}

// 2·√(2/π) and the cubic coefficient of the tanh form of GELU.
const (
	geluScale = float32(1.5957691216057308)
	geluCube  = float32(0.044715)
)
