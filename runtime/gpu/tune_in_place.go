package gpu

import (
	"errors"
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// benchmarkMargin is the number of steps that run before the first step of the measured product, and at least after
// its last one, where there are that many. A kernel starts while the one before it still runs, and ends while the next
// one starts; both count.
const benchmarkMargin = 2

// inPlaceBenchmark measures the products of a plan for one token among the steps around them: a range of the plan's
// dispatches in order, with their barriers and the launches that they have now. Only the launches of the product under
// test vary. Before that, all kernels of the plan have passed their self-tests and have run once. So a range reads
// sensible results of the steps before it, such as the experts that a router chose. States are replaced by other
// memory, except for pools of blocks: these may be most of the device's memory, and the call itself writes the rows of
// its tables again, after the measurements.
type inPlaceBenchmark struct {
	*coldCacheBenchmark
	plan  *boundPlan
	parts []recorded // nil until the first measurement
	err   error      // why the plan cannot be measured
}

// recorded are the dispatches between two steps of the host, in the order of recording, with their steps.
type recorded struct {
	dispatches []device.Dispatch
	steps      []*step
}

// inPlace reports whether products of this plan are measured in place. The plan has to be for one token, and its
// results must not share memory, so that all of them are still there after one run.
func (p *boundPlan) inPlace() bool { return p.single() && p.apart }

// measuredInPools reports whether measurements of the plan write rows of pools of blocks. Such a plan is measured before
// its first call, which writes these rows again, and never after it.
func (p *boundPlan) measuredInPools() bool {
	return p.inPlace() && slices.ContainsFunc(p.steps, func(s step) bool { return s.op != nil && writesBlocks(s.op) })
}

// pass records all parts of the plan and runs each of them once.
func (w *inPlaceBenchmark) pass() error {
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
				if o.write && o.slot.state && !writesBlocks(s.op) {
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
func (w *inPlaceBenchmark) once(dispatches []device.Dispatch) error {
	s, err := w.exe.device.Record(dispatches)
	if err != nil {
		return err
	}
	return errors.Join(s.Submit(), w.exe.device.Wait(), s.Close())
}

// runs returns the dispatches of the range that measures a product; its own dispatches have no kernel yet. It returns
// nil where the device has no memory for them, or the plan does not run.
func (w *inPlaceBenchmark) runs(t *product) []device.Dispatch {
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
	from, to := benchmarkRange(part.steps, t.of)
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

// along repeats the dispatches of a range once for each position at which the product is measured. Only the product's
// step operand changes; the other kernels keep the position of the call.
func (w *inPlaceBenchmark) along(t *product, steps []*step, window []device.Dispatch) (out []device.Dispatch) {
	for at := range t.positions {
		list := slices.Clone(window)
		list[0].Barrier = list[0].Barrier || at > 0
		for i, s := range steps {
			if !t.of(s) {
				continue
			}
			list[i].Arguments = slices.Clone(list[i].Arguments)
			for n, o := range s.operands {
				if o.synthetic == nil || len(o.synthetic.positions) == 0 {
					continue
				}
				b, err := w.synthetic(o, at)
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

// benchmarkRange returns the range [from, to) of steps that measures a product. It starts a little before the product's
// first step and ends a little after its second, if there is one. It is extended until its steps read more bytes than
// caches hold: at its end, or, where the steps end before that, at its start.
func benchmarkRange(steps []*step, of func(*step) bool) (from, to int) {
	first := slices.IndexFunc(steps, of)
	from = max(0, first-benchmarkMargin)
	want := 1
	if slices.ContainsFunc(steps[first+1:], of) {
		want = 2
	}
	bytes, seen, last := 0, 0, first
	for to = from; to < len(steps) && to-from < tuneRuns &&
		(bytes < tuneBytes || seen < want || to <= last+benchmarkMargin); to++ {
		bytes += steps[to].bytes
		if of(steps[to]) {
			seen, last = seen+1, to
		}
	}
	for ; from > 0 && bytes < tuneBytes && to-from < tuneRuns; from-- {
		bytes += steps[from-1].bytes
	}
	return from, to
}
