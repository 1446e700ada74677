package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Rows of codes of 8 bits, in which caches of attention can be kept: the codes of a row, and after them the scales of
// its groups, bfloat16, up to a multiple of 4 bytes. A group has 32 codes, or the whole row where that has fewer.

// Q8RowBytes returns the size in bytes of a row of width codes.
func Q8RowBytes(width int) int { return width + (2*width/min(width, 32)+3)&^3 }

// ToQ8 rounds a row to codes: a scale is the greatest magnitude of a group times 1/127, rounded up to bfloat16. A group
// with a NaN or an infinity is read as NaN. dst has Q8RowBytes(len(x)) bytes.
func ToQ8(dst []byte, x []float32) {
	checkQ8("ToQ8", len(x), dst)
	group, scales := min(len(x), 32), dst[len(x):]
	clear(scales[len(scales)-2:]) // of an odd number of groups
	for g := 0; g*group < len(x); g++ {
		part, codes := x[g*group:(g+1)*group], dst[g*group:(g+1)*group]
		scale := q8Scale(part)
		binary.LittleEndian.PutUint16(scales[2*g:], scale)
		s := math.Float32frombits(uint32(scale) << 16)
		if !(s > 0 && s <= math.MaxFloat32) {
			clear(codes)
			continue
		}
		for i, v := range part {
			codes[i] = byte(int8(max(-127, min(127, math.RoundToEven(float64(v/s))))))
		}
	}
}

func q8Scale(group []float32) uint16 {
	high := uint32(0) // magnitudes are ordered as their bits are, NaN above all
	for _, v := range group {
		high = max(high, math.Float32bits(v)&0x7fff_ffff)
	}
	if high > 0x7f80_0000 {
		return 0x7fc0
	}
	return uint16((math.Float32bits(float32(math.Float32frombits(high)*(1.0/127))) + 0xffff) >> 16)
}

// FromQ8 decodes len(dst)/width contiguous rows.
func FromQ8(dst []float32, src []byte, width int) {
	if width <= 0 || len(dst)%width != 0 || len(src) != len(dst)/width*Q8RowBytes(width) {
		panic(fmt.Sprintf("kernel: FromQ8: %d numbers of rows of %d in %d bytes", len(dst), width, len(src)))
	}
	group, bytes := min(width, 32), Q8RowBytes(width)
	for len(dst) > 0 {
		scales := src[width : width+2*(width/group)]
		if group == 32 {
			active.fromCodes(dst[:width], src[:width], scales)
		} else {
			fromGroup(dst[:width], src[:width], scales)
		}
		dst, src = dst[width:], src[bytes:]
	}
}

func fromCodesGeneric(dst []float32, codes, scales []byte) {
	for ; len(scales) >= 2; dst, codes, scales = dst[32:], codes[32:], scales[2:] {
		fromGroup(dst[:32], codes[:32], scales)
	}
}

// fromGroup reads the codes of a group with its scale.
func fromGroup(dst []float32, codes, scale []byte) {
	s := math.Float32frombits(uint32(binary.LittleEndian.Uint16(scale)) << 16)
	for i, c := range codes[:len(dst)] {
		dst[i] = float32(int8(c)) * s
	}
}

func checkQ8(name string, width int, row []byte) {
	if width <= 0 || width%min(width, 32) != 0 || len(row) != Q8RowBytes(width) {
		panic(fmt.Sprintf("kernel: %s: a row of %d numbers in %d bytes", name, width, len(row)))
	}
}
