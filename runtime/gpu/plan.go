package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// boundPlan is a module bound to the shapes of its inputs.
type boundPlan struct {
	entry      int        // of the module
	module     *ir.Module // the entry in the operations of the device, for inputs of these shapes
	shapes     [][]int    // of the inputs; nil for ints
	inputs     []*hostValue
	hostValues []*hostValue // computed before the first step, in order
	steps      []step
	outputs    []*value
	size       int  // bytes of the arena
	apart      bool // nothing in the arena shares memory

	checks []func() error // of host values: what kernels trust

	uniforms uniforms      // what the steps read of a call
	results  device.Buffer // where results of a few bytes lie, if they do not lie in the arena
	ahead    *ahead        // nil where no call can be begun before the one before it was read
	programs [2][]segment  // of each turn
}

// binder makes a plan.
type binder struct {
	plan.Planner[*value]
	x    *instance
	plan *boundPlan
	// counters are what arrivals gives.
	counters *slot
	// poolSteps are steps by the rows of a call and the units of a pool; checked are the tables of blocks that calls
	// are checked for.
	poolSteps map[[2]int]*slot
	checked   map[tableCheck]bool
	// part is the operation that Op is a part of, where that has no kernel; else nil.
	part *ir.Op
	// uploaded are the values of host values on the device.
	uploaded map[*hostValue]*value
	// slotTables are the tables of calls of several sequences that were checked.
	slotTables map[slotsKey]*slotTables
}

// bind makes a plan of the main entry for inputs of these shapes.
func (x *instance) bind(shapes [][]int) (*boundPlan, error) { return x.bindEntry(0, shapes) }

// bindEntry makes a plan of an entry for inputs of these shapes.
func (x *instance) bindEntry(entry int, shapes [][]int) (*boundPlan, error) {
	m, err := x.exe.lowered(entry, shapes)
	if err != nil {
		return nil, err
	}
	b := &binder{x: x, plan: &boundPlan{entry: entry, module: m, shapes: shapes}, uploaded: map[*hostValue]*value{},
		slotTables: map[slotsKey]*slotTables{}}
	b.Planner = plan.NewPlanner(m, shapes, plan.Target[*value](b))
	for i, p := range m.Entry.Params {
		c := &hostValue{}
		b.Values[p] = &value{place: onHost, dtype: p.Type.DType, shape: shapes[i], hostValue: c}
		b.plan.inputs = append(b.plan.inputs, c)
	}
	if err := b.Bind(m.Entry.Body); err != nil {
		return nil, err
	}
	for _, r := range m.Entry.Body.Results {
		v, err := b.Value(r)
		if err != nil {
			return nil, err
		}
		b.plan.outputs = append(b.plan.outputs, v)
		if v.hostValue != nil {
			v.hostValue.need()
		}
		b.Keep(v, b.Steps())
	}
	b.plan.hostValues = slices.DeleteFunc(b.plan.hostValues, func(c *hostValue) bool { return !c.needed || c.constant })
	for _, c := range b.plan.hostValues { // what is left is computed for every call
		if c.slow != nil {
			b.x.exe.note(c.slow)
		}
	}
	if b.x.exe.failure != nil {
		return nil, b.x.exe.failure
	}
	if err := b.memory(); err != nil {
		return nil, errors.Join(err, b.plan.close(x))
	}
	b.plan.ahead = b.foresee()
	return b.plan, nil
}

// memory places what the plan needs memory for, but for the arena itself.
func (b *binder) memory() (err error) {
	b.deliver()
	b.place()
	if b.plan.size > maxArena {
		return fmt.Errorf("a call of this size needs %d GiB of memory for intermediate results; use a smaller chunk",
			b.plan.size>>30)
	}
	w := &b.plan.uniforms
	if w.size > 0 {
		if w.buffer, err = b.x.alloc(w.size); err != nil {
			return err
		}
	}
	for _, s := range w.slots {
		s.buffer = w.buffer
	}
	return nil
}

// maxArena bounds the memory of a plan in bytes: kernels index it with 32 bits.
const maxArena = 1 << 34

// Constant is a constant, decoded.
func (b *binder) Constant(v *ir.Value) (*value, error) { return b.x.exe.constant(v) }

// Slot is where a value lies on the device; nil for one that is not there.
func (b *binder) Slot(v *value) *plan.Slot {
	if v.place != onDevice {
		return nil
	}
	return &v.slot.Slot
}

// IsEmpty reports whether a value is a tensor without elements on the device.
func (b *binder) IsEmpty(v *value) bool { return v.place == onDevice && v.len() == 0 }

// Steps is the number of steps so far.
func (b *binder) Steps() int { return len(b.plan.steps) }

// Truncate forgets the steps behind the first n.
func (b *binder) Truncate(n int) { b.plan.steps = b.plan.steps[:n] }

// BindStructure binds what only reference kernels take as a whole, and operations whose kernels must not be used.
func (b *binder) BindStructure() (bool, error) {
	switch op := b.Op; {
	case op.Def.Name == "quantized":
		b.Values[op.Result()] = &value{place: joined}
		return true, nil
	case op.Def.Name == "noop":
		return true, nil
	case b.slow(op):
		return true, b.BindReference()
	}
	return false, nil
}

// BindKernel binds an operation to its kernel.
func (b *binder) BindKernel() bool {
	kernel := kernelBinders[b.Op.Def.Name]
	return kernel != nil && (b.Op.Def.Expand != nil || !b.onlyHost()) && kernel(b)
}

// BindReference binds the operation to its reference kernel, or to those of what it stands for.
func (b *binder) BindReference() error {
	op := b.Op
	if op.Def.Expand == nil {
		return b.reference()
	}
	if !b.slow(op) {
		b.x.exe.note(op)
	}
	var list []*ir.Op
	var results []*ir.Value
	if err := ir.Build(func() {
		results = op.Def.Expand(&ir.Builder{Insert: func(o *ir.Op) { list = append(list, o) }},
			op)
	}); err != nil {
		return err
	}
	b.part = op
	defer func() { b.Op, b.part = op, nil }()
	for _, o := range list {
		first := b.Steps()
		b.Op = o
		if err := b.reference(); err != nil {
			return err
		}
		b.Use(o, max(first, b.Steps()-1))
	}
	for i, r := range op.Results {
		v, err := b.Value(results[i])
		if err != nil {
			return err
		}
		b.Values[r] = v
	}
	return nil
}

// onlyHost reports whether an operation of host values alone is cheap enough for the host: arithmetic of a few
// numbers.
func (b *binder) onlyHost() bool {
	host := b.Op.Buffer == nil
	b.Op.EachArg(func(a *ir.Arg) {
		if v := b.Values[a.Value]; a.Kind == ir.ValueArg &&
			(v == nil || v.place != onHost || v.shape != nil && v.len() > 1<<16) {
			host = host && v == nil && a.Value.Constant != nil && ir.Elements(a.Value.Constant.Data.Shape()) <= 1<<10
		}
	})
	return host
}

// result gives result number i of the operation memory in the arena, its elements in row-major order where
// no strides are given. It gives nil where the shape is not known.
func (b *binder) result(i int, strides []int) *value {
	r := b.Op.Results[i]
	shape, ok := b.Dims(r.Type)
	if !ok || r.Type.Kind == ir.IntKind {
		return nil
	}
	if strides == nil {
		strides = strided.RowMajor(shape)
	}
	v := &value{dtype: r.Type.DType, shape: shape, stride: strides}
	if !r.Type.DType.IsFloat() {
		v.format = i32
	}
	v.slot = b.scratch(4 * strided.Elements(shape))
	b.Values[r] = v
	return v
}

// scratch is memory in the arena of a number of bytes, from the first step on that names it.
func (b *binder) scratch(size int) *slot {
	s := &slot{}
	b.Scratch(&s.Slot, size)
	s.First = plan.Never
	return s
}

// alignment of what lies in the arena, in bytes: that of the widest load of a kernel, and what bindings of
// buffers at an offset need on every device.
const alignment = 256

// roomy is the size, in bytes, up to which every result has memory of its own.
const roomy = 64 << 20

// place gives every slot of the arena its place: what lives at the same time does not overlap. Where all of them are
// not much, nothing shares memory, and so nothing waits for memory.
func (b *binder) place() {
	p := b.plan
	p.size = plan.PlaceApart(b.Slots, alignment)
	if p.apart = p.size <= roomy; !p.apart {
		p.size = plan.Place(b.Slots, alignment)
	}
}
