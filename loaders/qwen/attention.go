package qwen

import (
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// attention adds full attention to the graph, for x [1,S,H]. Where the model gates attention, the result is multiplied
// before the output projection: o(attend(q,k,v)·σ(gate)). Queries and keys are normalised by head, then rotated, both
// in float32.
func (f *forward) attention(w *attention, prefix string, x *ir.Value) *ir.Value {
	c := f.c
	p := f.Projections(x, prefix+".qkv_proj.weight", w.query, w.key, w.value)
	var query, gate *ir.Value
	if c.NoGate {
		query = f.Heads(p[0], c.Heads, c.HeadDim)
	} else {
		queryGate := f.Heads(p[0], c.Heads, 2*c.HeadDim)
		gate = f.Slice(queryGate, 3, c.HeadDim, 2*c.HeadDim)
		query = f.Slice(queryGate, 3, 0, c.HeadDim)
	}
	q := f.rotated(query, w.queryNorm)
	k := f.rotated(f.Heads(p[1], c.KVHeads, c.HeadDim), w.keyNorm)
	v := f.SwapHeads(f.Heads(p[2], c.KVHeads, c.HeadDim))
	y := f.SwapHeads(f.Attend(prefix, q, k, v, 1/math.Sqrt(float64(c.HeadDim))))
	if gate != nil {
		y = f.Multiply(y, f.Unary("sigmoid", gate))
	}
	return f.Linear(f.Reshape(y, 1, -1, c.Heads*c.HeadDim), w.output)
}

// rotated normalises and rotates heads x [1,S,N,D]. The result is [1,N,S,D].
func (f *forward) rotated(x *ir.Value, norm weight) *ir.Value {
	n := f.SwapHeads(f.RawNorm(x, f.Constant(norm), f.c.RMSNormEps))
	rope := huggingface.Rope{Dims: f.c.RotaryDim, Theta: f.c.RopeTheta, Scaling: f.c.RopeScaling}
	return f.Cast(f.Rotate(n, rope), f.DType)
}
