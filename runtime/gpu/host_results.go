package gpu

import (
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
)

// maxHostResult is the size in bytes of the largest result that kernels write directly to the host's memory: a token is
// one.
const maxHostResult = 64

// placeResults places small results in host memory that the device can write to. A copy of a few bytes after the kernel
// takes longer than the kernel.
func (b *binder) placeResults() {
	d, ok := b.x.exe.device.(device.HostWriter)
	if !ok {
		return
	}
	var small []*slot
	for _, v := range b.plan.outputs {
		if v.place == onDevice && v.slot.Size <= maxHostResult && slices.Contains(b.Slots, &v.slot.Slot) &&
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
		return // results then stay in the arena
	}
	b.x.buffers, b.plan.results = append(b.x.buffers, m), m
	for i, s := range small {
		s.buffer, s.Offset = m, i*alignment
		b.Slots = slices.DeleteFunc(b.Slots, func(place *plan.Slot) bool { return place == &s.Slot })
	}
}

// kernelsWrite reports whether a kernel, not the host, writes this slot, and nothing in the plan reads it.
func (p *boundPlan) kernelsWrite(of *slot) bool {
	if of.First == plan.Never || p.steps[of.First].host != nil {
		return false
	}
	return !slices.ContainsFunc(p.steps, func(s step) bool {
		return slices.ContainsFunc(s.operands, func(o operand) bool { return o.slot == of && !o.write })
	})
}
