package gpu

import (
	"errors"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

// This file pipelines calls. While the device computes tokens, the host submits the kernels of the next call, which
// read these tokens on the device. If the caller then asks for another call, the early one must leave no trace:
//
//   - The uniforms, the result and the recurrent states are double-buffered. A call reads one buffer of each pair and
//     writes states and the next call's tokens to the other. Then the buffers swap, unless the early call is dropped.
//   - A KV cache has a row for each position. The row that a dropped call wrote is overwritten by the call that takes
//     its place, before anything reads it.
//   - The slots of a call of many sequences are not double-buffered here. Its tables name the slots that it reads and
//     those that it writes, and the caller takes others for the latter: see engine.PipelinedEntries.

// pipelining is what a plan needs so that it can be submitted before the call before it has ended.
type pipelining struct {
	token  *slot   // the uniform that holds the tokens
	states []*slot // the states that are double-buffered
	// ready says that the second buffers are allocated.
	ready bool
	// allocated are the buffers that the plan got for this. noMemory says that the device had no memory for them.
	allocated []device.Buffer
	noMemory  bool
}

// doubleBuffered reports whether a call of the plan reads one buffer of each pair and writes the other.
func (p *boundPlan) doubleBuffered() bool { return p.pipelining != nil && p.pipelining.ready }

// turnOf returns which of its uniform buffers the next call of a plan reads.
func (x *instance) turnOf(p *boundPlan) int {
	if p.doubleBuffered() {
		return x.parity
	}
	return 0
}

// planPipelining returns what the plan needs to be pipelined, or nil where it cannot be. It can be if it gives one
// token for each that it takes, a kernel writes these to where the next call reads them, and no step runs on the host.
func (b *binder) planPipelining() *pipelining {
	p := b.plan
	if len(p.inputs) == 0 || len(p.outputs) != 1 {
		return nil
	}
	fed, out := p.inputs[0], p.outputs[0]
	a := &pipelining{}
	if a.token, _ = p.uniforms.indexOf(fed); a.token == nil || b.uploaded[fed] != nil {
		return nil
	}
	if out.place != onDevice || out.format != i32 || out.offset != 0 || !out.isDense() ||
		4*out.len() != a.token.Size || a.token.Offset >= p.uniforms.few {
		return nil
	}
	if slices.ContainsFunc(p.hostValues, func(c *hostValue) bool { return slices.Contains(c.uses, fed) }) {
		return nil // a host value depends on the token
	}
	written := false
	for _, s := range p.steps {
		if s.host != nil {
			return nil
		}
		for _, o := range s.operands {
			switch {
			case o.then == nil:
			case o.then == a.token:
				written = slices.ContainsFunc(s.operands, func(x operand) bool { return x.write && x.slot == out.slot })
			case !slices.Contains(a.states, o.then):
				a.states = append(a.states, o.then)
			}
		}
	}
	if !written || !b.repeatable(a) {
		return nil
	}
	return a
}

// repeatable reports whether the effects of a dropped call vanish when another call takes its place. That holds for
// states, which are double-buffered, and for cache rows that are written at a position from the call's inputs and read
// by attention alone: attention does not look beyond its own position. For units of many sequences the caller sees to
// it.
func (b *binder) repeatable(a *pipelining) bool {
	caches := map[*ir.Buffer]bool{}
	ops := b.plan.module.Entry.Body.Ops
	for _, op := range ops {
		if op.Buffer == nil || op.Def.Effect != ir.Writes {
			continue
		}
		s := b.x.states[op.Buffer]
		if s == nil || s.slot == nil {
			return false
		}
		switch op.Def.Name {
		case "buffer_slice_update", "buffer_ring_update", "rope_write", "attention_step":
			start, ok := op.Arg("start")
			if !ok || start.Kind != ir.ValueArg || start.Value.Type.Int == nil {
				return false
			}
			if _, fixed := start.Value.Type.Int.Const(); fixed {
				return false
			}
			for _, cache := range op.Buffers() {
				caches[cache] = true
			}
		default:
			if !slices.Contains(a.states, s.slot) && !writesBlocks(op) && !writesSlots(op) {
				return false
			}
		}
	}
	content, ok := map[*ir.Value]bool{}, true // of caches
	for _, op := range ops {
		op.EachArg(func(x *ir.Arg) {
			if x.Kind == ir.ValueArg && content[x.Value] {
				ok = ok && (op.Def.Name == "cached_attention" || op.Def.Name == "attention" || op.Def.Name == "astype")
				content[op.Result()] = op.Def.Name == "astype"
			}
		})
		if op.Def.Name == "load" && caches[op.Buffer] {
			content[op.Result()] = true
		}
	}
	return ok
}

// pending is a call that was submitted before the caller asked for it.
type pending struct {
	*call
	tokens []int64 // the first elements of the first input: the tokens that the call before gave
	next   *engine.Next
}

// call is a call whose kernels were submitted.
type call struct {
	plan *boundPlan
	// result is the token of a double-buffered plan. It is nil for other plans, whose outputs are read where they lie.
	result device.Fetch
}

// isPending reports whether the pending call is one of this entry with these inputs.
func (x *instance) isPending(entry int, inputs []eval.Value) bool {
	if x.pending == nil || x.pending.call.plan.entry != entry || len(inputs) != len(x.pending.next.Inputs) {
		return false
	}
	t, fed := inputs[0].Tensor, x.pending.next.Fed
	if t == nil || len(t.I) != len(x.pending.tokens) || !slices.Equal(t.I[:fed], x.pending.tokens[:fed]) {
		return false
	}
	for i := 1; i < len(inputs); i++ {
		if !sameInput(inputs[i], x.pending.next.Inputs[i]) {
			return false
		}
	}
	return true
}

// sameInput compares two inputs bit by bit.
func sameInput(a, b eval.Value) bool {
	if a.Int != b.Int || (a.Tensor == nil) != (b.Tensor == nil) {
		return false
	}
	if a.Tensor == nil {
		return true
	}
	s, t := a.Tensor, b.Tensor
	return s.DType == t.DType && slices.Equal(s.Shape, t.Shape) && slices.Equal(s.I, t.I) &&
		slices.EqualFunc(s.F, t.F, func(u, v float32) bool { return math.Float32bits(u) == math.Float32bits(v) })
}

// dropPending drops the pending call, if there is one. The next call reads the same buffers as the dropped one did.
func (x *instance) dropPending() error {
	if x.pending == nil {
		return nil
	}
	x.pending = nil
	x.parity = 1 - x.parity
	return x.exe.device.Wait() // its memory may be freed next
}

// submitted returns the call of a plan whose kernels were just submitted, and swaps the double buffers.
func (x *instance) submitted(p *boundPlan) (*call, error) {
	c := &call{plan: p}
	if !p.doubleBuffered() {
		return c, nil
	}
	var err error
	buffer, offset := x.locate(p.outputs[0].slot)
	c.result, err = buffer.Fetch(offset, 4*p.outputs[0].len())
	x.parity = 1 - x.parity
	p.uniforms.overwritten(p.pipelining.token, x.parity)
	return c, err
}

// tokens waits for the tokens of a call of a double-buffered plan.
func (c *call) tokens() (*eval.Tensor, error) {
	raw, err := c.result.Bytes()
	if err != nil {
		return nil, err
	}
	return c.plan.outputs[0].decode(raw)
}

// submitNext submits the call that is likely to follow one that was just submitted. Inputs that do not fit the same
// plan are not an error: the call may never be asked for.
func (x *instance) submitNext(after *call, next *engine.Next) error {
	p, inputs := after.plan, next.Inputs
	if !p.doubleBuffered() || x.exe.observe != nil || len(inputs) != len(p.inputs) ||
		next.Fed < 1 || next.Fed > p.outputs[0].len() ||
		eval.CheckInputs(x.exe.entries[p.entry].Entry, inputs) != nil {
		return nil
	}
	for i, v := range inputs {
		if v.Tensor != nil && !slices.Equal(p.shapes[i], v.Tensor.Shape) {
			return nil
		}
		p.inputs[i].content = v
	}
	if p.compute() != nil {
		return nil
	}
	// The kernel of the call before writes the tokens.
	token := p.pipelining.token
	buffer, _ := x.locate(token)
	if err := p.uniforms.bringBeside(token, x.parity, buffer.Place); err != nil {
		return err
	}
	if err := x.play(p); err != nil {
		return err
	}
	c, err := x.submitted(p)
	if err == nil {
		x.pending = &pending{call: c, next: next}
	}
	return err
}

// allocateSecond allocates the second buffers of a plan that can be pipelined, and of the states that it writes.
// Without memory for them the plan stays single-buffered. It is long because all buffers have to be there before any is
// used.
func (x *instance) allocateSecond(p *boundPlan) error {
	a := p.pipelining
	if a == nil || a.ready || a.noMemory {
		return nil
	}
	for _, s := range x.states {
		if s.slot != nil && s.slot.second != nil && !slices.Contains(a.states, s.slot) {
			return nil
		}
	}
	var made []device.Buffer
	var failed error // the first time
	alloc := func(size int, host bool) (m device.Buffer) {
		if failed != nil {
			return nil
		}
		if m, failed = x.allocIn(size, host); failed == nil {
			made = append(made, m)
		}
		return m
	}
	others := make([]device.Buffer, len(a.states))
	for i, s := range a.states {
		if s.second == nil {
			others[i] = alloc(s.Size, false)
		}
	}
	states := len(made)
	uniforms := alloc(p.uniforms.size, false)
	out := p.outputs[0].slot
	first, host := out.buffer, out.buffer != nil
	if !host {
		first = alloc(out.Size, false)
	}
	second := alloc(out.Offset+out.Size, host)
	if failed != nil {
		a.noMemory = true
		var errs []error
		for _, m := range made {
			errs = append(errs, x.free(m))
		}
		return errors.Join(errs...)
	}
	for i, s := range a.states {
		if others[i] == nil {
			continue
		}
		x.twofold = true
		if s.second = others[i]; x.parity == 1 {
			s.buffer, s.second = s.second, s.buffer
		}
	}
	for _, s := range p.uniforms.slots {
		s.second = uniforms
	}
	if !host {
		out.Offset = 0
	}
	out.buffer, out.second = first, second
	a.allocated, a.ready = made[states:], true
	// The recorded sequences name single buffers. And the zeros of the new uniform buffer must be written before the
	// host places uniforms in it.
	return errors.Join(x.exe.device.Wait(), p.forget())
}
