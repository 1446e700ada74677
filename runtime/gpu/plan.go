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

// boundPlan is an entry of a module, bound to the shapes of its inputs.
type boundPlan struct {
	entry      int        // of the module
	module     *ir.Module // the entry, lowered to the operations of the device for these shapes
	shapes     [][]int    // of the inputs; nil for ints
	inputs     []*hostValue
	hostValues []*hostValue // computed before the first step, in order
	steps      []step
	outputs    []*value
	size       int  // bytes of the arena
	apart      bool // no two slots of the arena share memory

	checks []func() error // checks of host values before every call; kernels rely on them

	uniforms   uniforms      // the inputs of a call that kernels read
	results    device.Buffer // where results of a few bytes lie; nil if in the arena
	pipelining *pipelining   // nil where calls cannot be pipelined
	programs   [2][]segment  // of each turn
	untuned    bool          // its products are to be measured: see instance.Tune
}

// binder makes a plan from a lowered module, operation by operation.
type binder struct {
	plan.Planner[*value]
	x    *instance
	plan *boundPlan
	// counters is the slot that arrivals returns.
	counters *slot
	// poolSteps are the step operands of kernels of pools, by the rows of a call and the units of a pool. checked are
	// the checks of block tables that the plan has.
	poolSteps map[[2]int]*slot
	checked   map[tableCheck]bool
	// part is set while the operations that a fused operation stands for are bound one by one, since it has no kernel
	// itself. It is that operation.
	part *ir.Op
	// uploaded has the copies of host values on the device.
	uploaded map[*hostValue]*value
	// slotTables are the slot tables for which the plan has checks.
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
	for _, c := range b.plan.hostValues { // the others are the same for every call
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
	b.plan.pipelining = b.planPipelining()
	return b.plan, nil
}

// memory allocates all memory of the plan except for the arena.
func (b *binder) memory() (err error) {
	b.plan.uniforms.arrange()
	b.placeResults()
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

// maxArena bounds the arena in bytes. Kernels index it in elements with 32 bits.
const maxArena = 1 << 34

// Constant returns a constant, decoded.
func (b *binder) Constant(v *ir.Value) (*value, error) { return b.x.exe.constant(v) }

// Slot returns the slot of a value in the arena or a buffer, or nil where it is not on the device.
func (b *binder) Slot(v *value) *plan.Slot {
	if v.place != onDevice {
		return nil
	}
	return &v.slot.Slot
}

// IsEmpty reports whether a value is a tensor without elements on the device.
func (b *binder) IsEmpty(v *value) bool { return v.place == onDevice && v.len() == 0 }

// Steps returns the number of steps so far.
func (b *binder) Steps() int { return len(b.plan.steps) }

// Truncate removes the steps from number n on.
func (b *binder) Truncate(n int) { b.plan.steps = b.plan.steps[:n] }

// BindStructure binds operations that need no kernel (a quantized weight, a noop), and those for which self-tests have
// refused every kernel. It reports whether it has bound the operation.
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

// BindKernel binds an operation to its kernel, if it has one.
func (b *binder) BindKernel() bool {
	kernel := kernelBinders[b.Op.Def.Name]
	return kernel != nil && (b.Op.Def.Expand != nil || !b.onlyHost()) && kernel(b)
}

// BindReference binds the operation to its reference kernel. A fused operation is replaced by the operations that it
// stands for, each on its reference kernel.
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

// onlyHost reports whether the host computes this operation: its operands are host values of at most 65536 elements, or
// constants of at most 1024, and it uses no buffer.
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

// result allocates result number i of the operation in the arena. Nil strides mean row-major order. It returns nil
// where the shape is not known before the plan runs.
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

// scratch returns size bytes in the arena, which are in use from the first step that names them.
func (b *binder) scratch(size int) *slot {
	s := &slot{}
	b.Scratch(&s.Slot, size)
	s.First = plan.Never
	return s
}

// alignment is the alignment in bytes of slots in the arena. It suits the widest load of a kernel, and buffers bound at
// an offset on every device.
const alignment = 256

// roomy is the size of the arena, in bytes, up to which no two results share memory.
const roomy = 64 << 20

// place assigns every slot of the arena its offset. Slots that are in use at the same time do not overlap. In a small
// arena no slots overlap at all, so that no kernel waits for another only because of memory.
func (b *binder) place() {
	p := b.plan
	p.size = plan.PlaceApart(b.Slots, alignment)
	if p.apart = p.size <= roomy; !p.apart {
		p.size = plan.Place(b.Slots, alignment)
	}
}
