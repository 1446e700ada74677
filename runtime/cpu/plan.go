package cpu

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/strided"
)

// plan is a module bound to the shapes of its inputs.
type plan struct {
	shapes  [][]int // of the inputs; nil for ints
	inputs  []*value
	steps   []step
	outputs []*value
	slots   []*slot // those in the arena
	size    int     // floats of the arena
	arena   []float32

	// labels and tokens are what observers are told of the steps.
	labels []bind.Label
	tokens int
}

// step is an operation, or a part of one.
type step struct {
	op   *ir.Op
	kind string
	run  func() error
	// bytes and flops are what the step reads of weights and state, and its multiply-adds times two.
	bytes, flops int
	// cost gives these where they depend on the position, after the step ran; nil where they do not.
	cost func() (bytes, flops int)
}

// binder makes a plan.
type binder struct {
	x       *instance
	plan    *plan
	symbols bind.Sizes
	values  map[*ir.Value]*value
	// held are the loads whose buffer nothing writes while they are used.
	held map[*ir.Op]bool
	// op is the operation that is bound.
	op *ir.Op
	// ropes are the tables of angles that were computed already.
	ropes map[ropeKey]*ropeTable
}

// bind makes a plan for inputs of these shapes.
func (x *instance) bind(shapes [][]int) (*plan, error) {
	m := x.exe.fused
	b := &binder{x: x, plan: &plan{shapes: shapes}, symbols: bind.SizesOf(m.Entry.Params, shapes), values: map[*ir.Value]*value{},
		held: bind.HeldLoads(m.Entry.Body), ropes: map[ropeKey]*ropeTable{}}
	for i, p := range m.Entry.Params {
		v := &value{kind: register, dtype: p.Type.DType, slot: &slot{}}
		if p.Type.Kind != ir.IntKind {
			v.kind, v.shape, v.stride = dense, shapes[i], strided.RowMajor(shapes[i])
		}
		b.values[p] = v
		b.plan.inputs = append(b.plan.inputs, v)
	}
	if err := b.region(m.Entry.Body); err != nil {
		return nil, err
	}
	for _, r := range m.Entry.Body.Results {
		v, err := b.value(r)
		if err != nil {
			return nil, err
		}
		b.plan.outputs = append(b.plan.outputs, v)
		v.slot.keep(len(b.plan.steps))
	}
	b.plan.place()
	if b.plan.size > maxArena {
		return nil, fmt.Errorf("a call of this size needs %d GiB of memory for intermediate results; use a smaller chunk", b.plan.size>>28)
	}
	return b.plan, nil
}

// maxArena bounds the memory of a plan, in floats.
const maxArena = 1 << 32

// dims gives the numbers of a shape, or false where they are known only when the plan runs.
func (b *binder) dims(t ir.Type) ([]int, bool) { return b.symbols.Dims(t) }

// integer is the number of an int operand, where it is known now.
func (b *binder) integer(op *ir.Op, operand string) (int, bool) {
	return b.symbols.Integer(op, operand)
}

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

// region binds the operations of r.
func (b *binder) region(r *ir.Region) error {
	for _, op := range r.Ops {
		if b.x.ended() {
			return errEnded // the first call reads weights
		}
		first := len(b.plan.steps)
		if err := b.bindOp(op); err != nil {
			return fmt.Errorf("%w\n\tin %s", err, ir.Describe(b.x.exe.fused, op))
		}
		// What the steps use lives until the last of them.
		b.use(op, max(first, len(b.plan.steps)-1))
	}
	return nil
}

// use notes that the arguments of op, and what its regions use, live until a step.
func (b *binder) use(op *ir.Op, last int) {
	mark := func(v *ir.Value) {
		if n := b.values[v]; n != nil {
			n.slot.keep(last)
		}
	}
	op.EachArg(func(a *ir.Arg) { mark(a.Value) })
	for _, r := range op.Regions {
		for _, v := range r.Results {
			mark(v)
		}
		for _, o := range r.Ops {
			b.use(o, last)
			for _, v := range o.Results {
				mark(v)
			}
		}
	}
}

// bindOp binds an operation: as a view, by a kernel, or to its reference kernel.
func (b *binder) bindOp(op *ir.Op) error {
	b.op = op
	switch op.Def.Name {
	case "if":
		return b.branch(op)
	case "scan":
		return b.scan(op)
	case "quantized":
		b.values[op.Result()] = &value{kind: joined, slot: &slot{}}
		return nil
	case "noop":
		return nil
	case "undef":
		b.values[op.Result()] = &value{kind: boxed, slot: &slot{}}
		return nil
	}
	if op.Def.IsView() && b.bindView() {
		return nil
	}
	if k := kernels[op.Def.Name]; k != nil && b.hasElements() {
		steps, slots := len(b.plan.steps), len(b.plan.slots)
		if k(b) {
			return nil
		}
		b.plan.steps, b.plan.slots = b.plan.steps[:steps], b.plan.slots[:slots]
	}
	return b.reference(op)
}

// hasElements reports whether no operand and no result of a known shape is empty: kernels need not think
// of that.
func (b *binder) hasElements() bool {
	ok := true
	b.op.EachArg(func(a *ir.Arg) {
		if v := b.values[a.Value]; a.Kind == ir.ValueArg && v != nil && v.kind == dense && v.len() == 0 {
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

// kernels bind operations to kernels of this engine: they make the result's value and steps. They give
// false, whatever they have done, where the arguments are not what the kernel takes.
var kernels map[string]func(b *binder) bool

func init() {
	kernels = map[string]func(*binder) bool{
		"load": bindLoad, "store": bindStore, "buffer_slice_update": bindSliceUpdate, "buffer_ring_update": bindRingUpdate,
		"linear": bindLinear, "linears": bindLinears, "embedding": bindEmbedding,
		"rms_norm": bindNorm, "rope": bindRope, "softmax": bindSoftmax, "glu": bindGLU, "softcap": bindSoftcap,
		"silu": bindUnary, "sigmoid": bindUnary, "tanh": bindUnary,
		"add": bindBinary, "multiply": bindBinary,
		"cached_attention": bindAttention, "buffer_conv": bindConv, "buffer_delta_rule": bindDeltaRule, "delta_decay": bindDecay,
		"top_k": bindTopK, "switch_mlp": bindSwitchMLP, "sample": bindSample,
	}
}

// step adds a step of the operation that is bound.
func (b *binder) step(kind string, run func() error) *step {
	b.plan.steps = append(b.plan.steps, step{op: b.op, kind: kind, run: run})
	return &b.plan.steps[len(b.plan.steps)-1]
}

// do adds a step that cannot fail.
func (b *binder) do(kind string, run func()) *step {
	return b.step(kind, func() error { run(); return nil })
}

// result gives result number i of the operation memory in the arena, its elements in row-major order
// where no strides are given. It fails where the shape is not known.
func (b *binder) result(i int, strides []int) *value {
	r := b.op.Results[i]
	shape, ok := b.dims(r.Type)
	if !ok || !r.Type.DType.IsFloat() {
		return nil
	}
	if strides == nil {
		strides = strided.RowMajor(shape)
	}
	v := &value{dtype: r.Type.DType, slot: b.scratch(strided.Elements(shape)), shape: shape, stride: strides}
	b.values[r] = v
	return v
}

// scratch is memory in the arena from the next step on.
func (b *binder) scratch(size int) *slot {
	s := &slot{size: size, first: len(b.plan.steps), last: len(b.plan.steps)}
	b.plan.slots = append(b.plan.slots, s)
	return s
}

// denseFloats is v with its elements in row-major order, copied where they are not.
func (b *binder) denseFloats(v *value) *value {
	if v.isDense() {
		return v
	}
	n := &value{dtype: v.dtype, slot: b.scratch(v.len()), shape: v.shape, stride: strided.RowMajor(v.shape)}
	b.do("copy", func() { copyStrided(n.floats(), n.stride, v.floats(), v.stride, v.shape) })
	n.slot.last = len(b.plan.steps)
	return n
}

// place gives every slot of the arena its place: what lives at the same time does not overlap.
func (p *plan) place() {
	slots := make([]bind.Slot, len(p.slots))
	for i, s := range p.slots {
		slots[i] = bind.Slot{Size: s.size, First: s.first, Last: s.last}
	}
	p.size = bind.Place(slots, cacheLine)
	for i, s := range p.slots {
		s.offset = slots[i].Offset
	}
}

// cacheLine is the alignment of slots, in floats.
const cacheLine = 16

// attach points the slots to an arena.
func (p *plan) attach(arena []float32) {
	if p.arena != nil && &p.arena[0] == &arena[0] && len(p.arena) == len(arena) {
		return
	}
	p.arena = arena
	for _, s := range p.slots {
		s.f = arena[s.offset : s.offset+s.size : s.offset+s.size]
	}
}

// run executes the plan.
func (p *plan) run(x *instance) error {
	if x.exe.observe != nil {
		return p.observe(x)
	}
	for i := range p.steps {
		if err := p.steps[i].run(); err != nil {
			return x.failed(&p.steps[i], err)
		}
		if x.ended() {
			return errEnded
		}
	}
	return nil
}

// failed says which operation an error is of.
func (x *instance) failed(s *step, err error) error {
	return fmt.Errorf("%w\n\tin %s", err, ir.Describe(x.exe.fused, s.op))
}

// tensor is v as the reference kernels take it: its own memory where it is dense.
func (v *value) tensor() *eval.Tensor {
	n := v.len()
	t := &eval.Tensor{DType: v.dtype, Shape: v.shape}
	switch {
	case v.slot.state != nil:
		whole := make([]float32, v.slot.state.size)
		v.slot.state.decode(whole)
		t.F = make([]float32, n)
		copyStrided(t.F, strided.RowMajor(v.shape), whole[v.offset:], v.stride, v.shape)
	case v.dtype.IsFloat():
		if t.F = []float32{}; n > 0 && v.isDense() {
			t.F = v.floats()[:n:n]
		} else if n > 0 {
			t.F = make([]float32, n)
			copyStrided(t.F, strided.RowMajor(v.shape), v.floats(), v.stride, v.shape)
		}
	default:
		if t.I = []int64{}; n > 0 && v.isDense() {
			t.I = v.ints()[:n:n]
		} else if n > 0 {
			t.I = make([]int64, n)
			copyStrided(t.I, strided.RowMajor(v.shape), v.ints(), v.stride, v.shape)
		}
	}
	return t
}
