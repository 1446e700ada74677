package kernels

import (
	le "encoding/binary"
	"math"
	"slices"
	"sync"
)

// This file has the form of cache rows in 8 bits: the signed codes of a row, then the bf16 scales of its groups, up to
// a whole number of words. A code stands for code · scale.

// codeGroup returns the number of codes of a row that share a scale.
func codeGroup(width int) int { return min(width, 32) }

// codeWords returns the number of words of a row, or 0 where there are no coded rows of that width.
func codeWords(width int) int {
	if width <= 0 || width%32 != 0 && width != 4 && width != 8 && width != 16 {
		return 0
	}
	return width/4 + (width/codeGroup(width)+1)/2
}

// packCodes encodes a row of finite numbers. A scale is the largest magnitude of its group times 1/127, rounded up to
// bf16.
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

// unpackCodes decodes a row.
func unpackCodes(x []float32, row []byte) {
	group := codeGroup(len(x))
	for i := range x {
		scale := math.Float32frombits(uint32(le.LittleEndian.Uint16(row[len(x)+2*(i/group):])) << 16)
		x[i] = float32(float32(int8(row[i])) * scale)
	}
}

// blocksPool adds a pool with rows of random numbers, in the form of b's cache. Its Values are the numbers; if they are
// coded, the buffer has bytes.
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
