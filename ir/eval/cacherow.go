package eval

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// Rows of codes of 8 bits: see ir/cacherow.go.

// packQ8 writes a row of numbers x as codes of 8 bits, four to a word, and the scales of their groups, two to a word
// after them. words are the 32-bit words of the row.
func packQ8(words []int64, x []float32) {
	clear(words)
	group, scales := ir.Q8Group(len(x)), words[len(x)/4:]
	for g := range len(x) / group {
		part := x[g*group : (g+1)*group]
		scale := numeric.Q8Scale(part)
		scales[g/2] |= int64(scale) << (16 * (g % 2))
		for i, v := range part {
			at := g*group + i
			words[at/4] |= int64(uint8(numeric.Q8Code(v, scale))) << (8 * (at % 4))
		}
	}
}

// unpackQ8 reads a row of numbers.
func unpackQ8(x []float32, words []int64) {
	group, scales := ir.Q8Group(len(x)), words[len(x)/4:]
	for i := range x {
		g := i / group
		scale := numeric.BF16ToF32(uint16(scales[g/2] >> (16 * (g % 2))))
		x[i] = float32(float32(int8(words[i/4]>>(8*(i%4)))) * scale)
	}
}
