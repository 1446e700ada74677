package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
)

// instance is the state of a module, with its plans.
type instance struct {
	exe    *executable
	states map[*ir.Buffer]*state
	keys   *numeric.KeySequence     // of the sampler's draws without a seed
	bits   func(n int) []uint32     // of reference kernels' draws without a seed
	plans  []plan.Plans[*boundPlan] // of each entry
	arena  *slot
	turn   int             // the side, 0 or 1, that the next call reads of what has two: see ahead.go
	begun  *begun          // the call that was begun before it is asked for, or nil
	ctx    context.Context // of the call that runs
	// buffers are what Close frees.
	buffers []device.Buffer
}

// NewInstance makes an instance whose buffers are zeros.
func (x *executable) NewInstance() (engine.Instance, error) {
	n := &instance{exe: x, states: map[*ir.Buffer]*state{}, keys: numeric.NewUnseededKeySequence(),
		bits: eval.UnseededBits()}
	for _, entry := range x.entries {
		n.plans = append(n.plans, plan.NewPlans[*boundPlan](entry))
	}
	if err := n.newStates(); err != nil { // new memory holds zeros
		n.Close()
		return nil, err
	}
	return n, nil
}

// alloc allocates memory of the instance.
func (x *instance) alloc(size int) (device.Buffer, error) { return x.allocIn(size, false) }

// allocIn allocates memory of the instance, the device's or the host's.
func (x *instance) allocIn(size int, host bool) (m device.Buffer, err error) {
	if host {
		m, err = x.exe.device.(device.HostWriter).NewHostBuffer(size)
	} else {
		m, err = x.exe.device.NewBuffer(max(size, alignment))
	}
	if err == nil {
		x.buffers = append(x.buffers, m)
	}
	return m, err
}

// locate gives the buffer that a slot lies in, and where, in bytes.
func (x *instance) locate(s *slot) (device.Buffer, int) {
	return x.side(s, x.turn)
}

// side is locate for a turn.
func (x *instance) side(s *slot, turn int) (device.Buffer, int) {
	switch {
	case s.buffer == nil:
		return x.arena.buffer, s.Offset
	case s.other != nil && turn == 1:
		return s.other, s.Offset
	}
	return s.buffer, s.Offset
}

// place is what a step gives its kernel; crossing is set where the plan takes turns.
func (x *instance) place(o operand, crossing bool) (device.Buffer, int) {
	if o.then != nil && crossing {
		return x.side(o.then, 1-x.turn)
	}
	buffer, offset := x.locate(o.slot)
	return buffer, offset + o.at
}

// Run calls the main entry. After an error the buffers hold what the operations before it wrote. A context is
// looked at between sequences of kernels.
func (x *instance) Run(ctx context.Context, inputs []eval.Value) (out []eval.Value, err error) {
	return x.callEntry(ctx, 0, inputs, nil)
}

// Call is Run of the entry of that name: see engine.Entries.
func (x *instance) Call(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error) {
	at := slices.IndexFunc(x.exe.entries, func(m *ir.Module) bool { return m.Entry.Name == entry })
	if at < 0 {
		return nil, fmt.Errorf("the module has no entry %q", entry)
	}
	return x.callEntry(ctx, at, inputs, nil)
}

// RunAhead is Run that begins the call that is likely to follow, if the program allows it: see engine.Ahead.
func (x *instance) RunAhead(ctx context.Context, inputs, next []eval.Value) (out []eval.Value, err error) {
	return x.callEntry(ctx, 0, inputs, next)
}

// callEntry calls an entry by its number. next is set where a call is likely to follow: see RunAhead.
func (x *instance) callEntry(ctx context.Context, entry int, inputs, next []eval.Value) (out []eval.Value, err error) {
	f := x.exe.entries[entry].Entry
	defer func() {
		// Kernels trust what was checked when the plan was made. Should a program get around that, it must
		// not take the process with it.
		if r := recover(); r != nil {
			out, err = nil, fault.Of(f.Name+": this program cannot run here", r)
		}
	}()
	if err := eval.CheckInputs(f, inputs); err != nil {
		return nil, err
	}
	x.exe.timeline.Lock()
	defer x.exe.timeline.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.ctx = ctx
	defer func() { x.ctx = nil }()
	c, err := x.call(entry, inputs, next != nil)
	if err == nil && next != nil {
		err = x.begin(c, next)
	}
	if err == nil {
		out, err = x.results(c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, errors.Join(err, x.undo()))
	}
	return out, nil
}

// call submits the call with these inputs, if it was not begun yet.
func (x *instance) call(entry int, inputs []eval.Value, ahead bool) (*call, error) {
	if x.asked(entry, inputs) {
		c := x.begun.call
		x.begun = nil
		return c, nil
	}
	if err := x.undo(); err != nil {
		return nil, err
	}
	p, err := x.runPlan(entry, inputs, ahead)
	if err != nil {
		return nil, err
	}
	return x.submitted(p)
}

// results are the outputs of a call.
func (x *instance) results(c *call) (out []eval.Value, err error) {
	p := c.plan
	f := p.module.Entry
	out = make([]eval.Value, len(p.outputs))
	for i, v := range p.outputs {
		if c.result != nil {
			out[i].Tensor, err = c.token()
		} else {
			out[i], err = x.content(f.Body.Results[i], v)
		}
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		if x.begun != nil {
			x.begun.token = int(out[i].Tensor.I[0])
		}
		if out[i].Tensor != nil {
			out[i].Tensor = eval.ConvertOutput(out[i].Tensor, f.Outputs[i].DType, x.exe.precision)
			if v.place == onHost {
				out[i].Tensor = out[i].Tensor.Clone() // it may be an input, or a constant
			}
		}
	}
	return out, nil
}

// runPlan runs the plan for the inputs, made anew as long as it has kernels that must not be used. ahead gives it two
// sides, if it can have them.
func (x *instance) runPlan(entry int, inputs []eval.Value, ahead bool) (*boundPlan, error) {
	for {
		p, err := x.planFor(entry, inputs)
		if err != nil {
			return nil, err
		}
		for i, v := range inputs {
			p.inputs[i].content = v
		}
		if ahead {
			if err := x.pair(p); err != nil {
				return nil, err
			}
		}
		if err := x.run(p); !errors.Is(err, errAnew) {
			return p, err
		}
		x.plans[entry].DropLast()
		if err := p.close(x); err != nil {
			return nil, err
		}
	}
}

// planFor finds or makes the plan for inputs of these shapes, and its memory.
func (x *instance) planFor(entry int, inputs []eval.Value) (*boundPlan, error) {
	if p, ok := x.plans[entry].Find(inputs); ok {
		return p, nil
	}
	p, err := x.bindEntry(entry, plan.ShapesOf(inputs))
	if err != nil {
		return nil, err
	}
	if err := x.reserve(p.size); err != nil {
		return nil, err
	}
	for _, old := range x.plans[entry].Add(p.shapes, p) {
		if err := old.close(x); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// allPlans are the plans of all entries.
func (x *instance) allPlans() (out []*boundPlan) {
	for i := range x.plans {
		out = append(out, x.plans[i].All()...)
	}
	return out
}

// free gives memory of the instance back.
func (x *instance) free(m device.Buffer) error {
	x.buffers = slices.DeleteFunc(x.buffers, func(b device.Buffer) bool { return b == m })
	return m.Close()
}

// Close frees the instance.
func (x *instance) Close() error {
	x.exe.timeline.Lock()
	defer x.exe.timeline.Unlock()
	err := x.exe.device.Wait()
	for _, p := range x.allPlans() {
		err = errors.Join(err, p.forget())
	}
	for _, m := range x.buffers {
		err = errors.Join(err, m.Close())
	}
	x.plans, x.buffers, x.states, x.arena = nil, nil, nil, nil
	return err
}
