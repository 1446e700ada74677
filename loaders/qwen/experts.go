package qwen

import "github.com/etc-ml/etc/ir"

// mlp adds a gated MLP to the graph, for x [1,S,H]. fused is the name of the weight that gate and up become where the
// compiler joins them.
func (f *forward) mlp(w *mlp, fused string, x *ir.Value) *ir.Value {
	p := f.Projections(x, fused, w.gate, w.up)
	return f.Linear(f.Multiply(f.Unary("silu", p[0]), p[1]), w.down)
}

// experts adds a mixture of experts to the graph, for x [1,S,H]: the sum of the routed experts that the router scores
// highest and of the shared expert, if there is one, weighted by a sigmoid. Routed experts are weighted by the softmax
// over their scores, which equals the softmax over all scores, renormalised. In models that do not renormalise, they
// are weighted by the softmax over all scores.
func (f *forward) experts(w *experts, prefix string, x *ir.Value) *ir.Value {
	scores := f.Linear(x, w.router)
	softmax := func(x *ir.Value) *ir.Value {
		return f.Value("softmax", &ir.SoftmaxAttrs{Axis: -1, Precise: true}, x)
	}
	if f.c.AbsoluteScores {
		scores = softmax(f.Cast(scores, ir.F32))
	}
	top := f.Op("top_k", &ir.TopKAttrs{K: f.c.ExpertsPerToken}, scores)
	weights := top.Results[0]
	if !f.c.AbsoluteScores {
		weights = softmax(weights)
	}
	gate, up, down := f.Constant(w.gate), f.Constant(w.up), f.Constant(w.down)
	routed := f.Value("switch_mlp", nil, x, gate, up, down, top.Results[1], weights)
	if w.shared == nil {
		return f.Cast(routed, f.DType)
	}
	shared := f.mlp(w.shared, prefix+".shared_expert.gate_up_proj.weight", x)
	shared = f.Multiply(f.Unary("sigmoid", f.Linear(x, w.sharedRouter)), shared)
	return f.Add(f.Cast(routed, f.DType), shared)
}
