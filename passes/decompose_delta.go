package passes

import (
	_ "embed"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// gatedDeltaSource is the body of the Metal kernel of the gated delta rule, in the form that MLX's
// metal_kernel takes: it generates the signature from the names of inputs, outputs and template arguments.
//
//go:embed gated_delta.metal
var gatedDeltaSource string

// simdWidth is the number of threads that share a row of the state; Metal has 32 on every Apple GPU.
const simdWidth = 32

// decomposeGatedDeltaRule writes the recurrence as one Metal kernel node, which keeps the state in
// registers over all tokens of a call; or, for portable files and head dims that 32 threads cannot share
// evenly, as a Scan over the tokens.
func decomposeGatedDeltaRule(b *ir.Builder, op *ir.Op, o *Options) []*ir.Value {
	k := mustConst(b, op.Input("k").Type.Shape[3])
	if o.Portable || k%simdWidth != 0 {
		return gatedDeltaScan(b, op)
	}
	return gatedDeltaKernel(b, op)
}

func gatedDeltaKernel(b *ir.Builder, op *ir.Op) []*ir.Value {
	q, k, v, state := op.Input("q"), op.Input("k"), op.Input("v"), op.Input("state")
	keyHeads, keyDim := mustConst(b, k.Type.Shape[2]), mustConst(b, k.Type.Shape[3])
	heads, valueDim := mustConst(b, v.Type.Shape[2]), mustConst(b, v.Type.Shape[3])
	steps := b.Value("sym_size", &ir.SymSizeAttrs{Dim: 1}, q)
	// MLX hands the number of steps to the kernel as a tensor.
	count := b.Value("full", &ir.DTypeAttrs{ScalarType: ir.I32}, []int64{}, steps)
	batch := mustConst(b, q.Type.Shape[0])
	attrs := &ir.MetalKernelAttrs{
		Name: "gated_delta_step", Source: strings.TrimSpace(gatedDeltaSource) + "\n",
		InputNames: []string{"q", "k", "v", "g", "beta", "state_in", "T"}, OutputNames: []string{"y", "state_out"},
		EnsureRowContiguous: true, OutputShapeLengths: []int{4, 4},
		OutputDtypes:     []ir.DType{op.Results[0].Type.DType, op.Results[1].Type.DType},
		TemplateArgNames: []string{"InT", "StT", "Dk", "Dv", "Hk", "Hv"},
		TemplateArgKinds: []int{2, 2, 0, 0, 0, 0},
		TemplateArgValues: []int{int(op.Results[0].Type.DType), int(op.Results[1].Type.DType), int(keyDim),
			int(valueDim), int(keyHeads), int(heads)},
	}
	kernel := b.Op("metal_kernel", attrs, []*ir.Value{q, k, v, op.Input("g"), op.Input("beta"), state, count},
		[]int64{simdWidth, valueDim, batch * heads}, []int64{simdWidth, rowsPerGroup(valueDim), 1},
		[]any{batch, steps, heads, valueDim, batch, heads, valueDim, keyDim})
	return kernel.Results
}

// rowsPerGroup returns the number of state rows in a threadgroup: a divisor of the rows, so that none is idle.
func rowsPerGroup(rows int64) int64 {
	for _, n := range []int64{4, 2} {
		if rows%n == 0 {
			return n
		}
	}
	return 1
}

// gatedDeltaScan writes the recurrence with one step a token (Yang, Kautz, Hatamizadeh, Gated Delta
// Networks, 2024, eq. 10): S = g S; d = (v - S k) beta; S = S + d k^T; y = S q. It computes in the
// state's dtype.
func gatedDeltaScan(b *ir.Builder, op *ir.Op) []*ir.Value {
	q, k, v, state := op.Input("q"), op.Input("k"), op.Input("v"), op.Input("state")
	keyHeads, heads := mustConst(b, k.Type.Shape[2]), mustConst(b, v.Type.Shape[2])
	d := op.Results[1].Type.DType
	if keyHeads != heads { // value head h uses key head h / (Hv/Hk)
		q = b.Value("repeat", &ir.AxisAttrs{Axis: 2}, q, heads/keyHeads)
		k = b.Value("repeat", &ir.AxisAttrs{Axis: 2}, k, heads/keyHeads)
	}
	var originals []*ir.Value
	for _, x := range []*ir.Value{q, k, v, op.Input("g"), op.Input("beta")} {
		originals = append(originals, cast(b, x, d))
	}
	outputs, last := b.Scan(1, originals, []*ir.Value{state},
		func(b *ir.Builder, in, carry []*ir.Value) (outs, next []*ir.Value) {
			q, k, v, g, beta, s := in[0], in[1], in[2], in[3], in[4], carry[0] // [B,H,D] and [B,H]; s [B,H,Dv,Dk]
			at := func(x *ir.Value, axes ...int) *ir.Value {
				for _, a := range axes {
					x = b.Value("expand_dims", &ir.AxisAttrs{Axis: a}, x)
				}
				return x
			}
			dot := func(s, x *ir.Value) *ir.Value { // over Dk
				return b.Value("sum", &ir.ReduceAttrs{Axes: []int{-1}}, b.Value("multiply", nil, s, at(x, -2)))
			}
			s = b.Value("multiply", nil, s, at(g, -1, -1))
			delta := b.Value("multiply", nil, b.Value("subtract", nil, v, dot(s, k)), at(beta, -1))
			s = b.Value("add", nil, s, b.Value("multiply", nil, at(delta, -1), at(k, -2)))
			return []*ir.Value{cast(b, dot(s, q), op.Results[0].Type.DType)}, []*ir.Value{s}
		})
	return []*ir.Value{outputs[0], last[0]}
}
