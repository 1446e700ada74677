package fuse

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// fuseDecay makes delta_decay of exp(rate · logaddexp(x + bias, 0)).
func fuseDecay(m *ir.Module) error {
	return apply(m, "exp", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		product := is(op.Input("x"), "multiply")
		if product == nil {
			return nil, false
		}
		var x, bias, rate *ir.Value
		if !eitherWay(product, func(r, soft *ir.Value) bool {
			softplus := is(soft, "logaddexp")
			if softplus == nil {
				return false
			}
			n := softplus.Result().Type
			return isVector(r, n) && eitherWay(softplus, func(sum, zero *ir.Value) bool {
				add := is(sum, "add")
				if add == nil || !isZeros(zero) {
					return false
				}
				return eitherWay(add, func(a, c *ir.Value) bool {
					x, bias, rate = a, plain(c), plain(r)
					return isVector(c, n) && sameShape(a.Type, n)
				})
			})
		}) {
			return nil, false
		}
		return []*ir.Value{cast(b, b.Value("delta_decay", nil, x, bias, rate), op.Result().Type.DType)}, true
	})
}

// isVector reports whether v is a constant as long as the last dim of t.
func isVector(v *ir.Value, t ir.Type) bool { return t.Rank() > 0 && isBias(v, t.Shape[t.Rank()-1]) }

// isZeros matches a zero, or a tensor filled with it.
func isZeros(v *ir.Value) bool {
	for _, name := range []string{"full", "full_like"} {
		if op := is(v, name); op != nil {
			a, _ := op.Arg("v")
			return a.Kind == ir.FloatArg && a.Float == 0
		}
	}
	return isScalar(v, 0)
}

// fuseGLU makes glu of activation(gate) · x.
func fuseGLU(m *ir.Module) error {
	uses := ir.CountUses(m.Entry.Body)
	return apply(m, "multiply", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		var out []*ir.Value
		eitherWay(op, func(a, x *ir.Value) bool {
			act := plain(a)
			if act.Def == nil || uses[act] != 1 || uses[a] != 1 || !x.Type.DType.IsFloat() {
				return false
			}
			name := act.Def.Def.Name
			switch name {
			case "silu", "sigmoid":
			case "gelu":
				if ir.Attrs[ir.GeluAttrs](act.Def).Approximate == "tanh" {
					name = "gelu_tanh"
				}
			default:
				return false
			}
			gate := act.Def.Input("x")
			if !gate.Type.DType.IsFloat() {
				return false
			}
			out = []*ir.Value{cast(b, b.Value("glu", &ir.GLUAttrs{Activation: name}, gate, x), op.Result().Type.DType)}
			return true
		})
		return out, out != nil
	})
}

// fuseSoftcap makes softcap of tanh(x / cap) · cap.
func fuseSoftcap(m *ir.Module) error {
	return apply(m, "multiply", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		var out []*ir.Value
		eitherWay(op, func(a, limit *ir.Value) bool {
			tanh := is(a, "tanh")
			if tanh == nil || constant(limit) == nil || !limit.Type.DType.IsFloat() {
				return false
			}
			quotient := is(tanh.Input("x"), "divide")
			if quotient == nil || plain(quotient.Input("b")) != plain(limit) ||
				!quotient.Input("a").Type.DType.IsFloat() {
				return false
			}
			out = []*ir.Value{cast(b, b.Value("softcap", nil, quotient.Input("a"), plain(limit)),
				op.Result().Type.DType)}
			return true
		})
		return out, out != nil
	})
}

// scaleNorms moves a constant factor of an rms_norm's result into its weight.
func scaleNorms(m *ir.Module) error {
	uses := ir.CountUses(m.Entry.Body)
	var failed error
	err := apply(m, "multiply", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		var out []*ir.Value
		eitherWay(op, func(y, factor *ir.Value) bool {
			norm, scale := is(y, "rms_norm"), constant(factor)
			if failed != nil || norm == nil || uses[norm.Result()] != 1 || uses[y] != 1 || scale == nil ||
				scale.Data == nil || !scale.Value.Type.DType.IsFloat() ||
				factor.Type.Rank() > 1 || !small(factor.Type) {
				return false
			}
			w := constant(norm.Input("weight"))
			if w == nil || w.Data == nil || factor.Type.Rank() == 1 && !sameShape(factor.Type, w.Value.Type) {
				return false
			}
			weight, err := scaledVector(w, scale)
			if err != nil {
				failed = err
				return false
			}
			v := b.Value("rms_norm", norm.Attrs, norm.Input("x"), newConstant(m, w.Name+".scaled", weight))
			out = []*ir.Value{cast(b, v, op.Result().Type.DType)}
			return true
		})
		return out, out != nil
	})
	if err == nil {
		err = failed
	}
	return err
}

// scaledVector is w times a scalar or a vector as long.
func scaledVector(w, scale *ir.Constant) (*eval.Tensor, error) {
	t, err := eval.DecodeConstant(w)
	if err != nil {
		return nil, err
	}
	s, err := eval.DecodeConstant(scale)
	if err != nil {
		return nil, err
	}
	for i := range t.F {
		t.F[i] *= s.F[i*len(s.F)/max(len(t.F), 1)]
	}
	return t, nil
}
