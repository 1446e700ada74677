package kernels

import (
	le "encoding/binary"
	"math"
	"slices"
	"sync"
)

// Rows of codes of 8 bits: the codes of a row, signed, and behind them the scales of groups, bf16, up to whole words. A
// code stands for code · scale.

// codeGroup is the number of codes of a row that share a scale.
func codeGroup(width int) int { return min(width, 32) }

// codeWords is the number of words of a row; 0 where there are no rows of that width.
func codeWords(width int) int {
	if width <= 0 || width%32 != 0 && width != 4 && width != 8 && width != 16 {
		return 0
	}
	return width/4 + (width/codeGroup(width)+1)/2
}

// packCodes makes a row of codes of finite numbers: a scale is the greatest magnitude of a group times 1/127, rounded
// up to bf16.
func packCodes(row []byte, x []float32) {
	clear(row)
	group, scales := codeGroup(len(x)), row[len(x):]
	for g := range len(x) / group {
		high := float32(0)
		for _, v := range x[g*group : (g+1)*group] {
			high = max(high, max(v, -v))
		}
		scale := uint16((math.Float32bits(float32(high*(1.0/127))) + 0xffff) >> 16)
		le.LittleEndian.PutUint16(scales[2*g:], scale)
		for i, v := range x[g*group : (g+1)*group] {
			if scale != 0 {
				code := math.RoundToEven(float64(v / math.Float32frombits(uint32(scale)<<16)))
				row[g*group+i] = byte(int8(max(-127, min(127, code))))
			}
		}
	}
}

// unpackCodes are the numbers that a row stands for.
func unpackCodes(x []float32, row []byte) {
	group := codeGroup(len(x))
	for i := range x {
		scale := math.Float32frombits(uint32(le.LittleEndian.Uint16(row[len(x)+2*(i/group):])) << 16)
		x[i] = float32(float32(int8(row[i])) * scale)
	}
}

// blocksPool adds a pool of so many rows of random numbers of a width, as blocks have them. Its Values are the numbers;
// of codes it is a buffer of bytes.
func (c *Case) blocksPool(b Blocks, rows, width int) *Buffer {
	if b.Cache != U32 {
		return c.cache(b.Cache, 1, rows, rows, width)
	}
	r, size := c.seed(), b.rowBytes(width)
	pool := c.add(U8, rows*size, Kept)
	bytes := sync.OnceValue(func() []byte {
		out, x := make([]byte, rows*size), make([]float32, width)
		for row := range rows {
			for i := range x {
				x[i] = (r.Float32()*2 - 1) * 1.75
			}
			packCodes(out[row*size:(row+1)*size], x)
		}
		return out
	})
	pool.raw = func() []byte { return slices.Clone(bytes()) }
	pool.values = sync.OnceValue(func() []float32 {
		out := make([]float32, rows*width)
		for row := range rows {
			unpackCodes(out[row*width:(row+1)*width], bytes()[row*size:(row+1)*size])
		}
		return out
	})
	return pool
}
