package eval

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
)

// packedOperands are the operands of packed codes: constants are kept for them as the file has them, in 4 bytes a word
// where an integer of a tensor takes 8.
var packedOperands = map[string]string{"quantized": "packed", "dequantize": "w",
	"quantized_matmul": "w", "gather_qmm": "w"}

// wordsOf returns the words of packed codes.
func wordsOf(t *Tensor) []uint32 {
	if t.words != nil {
		return t.words
	}
	words := make([]uint32, len(t.I))
	for i, v := range t.I {
		words[i] = uint32(v)
	}
	return words
}

// packed returns a constant of packed codes.
func (s *Constants) packed(c *ir.Constant) (*Tensor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.words[c]; t != nil {
		return t, nil
	}
	p, err := ConstantBytes(c)
	if err != nil {
		return nil, err
	}
	t := &Tensor{DType: ir.U32, Shape: ints(c.Data.Shape())}
	if n, err := elements(t.Shape); err != nil {
		return nil, fmt.Errorf("constant @%s: %w", c.Name, err)
	} else if len(p) != 4*n {
		return nil, fmt.Errorf("constant @%s: %d bytes for u32%v, want %d", c.Name, len(p), t.Shape, 4*n)
	}
	t.words = make([]uint32, len(p)/4)
	for i := range t.words {
		t.words[i] = binary.LittleEndian.Uint32(p[4*i:])
	}
	s.words[c] = t
	return t, nil
}
