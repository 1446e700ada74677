package ragged

import (
	"fmt"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// Storage is the form of the state of a ragged program where it is to be another than the declared one.
type Storage struct {
	// HalfState keeps the states of delta rules that are declared as f32 in bf16. They are rounded after every row.
	HalfState bool
	// Q8 keeps keys and values in rows of codes of 8 bits: see ir/cacherow.go.
	Q8 bool
}

// String names what is not as declared; "" where all is.
func (s Storage) String() string {
	var parts []string
	if s.Q8 {
		parts = append(parts, "caches of 8 bits")
	}
	if s.HalfState {
		parts = append(parts, "recurrent state in bf16")
	}
	return strings.Join(parts, ", ")
}

// store returns the buffer that stands for one of the given program, in the form that is asked for.
func (x *maker) store(b *ir.Buffer, cached bool) (*ir.Buffer, error) {
	stored := *b
	switch {
	case x.o.Storage.HalfState && x.rules[b] && b.Type.DType == ir.F32:
		stored.Type.DType = ir.BF16
	case x.o.Storage.Q8 && cached:
		t, err := ir.Q8Rows(b.Type)
		if err != nil {
			return nil, fmt.Errorf("cache @%s: %w", b.Name, err)
		}
		stored.Type = t
	default:
		return b, nil
	}
	return &stored, nil
}

// checkStorage refuses a form that the program has no state for.
func (x *maker) checkStorage() error {
	switch {
	case x.o.Storage.HalfState && len(x.rules) == 0:
		return fmt.Errorf("the program has no recurrent state of a delta rule")
	case x.o.Storage.Q8 && len(x.model.Full)+len(x.model.Rings) == 0:
		return fmt.Errorf("the program has no caches of attention")
	}
	return nil
}
