package passes

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// decompositions gives, by op name, how a composite operation is made of operations that have a node.
var decompositions = map[string]func(b *ir.Builder, op *ir.Op, o *Options) []*ir.Value{
	"linear":           decomposeLinear,
	"embedding":        decomposeEmbedding,
	"top_k":            decomposeTopK,
	"switch_mlp":       decomposeSwitchMLP,
	"switch_geglu":     decomposeSwitchMLP,
	"gated_delta_rule": decomposeGatedDeltaRule,
	"sample":           decomposeSample,
}

// decompose replaces composite operations.
func decompose(m *ir.Module, o *Options) error {
	err := ir.Build(func() {
		rewriteEntries(m, func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
			d := decompositions[op.Def.Name]
			if d == nil {
				return nil, false
			}
			return d(b, op, o), true
		})
	})
	if err != nil {
		return err
	}
	return eliminateDead(m, o) // quantized, whose parts are in the nodes now
}

// scalar makes a 0-d constant, one for each value and dtype of the module.
func scalar(b *ir.Builder, d ir.DType, v float64) *ir.Value {
	name := fmt.Sprintf("scalar.%s.%s", d,
		strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+")))
	for _, c := range b.Module.Constants {
		if c.Name == name {
			return c.Value
		}
	}
	return b.Module.NewConstant(name, ir.StaticType(d), scalarData(d, v))
}

// rank2 returns the attributes of the transposition of a matrix.
func rank2() *ir.TransposeAttrs { return &ir.TransposeAttrs{Perm: []int{1, 0}} }

// parts returns the packed codes, scales and biases of a quantized weight.
func parts(b *ir.Builder, w *ir.Value) (packed, scales *ir.Value, biases any) {
	if w.Def == nil || w.Def.Def.Name != "quantized" {
		b.Fail("a weight of type %s is not joined from packed codes, scales and biases", w.Type)
	}
	if v := w.Def.Input("biases"); v != nil {
		biases = v
	}
	return w.Def.Input("packed"), w.Def.Input("scales"), biases
}

func decomposeLinear(b *ir.Builder, op *ir.Op, _ *Options) []*ir.Value {
	x, w, bias := op.Input("x"), op.Input("weight"), op.Input("bias")
	if w.Type.Kind == ir.TensorKind {
		var c any
		if bias != nil {
			c = bias
		}
		return []*ir.Value{b.Value("addmm", nil, x, b.Value("transpose", rank2(), w), c)}
	}
	packed, scales, biases := parts(b, w)
	// The node has the dtype of x where scales are bytes.
	x = promoted(b, x, w)
	y := b.Value("quantized_matmul", &ir.QuantizedMatmulAttrs{GroupSize: w.Type.Group, Bits: w.Type.Bits,
		Mode: w.Type.Mode.String(), Transpose: true},
		x, packed, scales, biases)
	if bias != nil {
		y = b.Value("add", nil, y, bias)
	}
	return []*ir.Value{y}
}

// promoted is x in the dtype that it has with a weight in a mode whose scales have no dtype of floats.
func promoted(b *ir.Builder, x, w *ir.Value) *ir.Value {
	if w.Type.Kind != ir.QuantizedKind || w.Type.Mode == ir.Affine {
		return x
	}
	return cast(b, x, ir.Promote(x.Type.DType, w.Type.DType))
}

func decomposeEmbedding(b *ir.Builder, op *ir.Op, _ *Options) []*ir.Value {
	ids, w := op.Input("indices"), op.Input("weight")
	rows := func(table any) any {
		if table == nil {
			return nil
		}
		return b.Value("take", nil, table, ids)
	}
	if w.Type.Kind == ir.TensorKind {
		return []*ir.Value{b.Value("take", nil, w, ids)}
	}
	packed, scales, biases := parts(b, w)
	d := w.Type.DType
	return []*ir.Value{b.Value("dequantize", &ir.DequantizeAttrs{GroupSize: w.Type.Group, Bits: w.Type.Bits,
		Mode: w.Type.Mode.String(), Dtype: &d},
		rows(packed), rows(scales), rows(biases))}
}

// decomposeTopK sorts and takes the end backwards: of equal values the last comes first.
func decomposeTopK(b *ir.Builder, op *ir.Op, _ *Options) []*ir.Value {
	x, last := op.Input("x"), &ir.AxisAttrs{Axis: -1}
	k := ir.Attrs[ir.TopKAttrs](op).K
	indices := b.Value("slice", &ir.StepAttrs{Step: -1}, b.Value("argsort", last, x), -1, -1, -(k + 1))
	return []*ir.Value{b.Value("take_along_axis", last, x, indices), indices}
}

// decomposeSwitchMLP routes each token through its experts. With many tokens the token-expert pairs are
// sorted by expert first, so that the gathered products read each expert's weights once; with few, which
// is decoding, they are taken as they are. Both arms give the rows of the experts by token.
func decomposeSwitchMLP(b *ir.Builder, op *ir.Op, _ *Options) []*ir.Value {
	x, indices, scores := op.Input("x"), op.Input("indices"), op.Input("scores")
	hidden := x.Type.Shape[2]
	experts := indices.Type.Shape[2] // per token
	k, ok := experts.Const()
	h, okH := hidden.Const()
	if !ok || !okH {
		b.Fail(op.Def.Name+": experts per token %s and hidden size %s must be constants", experts, hidden)
	}
	cutoff := ir.Attrs[ir.SwitchMLPAttrs](op).SortCutoff
	flat := b.Value("reshape", nil, x, []int64{-1, h})
	ids := b.Value("reshape", nil, b.Value("astype", &ir.DTypeAttrs{ScalarType: ir.I32}, indices), []int64{-1, k})
	tokens := b.Value("sym_size", &ir.SymSizeAttrs{Dim: 0}, flat)
	many := b.Value("floor_divide_int", nil, b.Value("subtract_int", nil, tokens, 1), cutoff)

	experts3 := func(b *ir.Builder, x, ids *ir.Value, sorted bool) *ir.Value {
		gate := gather(b, x, op.Input("gate"), ids, sorted)
		up := gather(b, x, op.Input("up"), ids, sorted)
		return gather(b, b.Value("multiply", nil, expertActivation(b, op, gate), up), op.Input("down"), ids, sorted)
	}
	rows := b.If(many, func(b *ir.Builder) []*ir.Value {
		pairs := b.Value("reshape", nil, ids, []int64{-1})
		order := b.Value("argsort", &ir.AxisAttrs{Axis: 0}, pairs)
		inverse := b.Value("argsort", &ir.AxisAttrs{Axis: 0}, order)
		d := ir.I32
		tokenOf := b.Value("repeat", &ir.AxisAttrs{Axis: 0},
			b.Value("arange", &ir.OptionalDTypeAttrs{ScalarType: &d}, 0, tokens, 1), k)
		take := func(x, at *ir.Value) *ir.Value { return b.Value("take", nil, x, at) }
		sorted := b.Value("expand_dims", &ir.AxisAttrs{Axis: 1}, take(flat, take(tokenOf, order)))
		y := experts3(b, sorted, take(pairs, order), true)
		return []*ir.Value{b.Value("reshape", nil, take(y, inverse), []any{tokens, k, h})}
	}, func(b *ir.Builder) []*ir.Value {
		wide := b.Value("reshape", nil, flat, []any{tokens, 1, 1, h})
		y := experts3(b, wide, ids, false)
		return []*ir.Value{b.Value("reshape", nil, y, []any{tokens, k, h})}
	})[0]

	weights := b.Value("expand_dims", &ir.AxisAttrs{Axis: -1}, b.Value("reshape", nil, scores, []int64{-1, k}))
	sum := b.Value("sum", &ir.ReduceAttrs{Axes: []int{1}}, b.Value("multiply", nil, rows, weights))
	y := b.Value("reshape", nil, sum, shapeLike(b, x))
	return []*ir.Value{cast(b, y, op.Result().Type.DType)}
}

// expertActivation returns the activation of the experts of switch_mlp or switch_geglu.
func expertActivation(b *ir.Builder, op *ir.Op, gate *ir.Value) *ir.Value {
	if op.Def.Name == "switch_geglu" {
		return b.Value("gelu", &ir.GeluAttrs{Approximate: "tanh"}, gate)
	}
	return b.Value("silu", nil, gate)
}

// gather multiplies rows of x by the matrices of the experts that ids names.
func gather(b *ir.Builder, x, w, ids *ir.Value, sorted bool) *ir.Value {
	if w.Type.Kind == ir.TensorKind {
		t := b.Value("transpose", &ir.TransposeAttrs{Perm: []int{0, 2, 1}}, w)
		return b.Value("gather_mm", &ir.GatherMmAttrs{SortedIndices: sorted}, x, t, nil, ids)
	}
	packed, scales, biases := parts(b, w)
	return b.Value("gather_qmm", &ir.GatherQmmAttrs{Mode: w.Type.Mode.String(), Transpose: true,
		GroupSize: w.Type.Group, Bits: w.Type.Bits, SortedIndices: sorted},
		promoted(b, x, w), packed, scales, biases, nil, ids)
}

// shapeLike returns the dims of x as operands of a reshape: constants, and sizes read at run time.
func shapeLike(b *ir.Builder, x *ir.Value) []any {
	out := make([]any, x.Type.Rank())
	for i, d := range x.Type.Shape {
		if c, ok := d.Const(); ok {
			out[i] = c
		} else {
			out[i] = b.Value("sym_size", &ir.SymSizeAttrs{Dim: i}, x)
		}
	}
	return out
}

// cast converts x to a dtype, where it has another.
func cast(b *ir.Builder, x *ir.Value, d ir.DType) *ir.Value {
	if x.Type.DType == d {
		return x
	}
	return b.Value("astype", &ir.DTypeAttrs{ScalarType: d}, x)
}
