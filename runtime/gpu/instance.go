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

// instance is the state of a module and the plans that were made for it.
type instance struct {
	exe     *executable
	states  map[*ir.Buffer]*state
	keys    *numeric.KeySequence     // random keys of the sampler, for draws without a seed
	bits    func(n int) []uint32     // random bits of reference kernels, for draws without a seed
	plans   []plan.Plans[*boundPlan] // of each entry
	arena   *slot
	parity  int             // which buffer, 0 or 1, of a double-buffered slot the next call reads: see pipelining.go
	twofold bool            // states are double-buffered
	pending *pending        // the call that was submitted early, or nil: see pipelining.go
	ctx     context.Context // the context of the running call
	tuning  bool            // Tune is running
	// buffers are freed by Close.
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

// locate returns the buffer that a slot lies in now, and its offset in bytes.
func (x *instance) locate(s *slot) (device.Buffer, int) {
	return x.locateIn(s, x.parity)
}

// locateIn returns the buffer of a slot for calls of this parity, and its offset in bytes.
func (x *instance) locateIn(s *slot, parity int) (device.Buffer, int) {
	switch {
	case s.buffer == nil:
		return x.arena.buffer, s.Offset
	case s.second != nil && parity == 1:
		return s.second, s.Offset
	}
	return s.buffer, s.Offset
}

// place returns the buffer and offset that a step passes to its kernel. With doubleBuffered a state that the step
// updates goes to the buffer that the next call reads.
func (x *instance) place(o operand, doubleBuffered bool) (device.Buffer, int) {
	if o.then != nil && doubleBuffered {
		return x.locateIn(o.then, 1-x.parity)
	}
	buffer, offset := x.locate(o.slot)
	return buffer, offset + o.at
}

// Run calls the main entry. After an error the buffers hold what was written until then. The context is checked between
// sequences of kernels.
func (x *instance) Run(ctx context.Context, inputs []eval.Value) (out []eval.Value, err error) {
	return x.callEntry(ctx, 0, inputs, nil)
}

// Call calls the entry of that name: see engine.Entries.
func (x *instance) Call(ctx context.Context, entry string, inputs []eval.Value) ([]eval.Value, error) {
	return x.CallPipelined(ctx, entry, inputs, nil)
}

// PipelinesEntries reports that calls of entries are pipelined where their plans allow it.
func (x *instance) PipelinesEntries() bool { return true }

// CallPipelined is Call that also submits the call that is likely to follow, if the program allows that: see
// engine.PipelinedEntries.
func (x *instance) CallPipelined(ctx context.Context, entry string, inputs []eval.Value,
	next *engine.Next) ([]eval.Value, error) {
	at := slices.IndexFunc(x.exe.entries, func(m *ir.Module) bool { return m.Entry.Name == entry })
	if at < 0 {
		return nil, fmt.Errorf("the module has no entry %q", entry)
	}
	return x.callEntry(ctx, at, inputs, next)
}

// RunPipelined is Run that also submits the call that is likely to follow, if the program allows that: see
// engine.Pipelined.
func (x *instance) RunPipelined(ctx context.Context, inputs, next []eval.Value) (out []eval.Value, err error) {
	if next == nil {
		return x.callEntry(ctx, 0, inputs, nil)
	}
	return x.callEntry(ctx, 0, inputs, &engine.Next{Inputs: next, Fed: 1})
}

// callEntry calls an entry by its number. next is the call that is likely to follow, or nil.
func (x *instance) callEntry(ctx context.Context, entry int, inputs []eval.Value,
	next *engine.Next) (out []eval.Value, err error) {
	f := x.exe.entries[entry].Entry
	defer func() {
		// Kernels do not repeat the checks that were made with the plan. If a program gets around those checks, the
		// panic must not end the process.
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
		err = x.submitNext(c, next)
	}
	if err == nil {
		out, err = x.results(c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, errors.Join(err, x.dropPending()))
	}
	return out, nil
}

// call submits the call with these inputs, or takes the pending one if it has these inputs.
func (x *instance) call(entry int, inputs []eval.Value, pipelined bool) (*call, error) {
	if x.isPending(entry, inputs) {
		c := x.pending.call
		x.pending = nil
		return c, nil
	}
	if err := x.dropPending(); err != nil {
		return nil, err
	}
	p, err := x.runPlan(entry, inputs, pipelined)
	if err != nil {
		return nil, err
	}
	return x.submitted(p)
}

// results returns the outputs of a call. It waits for the kernels.
func (x *instance) results(c *call) (out []eval.Value, err error) {
	p := c.plan
	f := p.module.Entry
	out = make([]eval.Value, len(p.outputs))
	for i, v := range p.outputs {
		if c.result != nil {
			out[i].Tensor, err = c.tokens()
		} else {
			out[i], err = x.content(f.Body.Results[i], v)
		}
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		if x.pending != nil {
			x.pending.tokens = out[i].Tensor.I
		}
		if out[i].Tensor != nil {
			out[i].Tensor = eval.ConvertOutput(out[i].Tensor, f.Outputs[i].DType, x.exe.precision)
			if v.place == onHost {
				out[i].Tensor = out[i].Tensor.Clone() // it may share memory with an input or a constant
			}
		}
	}
	return out, nil
}

// runPlan runs the plan for the inputs. While a self-test refuses one of its kernels, it makes the plan again without
// that kernel. pipelined asks for double buffers, which the plan gets where it can have them.
func (x *instance) runPlan(entry int, inputs []eval.Value, pipelined bool) (*boundPlan, error) {
	for {
		p, err := x.planFor(entry, inputs)
		if err != nil {
			return nil, err
		}
		for i, v := range inputs {
			p.inputs[i].content = v
		}
		if pipelined {
			if err := x.allocateSecond(p); err != nil {
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

// planFor returns the plan for inputs of these shapes, with its memory. It makes the plan when it is first needed.
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

// allPlans returns the plans of all entries.
func (x *instance) allPlans() (out []*boundPlan) {
	for i := range x.plans {
		out = append(out, x.plans[i].All()...)
	}
	return out
}

// free frees one buffer of the instance.
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
