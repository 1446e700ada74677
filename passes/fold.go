package passes

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Folding holds the settings of constant folding. It computes operations with one result whose arguments are all small
// constants ([ir.OpDef.CanFold]), and replaces the result by a constant.
type Folding struct {
	// Constant returns the constant that an argument refers to, or nil.
	Constant func(*ir.Value) *ir.Constant
	// Keep reports operations that are left to the runtime although they could be folded.
	Keep func(*ir.Op) bool
	// Limit is the largest tensor that folding reads or makes: in elements, or in bytes where InBytes is set.
	Limit   int64
	InBytes bool
	// Precisions are the precisions in which an operation is computed. It is folded only if all give the same bits.
	Precisions []eval.Precision
	// Result returns the value that replaces the result of op, whose elements have been computed: t.
	Result func(b *ir.Builder, op *ir.Op, t *eval.Tensor) *ir.Value
}

// Fold folds the operations of all entries of m.
func (f *Folding) Fold(m *ir.Module) error {
	var failed error
	err := ir.Build(func() {
		rewriteEntries(m, func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
			if failed != nil || !f.folds(op) {
				return nil, false
			}
			t, err := f.compute(op)
			if t == nil || err != nil {
				failed = err
				return nil, false
			}
			return []*ir.Value{f.Result(b, op, t)}, true
		})
	})
	if err == nil {
		err = failed
	}
	return err
}

// folds reports whether op is an operation on small constants with one small result.
func (f *Folding) folds(op *ir.Op) bool {
	if !op.Def.CanFold() || len(op.Results) != 1 || !f.small(op.Result().Type) || f.Keep(op) {
		return false
	}
	values, constants := 0, 0
	op.EachArg(func(a *ir.Arg) {
		if a.Kind != ir.ValueArg {
			return
		}
		values++
		if c := f.Constant(a.Value); c != nil && c.Data != nil && f.small(c.Value.Type) {
			constants++
		}
	})
	return values > 0 && values == constants
}

func (f *Folding) small(t ir.Type) bool {
	dims, static := t.Static()
	if t.Kind != ir.TensorKind || !static {
		return false
	}
	n := ir.Elements(dims)
	if f.InBytes {
		n *= int64(t.DType.Size())
	}
	return n <= f.Limit
}

// compute returns op's result, or nil where the precisions disagree.
func (f *Folding) compute(op *ir.Op) (*eval.Tensor, error) {
	var first *eval.Tensor
	for _, precision := range f.Precisions {
		c := &eval.Call{Op: op, Precision: precision, Args: make([][]eval.Value, len(op.Args))}
		for i, args := range op.Args {
			for _, a := range args {
				v := eval.Value{Int: a.Int}
				if a.Kind == ir.ValueArg {
					t, err := eval.DecodeConstant(f.Constant(a.Value))
					if err != nil {
						return nil, err
					}
					if t.F != nil { // a cast that the constant is seen through does not round
						t.DType = a.Value.Type.DType
					}
					v.Tensor = t
				}
				c.Args[i] = append(c.Args[i], v)
			}
		}
		out, err := eval.Run(c)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = out[0].Tensor
		} else if !sameBits(first, out[0].Tensor) {
			return nil, nil
		}
	}
	return first, nil
}

// sameBits reports whether two results of an operation are equal, as they are and as they are stored.
func sameBits(a, b *eval.Tensor) bool {
	for i, v := range b.F {
		if v != a.F[i] && (v == v || a.F[i] == a.F[i]) {
			return false
		}
	}
	return bytes.Equal(a.Encode(), b.Encode())
}

// AddConstant adds a tensor as a constant of its dtype, under that name or, where it is taken, one with a number.
func AddConstant(m *ir.Module, name string, t *eval.Tensor) *ir.Value {
	base := name
	for n := 2; slices.ContainsFunc(m.Constants, func(c *ir.Constant) bool { return c.Name == name }); n++ {
		name = fmt.Sprintf("%s.%d", base, n)
	}
	shape := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		shape[i] = int64(d)
	}
	return m.NewConstant(name, ir.StaticType(t.DType, shape...), ir.Bytes(t.DType, shape, t.Encode()))
}

// foldConstants computes operations whose arguments are constants of 64 KiB at most, as is the result. An operation
// that rounds to a format below float32 is left to the runtime, which may compute in higher precision; a transposition
// too: runtimes see it beside the product that it belongs to.
func foldConstants(m *ir.Module, _ *Options) error {
	f := Folding{
		Constant:   func(v *ir.Value) *ir.Constant { return v.Constant },
		Keep:       func(op *ir.Op) bool { return op.Def.Rows == ir.PermutedRows },
		Limit:      64 << 10,
		InBytes:    true,
		Precisions: []eval.Precision{eval.FP32, eval.Strict},
		Result: func(_ *ir.Builder, op *ir.Op, t *eval.Tensor) *ir.Value {
			return AddConstant(m, foldedName(op), t)
		},
	}
	return f.Fold(m)
}

// foldedName names a constant that folding makes after the first constant that went in.
func foldedName(op *ir.Op) string {
	name := ""
	op.EachArg(func(a *ir.Arg) {
		if a.Value != nil && name == "" {
			name = a.Value.Constant.Name + "." + op.Def.Name
		}
	})
	return name
}
