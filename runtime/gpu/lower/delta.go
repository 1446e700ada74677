package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// FewTokens is the largest number of tokens that recurrent kernels take one after the other. More tokens go by chunks.
const FewTokens = 8

// fewSlotRows is the counterpart of FewTokens for the rows of a call of several sequences. Each sequence usually has
// few rows, and one kernel then does the work of six. A single prompt of that few rows goes row by row too. The number
// comes from counting kernels, not from a measurement.
const fewSlotRows = 32

// isFew reports whether a delta rule over this number of tokens takes them one after the other.
func (g *graph) isFew(rule *ir.Op, tokens int) bool {
	if ofSlots(rule) {
		return tokens <= fewSlotRows || g.decodes(rule.Input("entries"), tokens)
	}
	return tokens <= FewTokens
}

// deltaGates replaces the decays and the update rates of a gated delta rule over many tokens by one operation.
func (g *graph) deltaGates(rule *ir.Op) {
	tokens, ok := rule.Input("q").Type.Shape[1].Const()
	if !ok || g.isFew(rule, int(tokens)) {
		return
	}
	decay, rate := g.defined(rule.Input("g"), "delta_decay"), g.defined(rule.Input("beta"), "sigmoid")
	if decay == nil || rate == nil || !g.gates(decay, rate) || !g.allowsGates(decay, rate) {
		return
	}
	both := g.builder(decay).Op("delta_gates", nil, decay.Input("x"), decay.Input("bias"),
		decay.Input("rate"), rate.Input("x"))
	g.stand(decay, decay.Result(), both.Results[0])
	g.stand(decay, rate.Result(), both.Results[1])
}

// allowsGates reports whether the device may use the kernel that computes both.
func (g *graph) allowsGates(decay, rate *ir.Op) bool {
	x, heads, ok := g.gateRows(decay.Input("x"))
	update, _, ok2 := g.gateRows(rate.Input("x"))
	n, _ := g.Layout(decay.Input("x"))
	return ok && ok2 && isVector(decay.Input("bias"), heads) && isVector(decay.Input("rate"), heads) &&
		g.Allowed(DeltaGates(heads, x, update).GatesLaunch(strided.Elements(n.Shape)/max(heads, 1)))
}

// gateRows returns the distance in elements between the rows of a gate, and its number of heads.
func (g *graph) gateRows(v *ir.Value) (stride, heads int, ok bool) {
	l, ok := g.floats(v)
	if !ok || len(l.Shape) == 0 {
		return 0, 0, false
	}
	_, _, stride, ok = strided.Rows(l.Shape, l.Strides)
	return stride, l.Shape[len(l.Shape)-1], ok
}

// DeltaGates returns the kernel of delta_gates for this number of heads. decay and update are the distances in elements
// between rows of the two inputs.
func DeltaGates(heads, decay, update int) kernels.Delta {
	return kernels.Delta{DK: 32, DV: 32, KHeads: heads, Heads: heads, GToken: decay, BetaToken: update,
		State: kernels.F32, Gates: kernels.F32}
}

// gates reports whether one kernel can compute both: they have the same number of elements, in evenly spaced rows.
func (g *graph) gates(decay, rate *ir.Op) bool {
	a, ok := g.Layout(decay.Input("x"))
	x, ok2 := g.Layout(rate.Input("x"))
	if !ok || !ok2 || strided.Elements(a.Shape) != strided.Elements(x.Shape) {
		return false
	}
	_, _, stride, ok := strided.Rows(x.Shape, x.Strides)
	return ok && stride > 0
}
