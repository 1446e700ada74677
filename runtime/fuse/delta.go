package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// fuseDeltaRule makes gated_delta_rule of the Metal kernel that exporters write it as, told by its
// interface, and of a scan that computes it step by step.
func fuseDeltaRule(m *ir.Module) error {
	return apply(m, "", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		var args []*ir.Value
		switch op.Def.Name {
		case "metal_kernel":
			args = matchDeltaKernel(op)
		case "scan":
			args = matchDeltaScan(op)
		}
		if args == nil {
			return nil, false
		}
		rule := b.Op("gated_delta_rule", nil, args[0], args[1], args[2], args[3], args[4], args[5])
		return []*ir.Value{cast(b, rule.Results[0], op.Results[0].Type.DType),
			cast(b, rule.Results[1], op.Results[1].Type.DType)}, true
	})
}

// matchDeltaKernel matches the kernel gated_delta_step of ExecuTorch (backends/mlx/custom_kernel_ops) and
// ours, which has the dtype of the state as one more template argument. What it does not recognise is
// left to the reference kernel, which says what is wrong.
func matchDeltaKernel(op *ir.Op) []*ir.Value {
	if !hasDeltaSignature(op) {
		return nil
	}
	in := op.Operand("inputs")
	q, v, count := in[0].Value, in[2].Value, is(in[6].Value, "full")
	if q.Type.Rank() != 4 || v.Type.Rank() != 4 || count == nil || in[6].Value.Type.DType != ir.I32 ||
		len(count.Operand("shape")) != 0 {
		return nil
	}
	// The number of steps, which is an input of the kernel, must be that of q.
	if steps, _ := count.Arg("v"); steps.Kind != ir.ValueArg || !steps.Value.Type.Int.Equal(q.Type.Shape[1]) {
		return nil
	}
	if !hasDeltaTemplate(op, q.Type, v.Type) || !hasDeltaGrid(op, q.Type, v.Type) {
		return nil
	}
	return deltaArgs(in[0].Value, in[1].Value, v, in[3].Value, in[4].Value, in[5].Value)
}

// hasDeltaSignature reports whether a Metal kernel of a file has the name of the gated delta rule's kernel, the names
// of its inputs and outputs, and as many inputs, results and result dtypes. The lists of its template's arguments must
// be of equal length.
func hasDeltaSignature(op *ir.Op) bool {
	a := ir.Attrs[ir.MetalKernelAttrs](op)
	return a.Name == "gated_delta_step" &&
		slices.Equal(a.InputNames, []string{"q", "k", "v", "g", "beta", "state_in", "T"}) &&
		slices.Equal(a.OutputNames, []string{"y", "state_out"}) && len(op.Operand("inputs")) == 7 &&
		len(op.Results) == 2 &&
		a.InitValue == nil && len(a.TemplateArgNames) == len(a.TemplateArgValues) &&
		len(a.TemplateArgNames) == len(a.TemplateArgKinds) && len(a.OutputDtypes) == 2
}

// hasDeltaTemplate reports whether the arguments of the kernel's template are the dims and dtypes of its operands, each
// once; that of the state may be missing.
func hasDeltaTemplate(op *ir.Op, q, v ir.Type) bool {
	a := ir.Attrs[ir.MetalKernelAttrs](op)
	dims := map[string]*ir.Expr{"Dk": q.Shape[3], "Dv": v.Shape[3], "Hk": q.Shape[2], "Hv": v.Shape[2],
		"InT": ir.Const(int64(a.OutputDtypes[0])), "StT": ir.Const(int64(a.OutputDtypes[1]))}
	for i, name := range a.TemplateArgNames {
		kind := 0 // a number
		if name == "InT" || name == "StT" {
			kind = 2 // a dtype
		}
		if d := dims[name]; d == nil || !d.IsConst(int64(a.TemplateArgValues[i])) || a.TemplateArgKinds[i] != kind {
			return false
		}
		delete(dims, name)
	}
	delete(dims, "StT")
	return len(dims) == 0
}

// hasDeltaGrid reports whether the kernel is launched as the rule's is: a simdgroup for each row of each head's state.
func hasDeltaGrid(op *ir.Op, q, v ir.Type) bool {
	width, ok := q.Shape[3].Const()
	exprs := func(operand string) []*ir.Expr {
		out := make([]*ir.Expr, len(op.Operand(operand)))
		for i, a := range op.Operand(operand) {
			if out[i] = ir.Const(a.Int); a.Kind == ir.ValueArg {
				out[i] = a.Value.Type.Int
			}
		}
		return out
	}
	batch, heads := q.Shape[0], v.Shape[2]
	group := exprs("threadgroup")
	shapes := slices.Concat(v.Shape, []*ir.Expr{batch, heads, v.Shape[3], q.Shape[3]})
	same := func(x, y *ir.Expr) bool { return x.Equal(y) }
	return ok && width%32 == 0 && len(group) == 3 && group[0].IsConst(32) &&
		slices.EqualFunc(exprs("grid"), []*ir.Expr{ir.Const(32), v.Shape[3], batch.Mul(heads)}, same) &&
		slices.EqualFunc(exprs("output_shapes_flat"), shapes, same)
}

// deltaArgs checks that the type rule of gated_delta_rule takes these.
func deltaArgs(args ...*ir.Value) []*ir.Value {
	q, v := args[0].Type, args[2].Type
	batch, steps, heads := q.Shape[0], q.Shape[1], v.Shape[2]
	for _, a := range args {
		if !a.Type.DType.IsFloat() {
			return nil
		}
	}
	keyHeads, ok := q.Shape[2].Const()
	n, ok2 := heads.Const()
	if !ok || !ok2 || keyHeads == 0 || n%keyHeads != 0 || !sameShape(q, args[1].Type) ||
		!isDims(v, batch, steps, heads, v.Shape[3]) || !isDims(args[3].Type, batch, steps, heads) ||
		!isDims(args[4].Type, batch, steps, heads) || !isDims(args[5].Type, batch, heads, v.Shape[3], q.Shape[3]) {
		return nil
	}
	return args
}

// matchDeltaScan matches a scan over axis 1 whose body computes, for the slices q, k [B, H, Dk], v [B, H,
// Dv], g and β [B, H] and the carried state S [B, H, Dv, Dk],
//
//	S' = g·S;  Δ = (v − Σ S'·k)·β;  S” = S' + Δ·kᵀ;  y = Σ S”·q
//
// q and k may be repeated over heads before.
func matchDeltaScan(op *ir.Op) []*ir.Value {
	body := op.Regions[0]
	originals, carry := op.Operand("originals"), op.Operand("carry")
	if axis := ir.Attrs[ir.ScanAttrs](op).ScanAxis; axis != 1 || len(originals) != 5 || len(carry) != 1 ||
		len(body.Results) != 2 {
		return nil
	}
	y, next := body.Results[0], body.Results[1]
	state := body.Args[5]
	if state.Type.Rank() != 4 {
		return nil
	}
	var s deltaStep
	if s.q = s.dotted(y, next); s.q == nil {
		return nil
	}
	// S” = S' + Δ·kᵀ
	sum := is(next, "add")
	if sum == nil || !eitherWay(sum, func(decayed, outer *ir.Value) bool {
		decay, product := is(decayed, "multiply"), is(outer, "multiply")
		if decay == nil || product == nil {
			return false
		}
		if !eitherWay(decay, func(x, g *ir.Value) bool {
			s.g = s.spread(g, 2, 3)
			return plain(x) == state && s.g != nil
		}) {
			return false
		}
		return eitherWay(product, func(delta, k *ir.Value) bool {
			s.k = s.spread(k, 2)
			return s.k != nil && s.matchDelta(s.spread(delta, 3), decayed)
		})
	}) {
		return nil
	}
	args := make([]*ir.Value, 6)
	for i, part := range []*ir.Value{s.q, s.k, s.v, s.g, s.beta} {
		at := slices.Index(body.Args[:5], part)
		if at < 0 {
			return nil
		}
		args[i] = originals[at].Value
		if i < 2 {
			args[i] = unrepeated(args[i])
		}
	}
	args[5] = carry[0].Value
	if args[0].Type.Rank() != 4 || args[2].Type.Rank() != 4 {
		return nil
	}
	return deltaArgs(args...)
}

// deltaStep are the parts of a step, as arguments of the scan's body.
type deltaStep struct{ q, k, v, g, beta *ir.Value }

// matchDelta matches Δ = (v − Σ S'·k)·β.
func (s *deltaStep) matchDelta(delta, decayed *ir.Value) bool {
	product := is(delta, "multiply")
	return product != nil && eitherWay(product, func(difference, beta *ir.Value) bool {
		sub := is(difference, "subtract")
		if sub == nil {
			return false
		}
		s.beta, s.v = s.spread(beta, 2), plain(sub.Input("a"))
		return s.beta != nil && s.dotted(sub.Input("b"), decayed) == s.k
	})
}

// dotted matches Σ state·x over the last axis and gives x [B, H, Dk].
func (s *deltaStep) dotted(v, state *ir.Value) *ir.Value {
	sum := is(v, "sum")
	if sum == nil || ir.Attrs[ir.ReduceAttrs](sum).Keepdims {
		return nil
	}
	if axes := ir.Attrs[ir.ReduceAttrs](sum).Axes; len(axes) != 1 || axisOf(axes[0], sum.Input("x").Type) != 3 ||
		sum.Input("x").Type.Rank() != 4 {
		return nil
	}
	product := is(sum.Input("x"), "multiply")
	var x *ir.Value
	if product == nil || !eitherWay(product, func(a, b *ir.Value) bool {
		x = s.spread(b, 2)
		return plain(a) == plain(state) && x != nil
	}) {
		return nil
	}
	return x
}

// spread matches a value with new axes of size 1 at these places of its result and gives the value.
func (s *deltaStep) spread(v *ir.Value, axes ...int) *ir.Value {
	for i := len(axes) - 1; i >= 0; i-- {
		op := is(v, "expand_dims")
		if op == nil || axisOf(ir.Attrs[ir.AxisAttrs](op).Axis, op.Result().Type) != axes[i] {
			return nil
		}
		v = op.Input("x")
	}
	return plain(v)
}

// unrepeated takes away a repetition of heads, which gated_delta_rule does itself.
func unrepeated(v *ir.Value) *ir.Value {
	if op := is(v, "repeat"); op != nil && axisOf(ir.Attrs[ir.AxisAttrs](op).Axis, op.Input("x").Type) == 2 {
		return op.Input("x")
	}
	return v
}
