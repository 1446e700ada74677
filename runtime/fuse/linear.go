package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// fuseLinear makes linears of products with a quantized weight, and with the transposition of one that
// is not, and gives them the biases that are added to them.
func fuseLinear(m *ir.Module) error {
	symmetric := symmetricBiases(m)
	if err := apply(m, "", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		switch op.Def.Name {
		case "quantized_matmul":
			return linearOfQuantized(b, op, symmetric)
		case "addmm":
			return linearOfDense(b, op)
		}
		return nil, false
	}); err != nil {
		return err
	}
	return addBiases(m)
}

func linearOfQuantized(b *ir.Builder, op *ir.Op, symmetric map[*ir.Value]symmetry) ([]*ir.Value, bool) {
	a, x, w := ir.Attrs[ir.QuantizedMatmulAttrs](op), op.Input("x"), op.Input("w")
	form, ok := ir.FormOf(op)
	if !ok || !a.Transpose || w.Type.Rank() != 2 || !x.Type.DType.IsFloat() {
		return nil, false
	}
	weight := joinWeight(b, w, op.Input("scales"), op.Input("biases"), form, x.Type.DType, symmetric)
	return []*ir.Value{cast(b, b.Value("linear", nil, x, weight), op.Result().Type.DType)}, true
}

// joinWeight makes one weight from packed codes, scales and biases. d is the dtype that it dequantizes to, for modes
// whose scales do not determine it.
func joinWeight(b *ir.Builder, packed, scales, biases *ir.Value, form ir.WeightForm, d ir.DType,
	symmetric map[*ir.Value]symmetry) *ir.Value {
	var third any
	if biases != nil {
		third = biases
		if s, ok := symmetric[biases]; ok && s.scales == plain(scales) && s.factor == -float64(int(1)<<(form.Bits-1)) {
			third = nil
		}
	}
	return b.Value("quantized", ir.NewQuantizedAttrs(form, d), packed, scales, third)
}

// symmetry says that biases are scales times a factor.
type symmetry struct {
	scales *ir.Value
	factor float64
}

// symmetricBiases finds the derived constants that init computes as a multiple of scales, as the biases
// of symmetric codes are.
func symmetricBiases(m *ir.Module) map[*ir.Value]symmetry {
	out := map[*ir.Value]symmetry{}
	for _, d := range m.Derived {
		if op := is(d.From, "multiply"); op != nil {
			eitherWay(op, func(a, b *ir.Value) bool {
				factor, ok := scalarOf(b)
				if ok = ok && constant(a) != nil; ok {
					out[d.Value] = symmetry{plain(a), factor}
				}
				return ok
			})
		}
	}
	return out
}

// linearOfDense matches x · transpose(weight) + bias.
func linearOfDense(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
	a, x, bias := ir.Attrs[ir.AddmmAttrs](op), op.Input("mat1"), op.Input("bias")
	w, perm := permutation(op.Input("mat2"))
	if w == nil || !slices.Equal(perm, []int{1, 0}) || constant(w) == nil || x.Type.Rank() < 2 ||
		!x.Type.DType.IsFloat() || !w.Type.DType.IsFloat() {
		return nil, false
	}
	var c any
	if bias != nil {
		if a.Alpha != 1 || a.Beta != 1 || !isBias(bias, w.Type.Shape[0]) {
			return nil, false
		}
		c = bias
	}
	return []*ir.Value{cast(b, b.Value("linear", nil, x, plain(w), c), op.Result().Type.DType)}, true
}

// isBias reports whether v is a constant vector of n elements.
func isBias(v *ir.Value, n *ir.Expr) bool {
	return constant(v) != nil && v.Type.DType.IsFloat() && isDims(v.Type, n)
}

// addBiases moves the addition of a constant vector into the linear whose result nothing else uses.
func addBiases(m *ir.Module) error {
	uses := ir.CountUses(m.Entry.Body)
	return apply(m, "add", func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
		var out []*ir.Value
		eitherWay(op, func(y, bias *ir.Value) bool {
			l := is(y, "linear")
			if l == nil || l.Input("bias") != nil || uses[l.Result()] != 1 || uses[y] != 1 ||
				!isBias(bias, l.Input("weight").Type.Shape[0]) {
				return false
			}
			out = []*ir.Value{cast(b, b.Value("linear", nil, l.Input("x"), l.Input("weight"), bias),
				op.Result().Type.DType)}
			return true
		})
		return out, out != nil
	})
}

// groupLinears merges the linears of a region that have the same input and no bias. The merged operation takes the
// place of the first.
func groupLinears(m *ir.Module) error {
	return ir.Build(func() { groupRegion(m, m.Entry.Body) })
}

func groupRegion(m *ir.Module, r *ir.Region) {
	groups := map[*ir.Value][]*ir.Op{}
	for _, op := range r.Ops {
		for _, n := range op.Regions {
			groupRegion(m, n)
		}
		if canGroup(op) {
			groups[plain(op.Input("x"))] = append(groups[plain(op.Input("x"))], op)
		}
	}
	replaced := map[*ir.Value]*ir.Value{}
	var ops []*ir.Op
	b := &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
	for _, op := range r.Ops {
		if !canGroup(op) {
			ops = append(ops, op)
			continue
		}
		group := groups[plain(op.Input("x"))]
		if len(group) < 2 {
			ops = append(ops, op)
			continue
		}
		if op != group[0] {
			continue
		}
		weights := make([]*ir.Value, len(group))
		for i, g := range group {
			weights[i] = early(b, g.Input("weight"))
		}
		results := b.Op("linears", nil, op.Input("x"), weights).Results
		for i, g := range group {
			// Casts of the input may have given the members different dtypes.
			replaced[g.Result()] = cast(b, results[i], g.Result().Type.DType)
		}
	}
	r.Ops = ops
	ir.ReplaceUses(r, replaced)
}

// canGroup reports whether op is a linear without a bias whose weight can be used anywhere.
func canGroup(op *ir.Op) bool {
	if op.Def.Name != "linear" || op.Input("bias") != nil {
		return false
	}
	w := op.Input("weight")
	return w.Constant != nil || def(w, "quantized") != nil
}

// early returns a weight that can be used before the operation that joins its parts: that is done again.
func early(b *ir.Builder, w *ir.Value) *ir.Value {
	if op := def(w, "quantized"); op != nil {
		return b.Value("quantized", op.Attrs, op.Input("packed"), op.Input("scales"), op.Operand("biases"))
	}
	return w
}

// hoistWeights moves the operations that join constants to quantized weights to the beginning, where they
// stand like constants.
func hoistWeights(m *ir.Module) error {
	var joins []*ir.Op
	var take func(r *ir.Region)
	take = func(r *ir.Region) {
		r.Ops = slices.DeleteFunc(r.Ops, func(op *ir.Op) bool {
			for _, n := range op.Regions {
				take(n)
			}
			if op.Def.Name != "quantized" {
				return false
			}
			fixed := true
			op.EachArg(func(a *ir.Arg) {
				fixed = fixed && a.Value.Def == nil &&
					a.Value.Region == nil && a.Value.Param == ""
			})
			if fixed {
				joins = append(joins, op)
			}
			return fixed
		})
	}
	take(m.Entry.Body)
	m.Entry.Body.Ops = append(joins, m.Entry.Body.Ops...)
	return nil
}
