package gpu

import (
	"time"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
)

// observer reports the time of each step of one call. It measures kernels one after the other (device.Timed), so they
// do not overlap as they do in other calls. The time of the call is the sum of its steps.
type observer struct {
	tell   func(*engine.Step)
	labels map[*step]plan.Label
	call   engine.Step
}

// observe returns an observer for a call of the plan, or nil where no observer was asked for.
func (x *instance) observe(p *boundPlan) *observer {
	if x.exe.observe == nil {
		return nil
	}
	o := &observer{tell: x.exe.observe, labels: map[*step]plan.Label{}}
	o.call = engine.Step{Kind: engine.Call, Layer: engine.NoLayer,
		Tokens: plan.Tokens(x.exe.entries[p.entry].Entry.Params, p.shapes), Start: time.Now()}
	for i, l := range plan.Labels(len(p.steps), func(i int) *ir.Op { return p.steps[i].op }) {
		o.labels[&p.steps[i]] = l
	}
	return o
}

// step reports a step and its duration. In the report every step starts where the one before it ends.
func (o *observer) step(s *step, took time.Duration) {
	l := o.labels[s]
	e := engine.Step{Kind: s.kind, Name: l.Name, Layer: l.Layer, Tokens: o.call.Tokens,
		Start: o.call.Start.Add(o.call.Time), Time: took, Bytes: s.bytes}
	o.call.Time, o.call.Bytes = o.call.Time+took, o.call.Bytes+s.bytes
	o.tell(&e)
}

// host runs and reports a step of the host.
func (o *observer) host(s *step) error {
	start := time.Now()
	err := s.host()
	if err == nil {
		o.step(s, time.Since(start))
	}
	return err
}

// run runs and reports a sequence of kernels. On a device that cannot time single kernels it reports the sequence as a
// whole, under the name of its first step.
func (o *observer) run(s *segment, d device.Device) error {
	timed, ok := s.sequence.(device.Timed)
	if !ok {
		start := time.Now()
		if err := s.sequence.Submit(); err != nil {
			return err
		}
		if err := d.Wait(); err != nil {
			return err
		}
		o.step(s.steps[0], time.Since(start))
		return nil
	}
	times, err := timed.Times()
	if err != nil {
		return err
	}
	for i, t := range times {
		o.step(s.steps[i], t)
	}
	return nil
}

// end reports the call.
func (o *observer) end() { o.tell(&o.call) }
