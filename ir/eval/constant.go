package eval

import (
	"fmt"
	"sync"

	"github.com/etc-ml/etc/ir"
)

// Constants decodes the constants of a module when they are first used and keeps them. It is safe for
// concurrent use, so that the machines of one module can share it.
type Constants struct {
	mu     sync.Mutex
	values map[*ir.Constant]*Tensor
	words  map[*ir.Constant]*Tensor // packed codes
}

// NewConstants makes an empty store.
func NewConstants() *Constants {
	return &Constants{values: map[*ir.Constant]*Tensor{}, words: map[*ir.Constant]*Tensor{}}
}

func (s *Constants) get(c *ir.Constant) (*Tensor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.values[c]; t != nil {
		return t, nil
	}
	t, err := DecodeConstant(c)
	if err != nil {
		return nil, err
	}
	s.values[c] = t
	return t, nil
}

// ConstantBytes returns the bytes of a constant, in the file's map where they lie there: they must not be changed.
func ConstantBytes(c *ir.Constant) ([]byte, error) {
	if c.Data == nil {
		return nil, fmt.Errorf("constant @%s has no bytes: the module was read from text without weights", c.Name)
	}
	if d, ok := c.Data.(interface{ Bytes() []byte }); ok {
		return d.Bytes(), nil
	}
	p, err := ir.ReadData(c.Data)
	if err != nil {
		return nil, fmt.Errorf("constant @%s: %w", c.Name, err)
	}
	return p, nil
}

// DecodeConstant returns a constant as a tensor, whose elements are a copy.
func DecodeConstant(c *ir.Constant) (*Tensor, error) {
	p, err := ConstantBytes(c)
	if err != nil {
		return nil, err
	}
	t, err := Decode(c.Data.DType(), ints(c.Data.Shape()), p)
	if err != nil {
		return nil, fmt.Errorf("constant @%s: %w", c.Name, err)
	}
	return t, nil
}

// Derive runs the init function of a module, if it has one, and returns the values that it computes.
func Derive(m *ir.Module, precision Precision) (map[*ir.Value]Value, error) {
	x, err := NewMachine(&ir.Module{Constants: m.Constants, Init: m.Init, Derived: m.Derived}, precision, nil)
	if err != nil {
		return nil, err
	}
	return x.derived, nil
}

func ints(dims []int64) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}
