package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/strided"
)

// plan is a module bound to the shapes of its inputs.
type plan struct {
	entry   int        // of the module
	module  *ir.Module // the entry in the operations of the device, for inputs of these shapes
	shapes  [][]int    // of the inputs; nil for ints
	inputs  []*cell
	cells   []*cell // computed before the first step, in order
	steps   []step
	outputs []*value
	slots   []*slot // those in the arena
	size    int     // bytes of the arena
	apart   bool    // nothing in the arena shares memory

	checks []func() error // of cells: what kernels trust

	words    words         // what the steps read of a call
	results  device.Buffer // where results of a few bytes lie, if they do not lie in the arena
	ahead    *ahead        // nil where no call can be begun before the one before it was read
	programs [2][]segment  // of each turn
}

// binder makes a plan.
type binder struct {
	x       *instance
	plan    *plan
	symbols bind.Sizes
	values  map[*ir.Value]*value
	// held are the loads whose buffer nothing writes while they are used.
	held map[*ir.Op]bool
	// counters are what arrivals gives.
	counters *slot
	// forms are rows in the form that tiled products take.
	forms map[preparedKey]*slot
	// op is the operation that is bound.
	op *ir.Op
	// part is the operation that op is a part of, where that has no kernel; else nil.
	part *ir.Op
	// uploaded are the values of cells on the device.
	uploaded map[*cell]*value
}

// bind makes a plan of the main entry for inputs of these shapes.
func (x *instance) bind(shapes [][]int) (*plan, error) { return x.bindEntry(0, shapes) }

// bindEntry makes a plan of an entry for inputs of these shapes.
func (x *instance) bindEntry(entry int, shapes [][]int) (*plan, error) {
	m, err := x.exe.lowered(entry, shapes)
	if err != nil {
		return nil, err
	}
	b := &binder{x: x, plan: &plan{entry: entry, module: m, shapes: shapes}, symbols: bind.SizesOf(m.Entry.Params, shapes),
		values: make(map[*ir.Value]*value, 2*len(m.Entry.Body.Ops)), held: bind.HeldLoads(m.Entry.Body),
		uploaded: map[*cell]*value{}, forms: map[preparedKey]*slot{}}
	for i, p := range m.Entry.Params {
		c := &cell{}
		b.values[p] = &value{place: onHost, dtype: p.Type.DType, shape: shapes[i], cell: c}
		b.plan.inputs = append(b.plan.inputs, c)
	}
	for _, op := range m.Entry.Body.Ops {
		first := len(b.plan.steps)
		if err := b.bindOp(op); err != nil {
			return nil, fmt.Errorf("%w\n\tin %s", err, ir.Describe(m, op))
		}
		// What the steps use lives until the last of them.
		b.use(op, max(first, len(b.plan.steps)-1))
	}
	for _, r := range m.Entry.Body.Results {
		v, err := b.value(r)
		if err != nil {
			return nil, err
		}
		b.plan.outputs = append(b.plan.outputs, v)
		if v.place == onDevice {
		} else if v.cell != nil {
			v.cell.need()
		}
	}
	for _, v := range b.plan.outputs {
		if v.place == onDevice {
			v.slot.last = len(b.plan.steps)
		}
	}
	b.plan.cells = slices.DeleteFunc(b.plan.cells, func(c *cell) bool { return !c.needed || c.constant })
	for _, c := range b.plan.cells { // what is left is computed for every call
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
	b.plan.place()
	if b.plan.size > maxArena {
		return fmt.Errorf("a call of this size needs %d GiB of memory for intermediate results; use a smaller chunk", b.plan.size>>30)
	}
	w := &b.plan.words
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

// dims gives the numbers of a shape, or false where they are known only when the plan runs.
func (b *binder) dims(t ir.Type) ([]int, bool) { return b.symbols.Dims(t) }

func (b *binder) number(e *ir.Expr) (int, bool) { return b.symbols.Number(e) }

// integer is the number of an int operand, where it is known now.
func (b *binder) integer(operand string) (int, bool) { return b.symbols.Integer(b.op, operand) }

// value is what a value of the IR is bound to.
func (b *binder) value(v *ir.Value) (*value, error) {
	if n := b.values[v]; n != nil {
		return n, nil
	}
	n, err := b.x.exe.constant(v)
	if err != nil {
		return nil, err
	}
	b.values[v] = n
	return n, nil
}

// input is the value of an operand, or nil where it is absent or no value. Errors of constants come up
// again where they are bound as arguments of the reference kernel.
func (b *binder) input(name string) *value {
	v := b.op.Input(name)
	if v == nil {
		return nil
	}
	n, err := b.value(v)
	if err != nil {
		return nil
	}
	return n
}

// use notes that the arguments of op live until a step.
func (b *binder) use(op *ir.Op, last int) {
	op.EachArg(func(a *ir.Arg) {
		if n := b.values[a.Value]; n != nil && n.place == onDevice {
			n.slot.last = max(n.slot.last, last)
		}
	})
}

// bindOp binds an operation: as a view, by kernels, on the host, or to its reference kernel.
func (b *binder) bindOp(op *ir.Op) error {
	b.op = op
	switch op.Def.Name {
	case "quantized":
		b.values[op.Result()] = &value{place: joined}
		return nil
	case "noop":
		return nil
	}
	if b.slow(op) {
		return b.withoutKernel()
	}
	if op.Def.IsView() && b.bindView() {
		return nil
	}
	if kernel := kernelBinders[op.Def.Name]; kernel != nil && b.hasElements() && (op.Def.Expand != nil || !b.onlyHost()) {
		if kernel(b) {
			return nil
		}
	}
	return b.withoutKernel()
}

// withoutKernel binds the operation to its reference kernel, or to those of what it stands for.
func (b *binder) withoutKernel() error {
	op := b.op
	if op.Def.Expand == nil {
		return b.reference()
	}
	if !b.slow(op) {
		b.x.exe.note(op)
	}
	var list []*ir.Op
	var results []*ir.Value
	if err := ir.Build(func() { results = op.Def.Expand(&ir.Builder{Insert: func(o *ir.Op) { list = append(list, o) }}, op) }); err != nil {
		return err
	}
	b.part = op
	defer func() { b.op, b.part = op, nil }()
	for _, o := range list {
		first := len(b.plan.steps)
		b.op = o
		if err := b.reference(); err != nil {
			return err
		}
		b.use(o, max(first, len(b.plan.steps)-1))
	}
	for i, r := range op.Results {
		v, err := b.value(results[i])
		if err != nil {
			return err
		}
		b.values[r] = v
	}
	return nil
}

// onlyHost reports whether an operation of cells alone is cheap enough for the host: arithmetic of a few
// numbers.
func (b *binder) onlyHost() bool {
	host := b.op.Buffer == nil
	b.op.EachArg(func(a *ir.Arg) {
		if v := b.values[a.Value]; a.Kind == ir.ValueArg && (v == nil || v.place != onHost || v.shape != nil && v.len() > 1<<16) {
			host = host && v == nil && a.Value.Constant != nil && ir.Elements(a.Value.Constant.Data.Shape()) <= 1<<10
		}
	})
	return host
}

// hasElements reports whether no operand and no result of a known shape is empty: kernels need not think
// of that.
func (b *binder) hasElements() bool {
	ok := true
	b.op.EachArg(func(a *ir.Arg) {
		if v := b.values[a.Value]; a.Kind == ir.ValueArg && v != nil && v.place == onDevice && v.len() == 0 {
			ok = false
		}
	})
	for _, r := range b.op.Results {
		if shape, known := b.dims(r.Type); known && strided.Elements(shape) == 0 {
			ok = false
		}
	}
	return ok
}

// result gives result number i of the operation memory in the arena, its elements in row-major order where
// no strides are given. It gives nil where the shape is not known.
func (b *binder) result(i int, strides []int) *value {
	r := b.op.Results[i]
	shape, ok := b.dims(r.Type)
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
	b.values[r] = v
	return v
}

// never is the first step of a slot that nothing fills.
const never = 1 << 30

// scratch is memory in the arena of a number of bytes, from the first step on that names it.
func (b *binder) scratch(size int) *slot {
	s := &slot{size: size, first: never, last: len(b.plan.steps)}
	b.plan.slots = append(b.plan.slots, s)
	return s
}

// alignment of what lies in the arena, in bytes: that of the widest load of a kernel, and what bindings of
// buffers at an offset need on every device.
const alignment = 256

// roomy is the size, in bytes, up to which every result has memory of its own.
const roomy = 64 << 20

// place gives every slot of the arena its place: what lives at the same time does not overlap.
func (p *plan) place() {
	p.slots = slices.DeleteFunc(p.slots, func(s *slot) bool { return s.first == never })
	slots := make([]*bind.Slot, len(p.slots))
	total := 0
	for i, s := range p.slots {
		slots[i] = &bind.Slot{Size: s.size, First: s.first, Last: s.last, Offset: total}
		total += (s.size + alignment - 1) &^ (alignment - 1)
	}
	// Where nothing shares memory, nothing waits for memory.
	if p.size, p.apart = total, total <= roomy; !p.apart {
		p.size = bind.Place(slots, alignment)
	}
	for i, s := range p.slots {
		s.offset = slots[i].Offset
	}
}
