package cpu

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/plan"
)

// PassNames lists the passes of the runtime's table for this engine. It has none of its own, since it has kernels for
// the fused operations.
func (Engine) PassNames() []string { return append(fuse.Table.Names(), engine.BindShapes) }

// Lower returns the module that the engine runs: see engine.Lowerer.
func (Engine) Lower(m *ir.Module, rows int, o engine.Options, after func(pass string, m *ir.Module) error) (*ir.Module,
	error) {
	fused, err := fuse.Run(m, passes.Control{Disable: o.DisablePasses, Verify: o.VerifyIR, After: after})
	if err != nil {
		return nil, err
	}
	sizes := plan.SizesOf(fused.Entry.Params, plan.Shapes(fused, rows))
	bound := fused.Specialize(func(s *ir.Symbol) (int64, bool) { n, ok := sizes[s]; return n, ok })
	if after == nil {
		return bound, nil
	}
	return bound, after(engine.BindShapes, bound)
}
