package gpu

import (
	"errors"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// windowAround is the number of steps that stand before the first one of a product in its window, and behind the last
// one at least, where there are so many: its kernel starts while the one before runs, and the one behind starts while
// it runs.
const windowAround = 2

// windows give the products of a plan for one token their measurements: parts of the plan as a call has them, in order,
// with the barriers and the launches that steps have now, but for the products' own. All kernels of the plan have
// passed their self-tests, and have run once before that, so that what a window reads of steps before it is there: the
// experts that a router chose, how many tokens a sampler kept. States are others.
type windows struct {
	*rotation
	plan  *boundPlan
	parts []recorded // nil before they are needed
	err   error      // why there are none
}

// recorded are kernels between two steps of the host in the order in which they are recorded, with their steps.
type recorded struct {
	dispatches []device.Dispatch
	steps      []*step
}

// inPlace reports whether products are measured in their place in a plan: in one for a token, where what a part of it
// reads is there after a pass, because no results share memory.
func (p *boundPlan) inPlace() bool { return p.single() && p.apart }

// pass makes the parts, and runs them once.
func (w *windows) pass() error {
	if err := w.exe.compile(w.plan.steps); err != nil {
		return err
	}
	if err := w.fill(); err != nil {
		return err
	}
	for _, list := range w.plan.parts() {
		if list[0].host != nil {
			continue
		}
		part := recorded{}
		var err error
		if part.dispatches, part.steps, err = w.dispatches(w.plan, list); err != nil {
			return err
		}
		for i, s := range part.steps {
			for n, o := range s.operands {
				if o.write && o.slot.state {
					if part.dispatches[i].Arguments[n].Binding, err = w.state(o, n); err != nil {
						return err
					}
				}
			}
		}
		if err := w.once(part.dispatches); err != nil {
			return err
		}
		w.parts = append(w.parts, part)
	}
	return nil
}

// once runs dispatches.
func (w *windows) once(dispatches []device.Dispatch) error {
	s, err := w.exe.device.Record(dispatches)
	if err != nil {
		return err
	}
	return errors.Join(s.Submit(), w.exe.device.Wait(), s.Close())
}

// runs are the dispatches of a product's window, its own without a kernel; nil where there is no memory for them, or
// where the plan does not run.
func (w *windows) runs(t *product) []device.Dispatch {
	if w.parts == nil && w.err == nil {
		w.err = w.pass()
	}
	if w.err != nil {
		return nil
	}
	count := func(part recorded) (n int) {
		for _, s := range part.steps {
			if t.of(s) {
				n++
			}
		}
		return n
	}
	part := slices.MaxFunc(w.parts, func(a, b recorded) int { return count(a) - count(b) })
	from, to := window(part.steps, t.of)
	out := slices.Clone(part.dispatches[from:to])
	for i, s := range part.steps[from:to] {
		if t.of(s) {
			out[i] = device.Dispatch{Arguments: out[i].Arguments[:len(s.operands)], Barrier: out[i].Barrier}
		}
	}
	if len(t.positions) > 0 {
		return w.along(t, part.steps[from:to], out)
	}
	return out
}

// along are a window's dispatches once for each position at which the product is measured, one after the other. The
// other kernels stand at the call's.
func (w *windows) along(t *product, steps []*step, window []device.Dispatch) (out []device.Dispatch) {
	for at := range t.positions {
		list := slices.Clone(window)
		list[0].Barrier = list[0].Barrier || at > 0
		for i, s := range steps {
			if !t.of(s) {
				continue
			}
			list[i].Arguments = slices.Clone(list[i].Arguments)
			for n, o := range s.operands {
				if o.example == nil || len(o.example.positions) == 0 {
					continue
				}
				b, err := w.example(o, at)
				if err != nil {
					return nil
				}
				list[i].Arguments[n].Binding = b
			}
		}
		out = append(out, list...)
	}
	return out
}

// window is the part [from, to) of steps that measures those of a product: from a little before the first of them to a
// little behind the second, if there is one, and on until more is read than caches hold; where the steps end before
// that, they begin earlier.
func window(steps []*step, of func(*step) bool) (from, to int) {
	first := slices.IndexFunc(steps, of)
	from = max(0, first-windowAround)
	want := 1
	if slices.ContainsFunc(steps[first+1:], of) {
		want = 2
	}
	bytes, seen, last := 0, 0, first
	for to = from; to < len(steps) && to-from < tuneRuns &&
		(bytes < tuneRotate || seen < want || to <= last+windowAround); to++ {
		bytes += steps[to].bytes
		if of(steps[to]) {
			seen, last = seen+1, to
		}
	}
	for ; from > 0 && bytes < tuneRotate && to-from < tuneRuns; from-- {
		bytes += steps[from-1].bytes
	}
	return from, to
}
