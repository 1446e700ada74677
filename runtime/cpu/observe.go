package cpu

import (
	"time"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/plan"
)

// observe runs the plan and reports every step.
func (p *boundPlan) observe(x *instance) error {
	if p.labels == nil {
		p.labels = plan.Labels(len(p.steps), func(i int) *ir.Op { return p.steps[i].op })
		p.tokens = plan.Tokens(p.module.Entry.Params, p.shapes)
	}
	tell := x.exe.observe
	call := engine.Step{Kind: engine.Call, Layer: engine.NoLayer, Tokens: p.tokens, Start: time.Now()}
	for i := range p.steps {
		s := &p.steps[i]
		e := engine.Step{Kind: s.kind, Name: p.labels[i].Name, Layer: p.labels[i].Layer,
			Tokens: p.tokens, Start: time.Now()}
		if err := s.run(); err != nil {
			return p.failed(s, err)
		}
		if x.ended() {
			return errEnded
		}
		e.Time = time.Since(e.Start)
		e.Bytes, e.Operations = s.bytes, s.flops
		if s.cost != nil {
			e.Bytes, e.Operations = s.cost()
		}
		call.Bytes, call.Operations = call.Bytes+e.Bytes, call.Operations+e.Operations
		tell(&e)
		if x.ended() {
			return errEnded
		}
	}
	call.Time = time.Since(call.Start)
	tell(&call)
	return nil
}
