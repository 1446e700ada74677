package qwen35moe

import "github.com/etc-ml/etc/ir"

// experts is the mixture of experts for x [1,S,H]: the routed experts that the router scores highest,
// weighted by the softmax over their scores (which equals the softmax over all scores, renormalised), and
// the shared expert, weighted by a sigmoid.
func (f *forward) experts(w *experts, prefix string, x *ir.Value) *ir.Value {
	top := f.Op("top_k", &ir.TopKAttrs{K: f.c.ExpertsPerToken}, f.Linear(x, w.router))
	scores := f.Value("softmax", &ir.SoftmaxAttrs{Axis: -1, Precise: true}, top.Results[0])
	routed := f.Value("switch_mlp", nil, x, f.Constant(w.gate), f.Constant(w.up), f.Constant(w.down), top.Results[1], scores)

	p := f.Projections(x, prefix+".shared_expert.gate_up_proj.weight", w.sharedGate, w.sharedUp)
	shared := f.Linear(f.Multiply(f.Unary("silu", p[0]), p[1]), w.sharedDown)
	shared = f.Multiply(f.Unary("sigmoid", f.Linear(x, w.sharedRouter)), shared)
	return f.Add(f.Cast(routed, f.DType), shared)
}
