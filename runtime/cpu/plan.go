package cpu

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// boundPlan is a fused entry, bound to the shapes of its inputs.
type boundPlan struct {
	module  *ir.Module
	shapes  [][]int // of the inputs; nil for ints
	inputs  []*value
	steps   []step
	outputs []*value
	slots   []*slot // those in the arena
	size    int     // floats of the arena
	arena   []float32

	// labels and tokens are reported to observers with the steps.
	labels []plan.Label
	tokens int
}

// step is one step of a plan. An operation has one step or several.
type step struct {
	op   *ir.Op
	kind string
	run  func() error
	// bytes is the number of bytes of weights and state that the step reads. flops is two times its multiply-adds.
	bytes, flops int
	// cost returns these two after the step has run, where they depend on the position; else it is nil.
	cost func() (bytes, flops int)
}

// binder makes a plan from a fused entry, operation by operation.
type binder struct {
	plan.Planner[*value]
	x    *instance
	plan *boundPlan
	// ropes has the tables of angles that the plan computes already.
	ropes map[ropeKey]*ropeTable
}

// bind makes a plan of a fused entry for inputs of these shapes.
func (x *instance) bind(m *ir.Module, shapes [][]int) (*boundPlan, error) {
	b := &binder{x: x, plan: &boundPlan{module: m, shapes: shapes}, ropes: map[ropeKey]*ropeTable{}}
	b.Planner = plan.NewPlanner(m, shapes, plan.Target[*value](b))
	for i, p := range m.Entry.Params {
		v := &value{kind: register, dtype: p.Type.DType, slot: &slot{}}
		if p.Type.Kind != ir.IntKind {
			v.kind, v.shape, v.stride = dense, shapes[i], strided.RowMajor(shapes[i])
		}
		b.Values[p] = v
		b.plan.inputs = append(b.plan.inputs, v)
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
		b.Keep(v, b.Steps())
	}
	b.plan.slots = b.plan.slots[:len(b.Slots)]
	if b.plan.size = plan.Place(b.Slots, cacheLine); b.plan.size > maxArena {
		return nil, fmt.Errorf("a call of this size needs %d GiB of memory for intermediate results; use a "+
			"smaller chunk", b.plan.size>>28)
	}
	return b.plan, nil
}

// maxArena bounds the arena of a plan, in floats.
const maxArena = 1 << 32

// cacheLine is the alignment of slots, in floats.
const cacheLine = 16

// Constant returns the decoded value of a constant.
func (b *binder) Constant(v *ir.Value) (*value, error) { return b.x.exe.constant(v) }

// Slot returns the slot of the arena that a value lies in, or nil. Other values may be constants, which instances
// share.
func (b *binder) Slot(v *value) *plan.Slot {
	if v.slot.Size == 0 {
		return nil
	}
	return &v.slot.Slot
}

// IsEmpty reports whether a value is a tensor without elements.
func (b *binder) IsEmpty(v *value) bool { return v.kind == dense && v.len() == 0 }

// Steps returns the number of steps so far.
func (b *binder) Steps() int { return len(b.plan.steps) }

// Truncate removes the steps from number n on.
func (b *binder) Truncate(n int) { b.plan.steps = b.plan.steps[:n] }

// BindStructure binds control flow, and operations that only reference kernels take. It reports whether it has bound
// the operation.
func (b *binder) BindStructure() (bool, error) {
	if b.x.ended() {
		return true, errEnded // the first call reads weights, which takes long
	}
	switch op := b.Op; op.Def.Name {
	case "if":
		return true, b.branch(op)
	case "scan":
		return true, b.scan(op)
	case "quantized":
		b.Values[op.Result()] = &value{kind: joined, slot: &slot{}}
	case "noop":
	case "undef":
		b.Values[op.Result()] = &value{kind: boxed, slot: &slot{}}
	default:
		return false, nil
	}
	return true, nil
}

// BindKernel binds an operation to its kernel, if it has one.
func (b *binder) BindKernel() bool {
	k := kernels[b.Op.Def.Name]
	return k != nil && k(b)
}

// kernels has, for each operation with a kernel, the function that adds its steps to the plan and makes the values of
// its results. A function returns false where the operands are not what the kernel takes.
var kernels map[string]func(b *binder) bool

func init() {
	kernels = map[string]func(*binder) bool{
		"load": bindLoad, "store": bindStore, "buffer_slice_update": bindSliceUpdate,
		"buffer_ring_update": bindRingUpdate,
		"linear":             bindLinear, "linears": bindLinears, "embedding": bindEmbedding,
		"rms_norm": bindNorm, "rope": bindRope, "softmax": bindSoftmax, "glu": bindGLU, "softcap": bindSoftcap,
		"silu": bindUnary, "sigmoid": bindUnary, "tanh": bindUnary,
		"add": bindBinary, "multiply": bindBinary,
		"cached_attention": bindAttention, "buffer_conv": bindConv, "buffer_delta_rule": bindDeltaRule,
		"delta_decay": bindDecay,
		"rope_rows":   bindRopeRows, "block_write": bindBlockWrite, "block_attention": bindBlockAttention,
		"slot_conv":       bindSlotConv,
		"slot_delta_rule": bindSlotDelta, "unit_copy": bindUnitCopy, "take": bindTakeRows,
		"top_k": bindTopK, "switch_mlp": bindSwitchMLP, "switch_geglu": bindSwitchMLP, "sample": bindSample,
		"concatenate":   bindConcatenate,
		"adjust_logits": bindAdjust, "draw": bindDraw, "logprobs": bindLogprobs,
		"fill_drafts": bindFillDrafts,
	}
}

// step adds a step of the operation that is being bound.
func (b *binder) step(kind string, run func() error) *step {
	b.plan.steps = append(b.plan.steps, step{op: b.Op, kind: kind, run: run})
	return &b.plan.steps[len(b.plan.steps)-1]
}

// do adds a step that cannot fail.
func (b *binder) do(kind string, run func()) *step {
	return b.step(kind, func() error { run(); return nil })
}

// result allocates result number i of the operation in the arena. Nil strides mean row-major order. It returns nil
// where the shape is not known.
func (b *binder) result(i int, strides []int) *value {
	r := b.Op.Results[i]
	shape, ok := b.Dims(r.Type)
	if !ok || !r.Type.DType.IsFloat() {
		return nil
	}
	if strides == nil {
		strides = strided.RowMajor(shape)
	}
	v := &value{dtype: r.Type.DType, slot: b.scratch(strided.Elements(shape)), shape: shape, stride: strides}
	b.Values[r] = v
	return v
}

// scratch allocates memory in the arena, in use from the next step on.
func (b *binder) scratch(size int) *slot {
	s := &slot{}
	b.Planner.Scratch(&s.Slot, size)
	b.plan.slots = append(b.plan.slots[:len(b.Slots)-1], s) // drops slots of kernels that failed to bind
	return s
}

// denseFloats returns v in row-major order, copied if it lies otherwise.
func (b *binder) denseFloats(v *value) *value {
	if v.isDense() {
		return v
	}
	n := &value{dtype: v.dtype, slot: b.scratch(v.len()), shape: v.shape, stride: strided.RowMajor(v.shape)}
	b.do("copy", func() { copyStrided(n.floats(), n.stride, v.floats(), v.stride, v.shape) })
	n.slot.Last = b.Steps()
	return n
}

// attach sets the memory of the slots to parts of an arena.
func (p *boundPlan) attach(arena []float32) {
	if p.arena != nil && &p.arena[0] == &arena[0] && len(p.arena) == len(arena) {
		return
	}
	p.arena = arena
	for _, s := range p.slots {
		s.f = arena[s.Offset : s.Offset+s.Size : s.Offset+s.Size]
	}
}

// run executes the plan.
func (p *boundPlan) run(x *instance) error {
	if x.exe.observe != nil {
		return p.observe(x)
	}
	for i := range p.steps {
		if err := p.steps[i].run(); err != nil {
			return p.failed(&p.steps[i], err)
		}
		if x.ended() {
			return errEnded
		}
	}
	return nil
}

// failed adds the name of the operation to an error.
func (p *boundPlan) failed(s *step, err error) error {
	return fmt.Errorf("%w\n\tin %s", err, ir.Describe(p.module, s.op))
}

// tensor returns v as the reference kernels take it. A dense value shares its memory with the tensor. Values that are
// not dense are copied, and so are all values that stand for a state.
func (v *value) tensor() *eval.Tensor {
	n := v.len()
	t := &eval.Tensor{DType: v.dtype, Shape: v.shape}
	switch {
	case v.slot.state != nil && v.slot.state.words != nil: // all of it, as a load gives it
		t.I = make([]int64, n)
		v.slot.state.getWords(t.I, 0)
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
