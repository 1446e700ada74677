package gpu

import (
	"errors"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
)

// run submits the plan. Its host values must hold the inputs.
func (x *instance) run(p *boundPlan) error {
	if err := x.prepare(p); err != nil {
		return err
	}
	return x.play(p)
}

// play submits the segments of the plan in order, kernels and steps of the host.
func (x *instance) play(p *boundPlan) error {
	turn := 0
	if p.doubleBuffered() || x.twofold {
		turn = x.parity
	}
	if p.programs[turn] == nil {
		if p.programs[1-turn] == nil { // otherwise the kernels are compiled and tuned already
			if err := x.tune(p); err != nil {
				return err
			}
			if err := x.selfTest(p); err != nil {
				return err
			}
		}
		program, err := x.record(p)
		if err != nil {
			for i := range program {
				program[i].close()
			}
			return err
		}
		p.programs[turn] = program
	}
	o := x.observe(p)
	for i := range p.programs[turn] {
		s := &p.programs[turn][i]
		if i > 0 && x.ctx.Err() != nil {
			// Kernels that were submitted may still run. The memory that they use must not change.
			return errors.Join(&engine.AbandonedError{Cause: x.ctx.Err()}, x.exe.device.Wait())
		}
		if err := x.runSegment(p, s, o); err != nil {
			return err
		}
	}
	if o != nil {
		o.end()
	}
	return nil
}

// runSegment submits a sequence of kernels, or runs a step of the host. o is nil without an observer.
func (x *instance) runSegment(p *boundPlan, s *segment, o *observer) (err error) {
	switch {
	case s.host == nil && o == nil:
		return s.sequence.Submit()
	case s.host == nil:
		return o.run(s, x.exe.device)
	case o == nil:
		err = s.host.host()
	default:
		err = o.host(s.host)
	}
	if err != nil {
		return p.failed(s.host.op, err)
	}
	return nil
}

// prepare computes the host values and writes the uniforms to the device.
func (x *instance) prepare(p *boundPlan) error {
	if err := p.compute(); err != nil || p.uniforms.size == 0 {
		return err
	}
	buffer, _ := x.locate(p.uniforms.slots[0]) // of all
	turn := x.turnOf(p)
	if p.uniforms.size > device.MaxPlaced {
		return p.uniforms.bring(turn, buffer.Write)
	}
	p.uniforms.sent[turn] = nil
	return buffer.Write(0, p.uniforms.content[:p.uniforms.size])
}

// compute computes the host values and, from them, the uniforms.
func (p *boundPlan) compute() error {
	for _, c := range p.hostValues {
		if c.run == nil {
			continue
		}
		if err := c.run(); err != nil {
			return err
		}
	}
	for _, check := range p.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return p.uniforms.fill()
}

// failed adds the name of the operation to an error.
func (p *boundPlan) failed(op *ir.Op, err error) error {
	return fmt.Errorf("%w\n\tin %s", err, ir.Describe(p.module, op))
}

// reserve makes the arena at least size bytes large. A new arena has another address, so all recordings are dropped.
func (x *instance) reserve(size int) error {
	if x.arena != nil && x.arena.Size >= size {
		return nil
	}
	if x.arena != nil {
		// A call whose results do not depend on its kernels has not waited for them.
		if err := x.exe.device.Wait(); err != nil {
			return err
		}
		for _, p := range x.allPlans() {
			if err := p.forget(); err != nil {
				return err
			}
		}
		if err := x.free(x.arena.buffer); err != nil {
			return err
		}
		x.arena = nil
	}
	m, err := x.alloc(size)
	if err != nil {
		return err
	}
	x.arena = &slot{Slot: plan.Slot{Size: m.Size()}, buffer: m}
	return nil
}

// forget drops the recorded program of the plan.
func (p *boundPlan) forget() error {
	for parity := range p.programs {
		for i := range p.programs[parity] {
			if err := p.programs[parity][i].close(); err != nil {
				return err
			}
		}
		p.programs[parity] = nil
	}
	return nil
}

// close frees what the plan has on the device. It waits until nothing runs there.
func (p *boundPlan) close(x *instance) error {
	if err := errors.Join(x.exe.device.Wait(), p.forget()); err != nil {
		return err
	}
	made := []device.Buffer{p.uniforms.buffer, p.results}
	if p.pipelining != nil {
		made = append(made, p.pipelining.allocated...)
	}
	for _, m := range made {
		if m == nil {
			continue
		}
		if err := x.free(m); err != nil {
			return err
		}
	}
	return nil
}
