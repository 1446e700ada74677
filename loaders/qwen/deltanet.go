package qwen

import (
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

// deltaNet adds a gated delta net to the graph (Yang, Kautz, Hatamizadeh, Gated Delta Networks, 2024), for x [1,S,H]:
// projections, a causal convolution over time with SiLU on q, k and v, the delta rule, a gated norm.
func (f *forward) deltaNet(w *deltaNet, prefix string, x *ir.Value) *ir.Value {
	c := f.c
	keys, values := c.LinearKeyHeads*c.LinearKeyHeadDim, c.LinearValueHeads*c.LinearValueHeadDim
	p := f.Projections(x, prefix+".in_proj.weight", w.qkv, w.z, w.b, w.a)
	qkv := f.convolve(w.conv, prefix, p[0])
	part := func(start, count, heads, dim int) *ir.Value {
		return f.Heads(f.Slice(qkv, 2, start, start+count), heads, dim)
	}
	q, k := f.unit(part(0, keys, c.LinearKeyHeads, c.LinearKeyHeadDim),
		part(keys, keys, c.LinearKeyHeads, c.LinearKeyHeadDim))
	v := part(2*keys, values, c.LinearValueHeads, c.LinearValueHeadDim)

	// The state decays by exp(-exp(A_log)·softplus(a+dt_bias)), softplus(x) being log(exp(x)+exp(0)).
	step := f.Value("logaddexp", nil, f.Add(p[3], f.Constant(w.stepBias)), f.Scalar(ir.F32, 0))
	var rate *ir.Value
	if w.rate.Data != nil {
		rate = f.Constant(w.rate)
	} else {
		rate = f.Unary("neg", f.Unary("exp", f.Constant(w.logDecay)))
	}
	decay := f.Unary("exp", f.Multiply(step, rate))
	state := f.Buffer(prefix+".recurrent_state", ir.F32, 1, c.LinearValueHeads,
		c.LinearValueHeadDim, c.LinearKeyHeadDim)
	rule := f.Op("gated_delta_rule", nil, q, k, v, decay, f.Unary("sigmoid", p[2]), f.resumed(state))
	f.Store(state, rule.Results[1])

	y := f.RawNorm(rule.Results[0], f.Constant(w.norm), c.RMSNormEps)
	y = f.Multiply(y, f.Unary("silu", f.Heads(p[1], c.LinearValueHeads, c.LinearValueHeadDim)))
	return f.Linear(f.Cast(f.Reshape(y, 1, -1, values), f.DType), w.output)
}

// convolve applies a causal depthwise convolution along the S positions of x [1,S,C], then SiLU. A buffer keeps the
// last inputs, as many as there are taps, for the next call. The convolution runs over the kept inputs and the new
// ones. Its first result belongs to the last kept input and was given by the call before, so it is dropped.
func (f *forward) convolve(w weight, prefix string, x *ir.Value) *ir.Value {
	channels, taps := f.c.ConvChannels(), f.c.ConvKernel
	state := f.Buffer(prefix+".conv_state", x.Type.DType, 1, taps, channels)
	inputs := f.Value("concatenate", &ir.AxisAttrs{Axis: 1}, []*ir.Value{f.resumed(state), x})
	// A copy of its own: a view would keep the inputs of the whole call alive until the next one.
	f.Store(state, f.Unary("contiguous", f.Slice(inputs, 1, -taps, builder.ToEnd)))
	y := f.Value("conv1d", &ir.Conv1DAttrs{Stride: 1, Dilation: 1, Groups: channels}, inputs, f.Constant(w))
	return f.Unary("silu", f.Cast(f.Slice(y, 1, 1, builder.ToEnd), f.DType))
}

// unitEps is what transformers adds to the sum of squares under the root.
const unitEps = 1e-6

// unit scales the heads of q and k [1,S,Hk,Dk] to length one, and q by Dk^-0.5 more:
//
//	x/√(Σx²+eps) = Dk^-0.5 · x/√(mean(x²)+eps/Dk)
//
// which is an RMS norm with Dk^-0.5 for its weights.
func (f *forward) unit(q, k *ir.Value) (*ir.Value, *ir.Value) {
	dim := f.c.LinearKeyHeadDim
	if f.keyScale == nil {
		scale := float32(1 / math.Sqrt(float64(dim)))
		f.keyScale = f.Constant(weight{Name: "linear_attn.key_scale",
			Data: ir.Float32s([]int64{int64(dim)}, slices.Repeat([]float32{scale}, dim)...)})
		f.queryScale = f.Multiply(f.keyScale, f.keyScale)
	}
	eps := unitEps / float64(dim)
	return f.RawNorm(q, f.queryScale, eps), f.RawNorm(k, f.keyScale, eps)
}

// resumed loads a state. At position 0, where a text starts, it gives zeros instead.
func (f *forward) resumed(state *ir.Buffer) *ir.Value {
	if f.atStart == nil {
		f.atStart = f.Value("equal", nil, f.Start, f.Scalar(ir.I64, 0))
	}
	return f.Value("where", nil, f.atStart, f.Scalar(state.Type.DType, 0), f.Load(state))
}
