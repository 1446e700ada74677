package gpu

import (
	"errors"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

// This file holds calls that begin before the call before them was read: while one token is computed, the kernels of
// the next are submitted, which find it on the device. Should another call be asked for, the one that began must not
// count:
//
//   - What kernels read of the host, their results, and states of recurrent layers are there twice, on two sides. A call reads
//     the side of its turn and writes states and the next call's token to the other. The next turn is that side's, unless the call is undone.
//   - Caches have a row for each position. The row of a call that does not count is written again by the one that does, before
//     anything reads it.

// ahead is what a plan needs to be begun on the result of the call before.
type ahead struct {
	token  *slot   // among the uniforms: the token that is fed
	states []*slot // those that it writes to the other side of
	// ready says that there are two sides: the plan takes turns.
	ready bool
	// made are the buffers of the plan that readiness has brought; none says that there was no memory for them.
	made []device.Buffer
	none bool
}

// takesTurns reports whether a call of the plan reads one side and writes the other.
func (p *boundPlan) takesTurns() bool { return p.ahead != nil && p.ahead.ready }

// foresee finds out whether the plan can be begun on its own result: a call for one token that gives one, which a
// kernel writes to where the next call's is read, and which changes nothing on the host.
func (b *binder) foresee() *ahead {
	p := b.plan
	if !p.single() || len(p.inputs) == 0 || len(p.outputs) != 1 {
		return nil
	}
	fed, out := p.inputs[0], p.outputs[0]
	a := &ahead{}
	if a.token, _ = p.uniforms.indexOf(fed); a.token == nil || b.uploaded[fed] != nil {
		return nil
	}
	if out.place != onDevice || out.format != i32 || out.len() != 1 || out.offset != 0 {
		return nil
	}
	if slices.ContainsFunc(p.hostValues, func(c *hostValue) bool { return slices.Contains(c.uses, fed) }) {
		return nil // the host computes something of the token
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
	if !written || !b.undoable(a) {
		return nil
	}
	return a
}

// undoable reports whether what a call does to buffers can be undone: whole states are written to the other side, and
// rows of caches, at a position that a call is told, are read by attention alone, which looks at no position behind its
// own.
func (b *binder) undoable(a *ahead) bool {
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
			if !slices.Contains(a.states, s.slot) {
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

// begun is a call that was begun before it was asked for.
type begun struct {
	*call
	token  int          // that the call before gave: the first input
	inputs []eval.Value // the others count from 1 on
}

// call is a call whose kernels were submitted.
type call struct {
	plan *boundPlan
	// result is the token, of a plan that takes turns. Others are read out where they lie.
	result device.Fetch
}

// asked reports whether the call that was begun is the one with these inputs.
func (x *instance) asked(entry int, inputs []eval.Value) bool {
	if x.begun == nil || x.begun.call.plan.entry != entry || len(inputs) != len(x.begun.inputs) {
		return false
	}
	t := inputs[0].Tensor
	if t == nil || len(t.I) != 1 || t.I[0] != int64(x.begun.token) {
		return false
	}
	for i := 1; i < len(inputs); i++ {
		if !sameInput(inputs[i], x.begun.inputs[i]) {
			return false
		}
	}
	return true
}

// sameInput compares inputs bit by bit.
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

// undo makes the call that was begun, if there is one, not have been: the turn is that of the side that it read.
func (x *instance) undo() error {
	if x.begun == nil {
		return nil
	}
	x.begun = nil
	x.turn = 1 - x.turn
	return x.exe.device.Wait() // what it uses may be freed
}

// submitted is a call of a plan whose kernels were just submitted.
func (x *instance) submitted(p *boundPlan) (*call, error) {
	c := &call{plan: p}
	if !p.takesTurns() {
		return c, nil
	}
	var err error
	buffer, offset := x.locate(p.outputs[0].slot)
	c.result, err = buffer.Fetch(offset, 4)
	x.turn = 1 - x.turn
	return c, err
}

// token waits for the result of a call of a plan that takes turns.
func (c *call) token() (*eval.Tensor, error) {
	raw, err := c.result.Bytes()
	if err != nil {
		return nil, err
	}
	return c.plan.outputs[0].decode(raw)
}

// begin submits the call that is likely to follow one that was just submitted. Where its inputs are none for the same
// plan, or not allowed, that is nothing to report: the call may never be asked for.
func (x *instance) begin(after *call, inputs []eval.Value) error {
	p := after.plan
	if !p.takesTurns() || x.exe.observe != nil || len(inputs) != len(p.inputs) ||
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
	// The kernel of the call before writes the token, which has the bytes up to the next word to itself: devices that
	// share memory with the host may move whole lines of it.
	token, content := p.ahead.token, p.uniforms.content[:p.uniforms.size]
	buffer, _ := x.locate(token)
	end := min(token.Offset+alignment, len(content))
	if err := errors.Join(buffer.Place(0, content[:token.Offset]), buffer.Place(end, content[end:])); err != nil {
		return err
	}
	if err := x.play(p); err != nil {
		return err
	}
	c, err := x.submitted(p)
	if err == nil {
		x.begun = &begun{call: c, inputs: inputs}
	}
	return err
}

// pair gives a plan that can run ahead, and the states that it writes, their other side. Where there is no memory for
// that the plan stays as it is.
func (x *instance) pair(p *boundPlan) error {
	a := p.ahead
	if a == nil || a.ready || a.none || p.uniforms.size > device.MaxPlaced {
		return nil
	}
	for _, s := range x.states {
		if s.slot != nil && s.slot.other != nil && !slices.Contains(a.states, s.slot) {
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
		if s.other == nil {
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
		a.none = true
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
		if s.other = others[i]; x.turn == 1 {
			s.buffer, s.other = s.other, s.buffer
		}
	}
	for _, s := range p.uniforms.slots {
		s.other = uniforms
	}
	if !host {
		out.Offset = 0
	}
	out.buffer, out.other = first, second
	a.made, a.ready = made[states:], true
	// What was recorded knows one side only, and uniforms that are placed must not come before the zeros of their
	// buffer.
	return errors.Join(x.exe.device.Wait(), p.forget())
}
