package qwen35moe

import (
	"math"

	"github.com/etc-ml/etc/ir"
)

// attention is full attention whose result is gated before the output projection: o(attend(q,k,v)·σ(gate))
// for x [1,S,H]. Queries and keys are normalised by head, then rotated, both in float32.
func (f *forward) attention(w *attention, prefix string, x *ir.Value) *ir.Value {
	c := f.c
	p := f.Projections(x, prefix+".qkv_proj.weight", w.query, w.key, w.value)
	queryGate := f.Heads(p[0], c.Heads, 2*c.HeadDim)
	gate := f.Slice(queryGate, 3, c.HeadDim, 2*c.HeadDim)
	q := f.rotated(f.Slice(queryGate, 3, 0, c.HeadDim), w.queryNorm)
	k := f.rotated(f.Heads(p[1], c.KVHeads, c.HeadDim), w.keyNorm)
	v := f.SwapHeads(f.Heads(p[2], c.KVHeads, c.HeadDim))
	y := f.SwapHeads(f.Attend(prefix, q, k, v, 1/math.Sqrt(float64(c.HeadDim))))
	y = f.Multiply(y, f.Unary("sigmoid", gate))
	return f.Linear(f.Reshape(y, 1, -1, c.Heads*c.HeadDim), w.output)
}

// rotated turns heads [1,S,N,D] into normalised and rotated ones [1,N,S,D].
func (f *forward) rotated(x *ir.Value, norm weight) *ir.Value {
	n := f.SwapHeads(f.RawNorm(x, f.Constant(norm), f.c.RMSNormEps))
	return f.Cast(f.Rope(n, f.c.RotaryDim, f.c.RopeTheta), f.DType)
}
