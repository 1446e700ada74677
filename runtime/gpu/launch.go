package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/tune"
)

// step is one step of a plan: a kernel, or work of the host between kernels. An operation has one step or several.
type step struct {
	op   *ir.Op
	kind string
	host func() error

	launch   kernels.Launch
	kernel   device.Kernel // set where the device has the product in a library of its own
	operands []operand

	// bytes is the number of bytes of weights and state that the step reads.
	bytes int
	// caches is the number of bytes of KV caches that the step reads when the tuner measures it. In a call it depends
	// on the position.
	caches int
	// variants returns other launches with the same operands, among which the tuner chooses. It is nil where there are
	// none.
	variants func() tune.Variants
}

// operand is an argument of a kernel: the bytes [at, at+size) of a slot. launch sets write where the kernel's source
// declares that it writes the buffer. The zero operand is an absent one.
type operand struct {
	slot     *slot
	at, size int
	write    bool
	// then is set where a double-buffered plan writes to the buffer that the next call reads of that slot: see
	// pipelining.go.
	then *slot
	// synthetic is the content for measurements, set where random numbers will not do: the kernel uses the bytes as
	// indices, or its time depends on them.
	synthetic *synthetic
}

// whole returns an operand of all bytes of a slot.
func whole(s *slot) operand { return operand{slot: s, size: s.Size} }

// after returns the operand to which a kernel writes the new content of a state.
func after(s *slot) operand { return operand{slot: s, size: s.Size, then: s} }

// bytesOf returns an operand of the bytes of a value.
func bytesOf(v *value) operand {
	return operand{slot: v.slot, at: v.at(), size: extent(v.shape, v.stride) * v.format.size()}
}

// launch adds a step that runs kernel l with the arguments a. It returns false where err says that there is no such
// kernel, or a self-test has refused it.
func (b *binder) launch(kind string, l kernels.Launch, err error, a kernels.Arguments[operand]) bool {
	if err != nil {
		return false
	}
	operands, written := kernels.List(l, a)
	for i := range operands {
		operands[i].write = written[i]
	}
	return b.add(step{op: b.Op, kind: kind, launch: l, operands: operands})
}

// add adds a step that runs on the device.
func (b *binder) add(s step) bool {
	operands := s.operands
	for _, o := range operands {
		o.slot.First = min(o.slot.First, len(b.plan.steps))
		o.slot.Last = max(o.slot.Last, len(b.plan.steps))
	}
	b.plan.steps = append(b.plan.steps, s)
	return true
}

// reading adds to the bytes of weights and state that the last step reads.
func (b *binder) reading(bytes int) { b.plan.steps[len(b.plan.steps)-1].bytes += bytes }
