package eval

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func init() {
	register(map[string]Kernel{"random_bits": randomBits})
}

// bitsDType is the dtype of random elements by their width in bytes.
var bitsDType = map[int]ir.DType{1: ir.U8, 2: ir.U16, 4: ir.U32}

// randomBits draws unsigned integers with MLX's generator. With a seed, the key is made from the seed, sign-extended
// from 32 bits, and is the same on every call. Without one, the key is the next of the machine's own sequence.
func randomBits(c *Call) ([]Value, error) {
	width := ir.Attrs[ir.RandomBitsAttrs](c.Op).Width
	d, ok := bitsDType[width]
	if !ok {
		return nil, fmt.Errorf("width is %d bytes, want 1, 2 or 4", width)
	}
	shape := c.int32s("shape")
	out, err := allocate(d, shape)
	if err != nil {
		return nil, err
	}
	p := make([]byte, out.Len()*width)
	switch {
	case c.Has("seed"):
		numeric.FillBytes(p, numeric.Key(uint64(int32(c.Int("seed")))))
	case c.Bits == nil:
		return nil, fmt.Errorf("no seed is given, and there is no sequence of random numbers to draw from")
	default:
		for i, word := range c.Bits((len(p) + 3) / 4) {
			var b [4]byte
			binary.LittleEndian.PutUint32(b[:], word)
			copy(p[4*i:], b[:])
		}
	}
	for i := range out.I {
		out.I[i] = decodeInt(d, p[i*width:])
	}
	return c.result(out, nil)
}
