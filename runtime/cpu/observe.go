package cpu

import (
	"time"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
)

// observe executes the plan and tells of every step.
func (p *plan) observe(x *instance) error {
	if p.names == nil {
		p.label(x.exe.fused)
	}
	tell := x.exe.observe
	call := engine.Step{Kind: engine.Call, Layer: engine.NoLayer, Tokens: p.tokens, Start: time.Now()}
	for i := range p.steps {
		s := &p.steps[i]
		e := engine.Step{Kind: s.kind, Name: p.names[i], Layer: p.layers[i], Tokens: p.tokens, Start: time.Now()}
		if err := s.run(); err != nil {
			return x.failed(s, err)
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

// label finds what each step is about. A step without a weight or a buffer belongs to the layer of the one
// before it.
func (p *plan) label(m *ir.Module) {
	p.names, p.layers, p.tokens = make([]string, len(p.steps)), make([]int, len(p.steps)), 1
	for i, v := range m.Entry.Params {
		for j, d := range v.Type.Shape {
			if _, fixed := d.Const(); !fixed {
				p.tokens = max(p.tokens, p.shapes[i][j])
			}
		}
	}
	layer := engine.NoLayer
	for i, s := range p.steps {
		if name := subject(s.op); name != "" {
			p.names[i], layer = name, layerOf(name)
		}
		p.layers[i] = layer
	}
}

// subject is the name of the buffer or the largest constant that an operation takes; scalars do not count.
func subject(op *ir.Op) string {
	if op.Buffer != nil {
		return op.Buffer.Name
	}
	name, most := "", int64(1)
	op.EachArg(func(a *ir.Arg) {
		v := a.Value
		for v != nil && v.Def != nil {
			switch v.Def.Def.Name {
			case "quantized":
				v = v.Def.Input("packed")
				continue
			case "transpose", "astype":
				v = v.Def.Input("x")
				continue
			case "load":
				if name == "" {
					name = v.Def.Buffer.Name
				}
			}
			return
		}
		if v == nil || v.Constant == nil {
			return
		}
		if dims, ok := v.Type.Static(); ok && ir.Elements(dims) > most {
			name, most = v.Constant.Name, ir.Elements(dims)
		}
	})
	return name
}

// layerOf is the layer that a name belongs to.
func layerOf(name string) int {
	if _, n, _, ok := ir.SplitLayer(name); ok {
		return n
	}
	return engine.NoLayer
}
