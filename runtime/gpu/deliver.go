package gpu

import (
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
)

// maxDelivered is the size of results, in bytes, that kernels write to the host's memory: of a token.
const maxDelivered = 64

// deliver places results of a few bytes in the host's memory, where the device can write to it: to copy them there
// afterwards takes longer than the kernel that makes them.
func (b *binder) deliver() {
	d, ok := b.x.exe.device.(device.HostWriter)
	if !ok {
		return
	}
	var small []*slot
	for _, v := range b.plan.outputs {
		if v.place == onDevice && v.slot.Size <= maxDelivered && slices.Contains(b.Slots, &v.slot.Slot) &&
			!slices.Contains(small, v.slot) && b.plan.kernelsWrite(v.slot) {
			small = append(small, v.slot)
		}
	}
	small = small[:min(len(small), device.MaxHostBuffer/alignment)]
	if len(small) == 0 {
		return
	}
	m, err := d.NewHostBuffer(len(small) * alignment)
	if err != nil {
		return // the arena does, too
	}
	b.x.buffers, b.plan.results = append(b.x.buffers, m), m
	for i, s := range small {
		s.buffer, s.Offset = m, i*alignment
		b.Slots = slices.DeleteFunc(b.Slots, func(place *plan.Slot) bool { return place == &s.Slot })
	}
}

// kernelsWrite reports whether kernels write a slot, and neither the host does nor do others read it.
func (p *boundPlan) kernelsWrite(of *slot) bool {
	if of.First == plan.Never || p.steps[of.First].host != nil {
		return false
	}
	return !slices.ContainsFunc(p.steps, func(s step) bool {
		return slices.ContainsFunc(s.operands, func(o operand) bool { return o.slot == of && !o.write })
	})
}
