package gpu

import (
	"github.com/etc-ml/etc/ir"
)

// deferred is work whose result nothing has read yet: what reads it next may do it as a part of its own
// kernel. A slot that holds such a result has it in pending until then.
type deferred interface {
	// emit adds the steps that fill the slot.
	emit(b *binder)
}

// later defers work on a slot, which reads x. What reads a buffer of the program is done at once: its content
// may change.
func (b *binder) later(s *slot, d deferred, x ...*value) {
	s.pending, s.by = d, b.op
	b.waiting = append(b.waiting, s)
	for _, v := range x {
		if v != nil && v.slot.state {
			b.flush(s)
		}
	}
}

// flush does what is deferred on a slot.
func (b *binder) flush(s *slot) {
	if d := b.take(s); d != nil {
		op := b.op
		b.op = s.by
		d.emit(b)
		b.op = op
	}
}

// take takes over what is deferred on a slot: the caller does it.
func (b *binder) take(s *slot) deferred {
	d := s.pending
	s.pending = nil
	return d
}

// flushAll does what is still deferred and not only a result that nothing reads: writes of buffers.
func (b *binder) flushAll() {
	for _, s := range b.waiting {
		if s.buffer != nil {
			b.flush(s)
		}
	}
}

// countUses counts the uses of the values of the entry.
func countUses(r *ir.Region) map[*ir.Value]int {
	n := make(map[*ir.Value]int, 2*len(r.Ops))
	for _, op := range r.Ops {
		op.EachArg(func(a *ir.Arg) {
			if a.Kind == ir.ValueArg {
				n[a.Value]++
			}
		})
	}
	for _, v := range r.Results {
		n[v]++
	}
	return n
}

// only reports whether the value in an operand, through the views on the way to it, is used by nothing else:
// so what computes it can become a part of this operation.
func (b *binder) only(operand string) bool {
	v := b.op.Input(operand)
	for v != nil {
		if b.uses[v] != 1 {
			return false
		}
		if v.Def == nil || !v.Def.Def.IsView() {
			return true
		}
		v = v.Def.Input("x")
	}
	return false
}
