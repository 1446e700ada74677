package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// PassNames lists the passes of the runtime's table for a GPU.
func (Engine) PassNames() []string {
	return slices.Concat(fuse.Table.Names(), []string{engine.BindShapes}, lower.Table.Names())
}

// Lower returns what the device runs of m, on any machine: see engine.Lowerer.
func (e Engine) Lower(m *ir.Module, rows int, o engine.Options,
	after func(pass string, m *ir.Module) error) (*ir.Module, error) {
	_, info, err := e.here(o)
	if err != nil {
		return nil, err
	}
	c := passes.Control{Disable: o.DisablePasses, Verify: o.VerifyIR, After: after}
	fused, err := fuse.Run(m, c)
	if err != nil {
		return nil, err
	}
	return lower.Run(fused, plan.Shapes(fused, rows),
		&lower.Target{Machine: info.Machine, Precision: o.Precision, Exact: o.Exact}, c)
}
