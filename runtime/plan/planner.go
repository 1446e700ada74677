package plan

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

// Planner binds the operations of a module for inputs of known shapes, one after the other, and keeps what is the same
// for every engine: sizes, what values are bound to, and which slots of the arena live from which step to which. V is
// what an engine binds a value of the IR to.
type Planner[V any] struct {
	// Module is what is bound, Sizes the symbols that the shapes of the call tell.
	Module *ir.Module
	Sizes  Sizes
	// Held are the loads whose buffer nothing writes while they are used.
	InPlaceLoads map[*ir.Op]bool
	// Op is the operation that is bound.
	Op *ir.Op
	// Values are what values are bound to. A kernel sets its results.
	Values map[*ir.Value]V
	// Slots are those of the arena.
	Slots []*Slot

	target Target[V]
}

// Target is an engine as its planner sees it. The methods that bind speak of Planner.Op.
type Target[V any] interface {
	// Constant is what a constant is bound to.
	Constant(v *ir.Value) (V, error)
	// Slot is the slot of the arena that a value lies in, or nil.
	Slot(v V) *Slot
	// IsEmpty reports whether a value is a tensor without elements, which no kernel takes.
	IsEmpty(v V) bool
	// Steps is the number of steps so far; Truncate forgets those behind the first n.
	Steps() int
	Truncate(n int)
	// BindStructure binds operations that no kernel computes: control flow, joined weights. It gives false for others.
	BindStructure() (bool, error)
	// BindView makes the result its operand x seen in another way. It gives false where it cannot be.
	BindView() bool
	// BindKernel binds the operation to a kernel. It gives false, whatever it has done, where there is none for it.
	BindKernel() bool
	// BindReference binds the operation to its reference kernel.
	BindReference() error
}

// NewPlanner makes a planner for inputs of these shapes, nil for an int. Parameters are bound by the engine.
func NewPlanner[V any](m *ir.Module, shapes [][]int, target Target[V]) Planner[V] {
	return Planner[V]{Module: m, Sizes: SizesOf(m.Entry.Params, shapes), InPlaceLoads: InPlaceLoads(m.Entry.Body),
		Values: make(map[*ir.Value]V, 2*len(m.Entry.Body.Ops)), target: target}
}

// Dims gives the numbers of a shape, or false where they are known only when the plan runs.
func (p *Planner[V]) Dims(t ir.Type) ([]int, bool) { return p.Sizes.Dims(t) }

// Integer is the number of an int operand of the operation, where it is known now.
func (p *Planner[V]) Integer(operand string) (int, bool) { return p.Sizes.Integer(p.Op, operand) }

// Value is what a value of the IR is bound to. Constants are bound when they are first asked for.
func (p *Planner[V]) Value(v *ir.Value) (V, error) {
	if n, ok := p.Values[v]; ok {
		return n, nil
	}
	n, err := p.target.Constant(v)
	if err == nil {
		p.Values[v] = n
	}
	return n, err
}

// Input is what the value in an operand is bound to; the zero value where it is absent or a literal. Errors of
// constants come up again where they are bound as arguments of the reference kernel.
func (p *Planner[V]) Input(operand string) (none V) {
	v := p.Op.Input(operand)
	if v == nil {
		return none
	}
	if n, err := p.Value(v); err == nil {
		return n
	}
	return none
}

// Bind binds the operations of r. What the steps of an operation use lives until the last of them.
func (p *Planner[V]) Bind(r *ir.Region) error {
	for _, op := range r.Ops {
		first := p.target.Steps()
		if err := p.bind(op); err != nil {
			return fmt.Errorf("%w\n\tin %s", err, ir.Describe(p.Module, op))
		}
		p.Use(op, max(first, p.target.Steps()-1))
	}
	return nil
}

// bind binds an operation: as a view, by a kernel, or to its reference kernel. A kernel that cannot be bound leaves the
// plan as it was.
func (p *Planner[V]) bind(op *ir.Op) error {
	p.Op = op
	if done, err := p.target.BindStructure(); done || err != nil {
		return err
	}
	if op.Def.IsView() && p.target.BindView() {
		return nil
	}
	if p.hasElements() {
		steps, slots := p.target.Steps(), len(p.Slots)
		if p.target.BindKernel() {
			return nil
		}
		p.target.Truncate(steps)
		p.Slots = p.Slots[:slots]
		for _, v := range op.Results {
			delete(p.Values, v)
		}
	}
	return p.target.BindReference()
}

// hasElements reports whether no operand and no result of a known shape is empty: kernels need not think of that.
func (p *Planner[V]) hasElements() bool {
	ok := true
	p.Op.EachArg(func(a *ir.Arg) {
		if v, bound := p.Values[a.Value]; a.Kind == ir.ValueArg && bound && p.target.IsEmpty(v) {
			ok = false
		}
	})
	for _, r := range p.Op.Results {
		if shape, known := p.Dims(r.Type); known && r.Type.Kind == ir.TensorKind {
			for _, n := range shape {
				ok = ok && n > 0
			}
		}
	}
	return ok
}

// Use lets the arguments of op, and what its regions use, live until a step.
func (p *Planner[V]) Use(op *ir.Op, last int) {
	mark := func(v *ir.Value) {
		if n, ok := p.Values[v]; ok {
			p.Keep(n, last)
		}
	}
	op.EachArg(func(a *ir.Arg) { mark(a.Value) })
	for _, r := range op.Regions {
		for _, v := range r.Results {
			mark(v)
		}
		for _, o := range r.Ops {
			p.Use(o, last)
			for _, v := range o.Results {
				mark(v)
			}
		}
	}
}

// Keep lets a value live until a step.
func (p *Planner[V]) Keep(v V, last int) {
	if s := p.target.Slot(v); s != nil {
		s.Last = max(s.Last, last)
	}
}

// Scratch is memory of so many units in the arena, from the next step on.
func (p *Planner[V]) Scratch(s *Slot, size int) {
	s.Size, s.First, s.Last = size, p.target.Steps(), p.target.Steps()
	p.Slots = append(p.Slots, s)
}
