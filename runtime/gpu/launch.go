package gpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/tune"
)

// step is an operation of a plan, or a part of one: a kernel, or work of the host between kernels.
type step struct {
	op   *ir.Op
	kind string
	host func() error

	launch   kernels.Launch
	kernel   device.Kernel // of a library of the device, instead of one that is compiled
	operands []operand

	// bytes are what the step reads of weights and state.
	bytes int
	// caches are the bytes that it reads besides, where it is measured, of caches: a call reads those before its
	// position.
	caches int
	// variants are other launches with the same operands, of which the tuner chooses; nil where there are none.
	variants func() tune.Variants
}

// operand is a buffer of a kernel: bytes [at, at+size) of a slot. write says that the kernel may write it, which its
// text declares: launch sets it. The zero operand is none.
type operand struct {
	slot     *slot
	at, size int
	write    bool
	// then is set where a plan that runs ahead writes to the other side of that slot instead: see ahead.go.
	then *slot
	// example is set where a kernel trusts the bytes, or its time depends on them.
	example *example
}

// whole is a slot as a buffer of a kernel.
func whole(s *slot) operand { return operand{slot: s, size: s.Size} }

// after is where a kernel that reads a state in another operand writes what the state becomes.
func after(s *slot) operand { return operand{slot: s, size: s.Size, then: s} }

// bytesOf is a value as a buffer of a kernel.
func bytesOf(v *value) operand {
	return operand{slot: v.slot, at: v.at(), size: extent(v.shape, v.stride) * v.format.size()}
}

// launch adds a kernel with its buffers. The kernel's text says which of them it writes.
// It fails where err says that there is no kernel.
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

// add adds a step for the device.
func (b *binder) add(s step) bool {
	operands := s.operands
	for _, o := range operands {
		o.slot.First = min(o.slot.First, len(b.plan.steps))
		o.slot.Last = max(o.slot.Last, len(b.plan.steps))
	}
	b.plan.steps = append(b.plan.steps, s)
	return true
}

// reading notes how many bytes of weights and state the last step reads.
func (b *binder) reading(bytes int) { b.plan.steps[len(b.plan.steps)-1].bytes += bytes }
