package codegen

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// pool hands out numbers, the smallest free one first, so that programs need few slots and the choice
// depends on nothing but the order of the requests.
type pool struct {
	next uint32
	free []uint32 // sorted
	used uint32   // one past the largest number handed out
}

func (p *pool) take() uint32 {
	if len(p.free) > 0 {
		n := p.free[0]
		p.free = p.free[1:]
		return n
	}
	p.next++
	p.used = max(p.used, p.next)
	return p.next - 1
}

func (p *pool) give(n uint32) {
	i, _ := slices.BinarySearch(p.free, n)
	p.free = slices.Insert(p.free, i, n)
}

// slots maps values to slots.
type slots struct {
	tensors map[*ir.Value]uint32
	ints    map[*ir.Value]uint32
	// owned are values in a slot that outlives them: an output, a result of the If or Scan around them.
	owned   map[*ir.Value]bool
	buffers map[*ir.Buffer]uint32
	temps   pool // tensor temporaries, counted from 0; firstTemp is added at the end
	values  pool
}

func newSlots() *slots {
	return &slots{tensors: map[*ir.Value]uint32{}, ints: map[*ir.Value]uint32{}, owned: map[*ir.Value]bool{},
		buffers: map[*ir.Buffer]uint32{}}
}

// define gives v a slot, unless it has one already.
func (s *slots) define(v *ir.Value) {
	if v.Type.Kind == ir.IntKind {
		if _, has := s.ints[v]; !has {
			s.ints[v] = s.values.take()
		}
		return
	}
	if _, has := s.tensors[v]; !has {
		s.tensors[v] = s.temps.take()
	}
}

// end takes the slot of a value that nothing uses any more back.
func (s *slots) end(v *ir.Value) {
	if s.owned[v] {
		return
	}
	if v.Type.Kind == ir.IntKind {
		s.values.give(s.ints[v])
		return
	}
	if v.Def != nil && v.Def.Def.Effect == ir.Reads {
		return // a load is the buffer's slot
	}
	s.temps.give(s.tensors[v])
}

// share puts v into the slot of owner, which outlives it.
func (s *slots) share(v, owner *ir.Value) {
	if owner.Type.Kind == ir.IntKind {
		s.ints[v] = s.ints[owner]
	} else {
		s.tensors[v] = s.tensors[owner]
	}
	s.owned[v] = true
}
