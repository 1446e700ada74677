package plan

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
)

// Planner makes a plan of a module for inputs of known shapes. It binds one operation after the other: it turns each
// into steps (launches of kernels) or into a view. It does what is the same for every engine: it keeps the sizes, the
// values that are bound so far, and from which step to which a slot of the arena is in use. V is the type that an
// engine binds an ir.Value to.
type Planner[V any] struct {
	// Module is the module that is bound. Sizes are the values of its symbols for the shapes of the call.
	Module *ir.Module
	Sizes  Sizes
	// InPlaceLoads are the loads of buffers that need no copy: see the function InPlaceLoads.
	InPlaceLoads map[*ir.Op]bool
	// Op is the operation that is bound at the moment.
	Op *ir.Op
	// Values has what each ir.Value is bound to. A kernel's binder sets its results.
	Values map[*ir.Value]V
	// Slots are the slots of the arena.
	Slots []*Slot

	target Target[V]
}

// Target is what an engine does for its planner: it adds steps to the engine's plan. The methods Bind… work on
// Planner.Op.
type Target[V any] interface {
	// Constant returns what a constant is bound to.
	Constant(v *ir.Value) (V, error)
	// Slot returns the slot of the arena that a value lies in, or nil.
	Slot(v V) *Slot
	// IsEmpty reports whether a value is a tensor without elements. No kernel takes those.
	IsEmpty(v V) bool
	// Steps returns the number of steps that the plan has so far. Truncate removes those from number n on.
	Steps() int
	Truncate(n int)
	// BindStructure binds operations that no kernel computes: control flow, quantized weights. It returns false for
	// others.
	BindStructure() (bool, error)
	// BindView makes the result a view of the operand x. It returns false where that is impossible.
	BindView() bool
	// BindKernel binds the operation to a kernel. It returns false where there is none for it; the planner then undoes
	// the steps that it added.
	BindKernel() bool
	// BindReference binds the operation to its reference kernel.
	BindReference() error
}

// NewPlanner returns a planner of m for inputs of these shapes; nil is the shape of an int. The engine binds the
// parameters of the module itself.
func NewPlanner[V any](m *ir.Module, shapes [][]int, target Target[V]) Planner[V] {
	return Planner[V]{Module: m, Sizes: SizesOf(m.Entry.Params, shapes), InPlaceLoads: InPlaceLoads(m.Entry.Body),
		Values: make(map[*ir.Value]V, 2*len(m.Entry.Body.Ops)), target: target}
}

// Dims returns the dims of a shape, or false where they are known only when the plan runs.
func (p *Planner[V]) Dims(t ir.Type) ([]int, bool) { return p.Sizes.Dims(t) }

// Integer returns the value of an int operand of the operation, if it is known now.
func (p *Planner[V]) Integer(operand string) (int, bool) { return p.Sizes.Integer(p.Op, operand) }

// Value returns what a value of the IR is bound to. Constants are bound on first use.
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

// Input returns what the value in an operand is bound to. It returns the zero value where the operand is absent or a
// literal, or its constant has an error; binding to the reference kernel returns that error.
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

// Bind binds the operations of r. The slots that an operation reads or writes are in use until its last step.
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

// bind binds one operation: as a view, to a kernel, or to its reference kernel. A binder that fails leaves the plan as
// it was.
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

// hasElements reports whether no operand and no result of known shape is empty, so that kernels need not handle that
// case.
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

// Use marks the arguments of op, and the values that its regions use, as in use until step last.
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

// Keep marks a value as in use until step last.
func (p *Planner[V]) Keep(v V, last int) {
	if s := p.target.Slot(v); s != nil {
		s.Last = max(s.Last, last)
	}
}

// Scratch adds a slot of size units, in use from the next step on.
func (p *Planner[V]) Scratch(s *Slot, size int) {
	s.Size, s.First, s.Last = size, p.target.Steps(), p.target.Steps()
	p.Slots = append(p.Slots, s)
}
