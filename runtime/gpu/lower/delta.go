package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// FewTokens is the number of tokens up to which recurrent states take one after the other.
const FewTokens = 8

// deltaGates computes the decays and the update rates of a gated delta rule over many tokens in one kernel.
func deltaGates(m *ir.Module, t *Target) error {
	of := map[*ir.Op]*ir.Op{} // the sigmoid of a decay
	for _, op := range m.Entry.Body.Ops {
		if op.Def.Name != "buffer_delta_rule" {
			continue
		}
		tokens, ok := op.Input("q").Type.Shape[1].Const()
		decay, rate := t.defined(op.Input("g"), "delta_decay"), t.defined(op.Input("beta"), "sigmoid")
		if ok && tokens > FewTokens && decay != nil && rate != nil && t.gates(decay, rate) && t.allowsGates(decay, rate) {
			of[decay] = rate
		}
	}
	rates := map[*ir.Value]*ir.Value{}
	err := rewrite(m, "delta_decay", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		rate := of[op]
		if rate == nil {
			return nil, false
		}
		both := b.Op("delta_gates", nil, op.Input("x"), op.Input("bias"), op.Input("rate"), rate.Input("x"))
		rates[rate.Result()] = both.Results[1]
		return both.Results[:1], true
	})
	if err != nil || len(rates) == 0 {
		return err
	}
	ir.ReplaceUses(m.Entry.Body, rates)
	settle(m.Entry.Body)
	return nil
}

// allowsGates reports whether the kernel of both may be used.
func (t *Target) allowsGates(decay, rate *ir.Op) bool {
	x, heads, ok := t.gateRows(decay.Input("x"))
	update, _, ok2 := t.gateRows(rate.Input("x"))
	n, _ := t.Layout(decay.Input("x"))
	return ok && ok2 && isVector(decay.Input("bias"), heads) && isVector(decay.Input("rate"), heads) &&
		t.Allowed(DeltaGates(heads, x, update).GatesLaunch(strided.Elements(n.Shape)/max(heads, 1)))
}

// gateRows is the distance of the rows of a gate, of so many heads.
func (t *Target) gateRows(v *ir.Value) (stride, heads int, ok bool) {
	l, ok := t.floats(v)
	if !ok || len(l.Shape) == 0 {
		return 0, 0, false
	}
	_, _, stride, ok = strided.Rows(l.Shape, l.Strides)
	return stride, l.Shape[len(l.Shape)-1], ok
}

// DeltaGates is the kernel of delta_gates, for rows of so many heads that lie so far apart.
func DeltaGates(heads, decay, update int) kernels.Delta {
	return kernels.Delta{DK: 32, DV: 32, KHeads: heads, Heads: heads, GToken: decay, BetaToken: update, State: kernels.F32, Gates: kernels.F32}
}

// gates reports whether one kernel computes both: they have as many elements, in rows that are evenly spaced.
func (t *Target) gates(decay, rate *ir.Op) bool {
	a, ok := t.Layout(decay.Input("x"))
	x, ok2 := t.Layout(rate.Input("x"))
	if !ok || !ok2 || strided.Elements(a.Shape) != strided.Elements(x.Shape) {
		return false
	}
	_, _, stride, ok := strided.Rows(x.Shape, x.Strides)
	return ok && stride > 0
}
