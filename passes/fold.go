package passes

import (
	"bytes"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// foldLimit is the largest constant, in bytes, that folding reads or makes.
const foldLimit = 64 << 10

// foldConstants computes operations whose arguments are small constants. An operation that rounds to a
// format below float32 is left to the runtime, which may compute in higher precision.
func foldConstants(m *ir.Module, _ *Options) error {
	var failed error
	err := ir.Build(func() {
		rewrite(m, m.Entry.Body, func(b *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
			if failed != nil || !foldable(op) {
				return nil, false
			}
			t, ok, err := fold(op)
			if err != nil {
				failed = err
			}
			if !ok || err != nil {
				return nil, false
			}
			shape := make([]int64, len(t.Shape))
			for i, d := range t.Shape {
				shape[i] = int64(d)
			}
			data := ir.Bytes(t.DType, shape, t.Encode())
			name := foldedName(m, op)
			return []*ir.Value{m.NewConstant(name, ir.StaticType(t.DType, shape...), data)}, true
		})
	})
	if err == nil {
		err = failed
	}
	return err
}

// foldable reports whether op is a pure operation on small constants with one small result.
func foldable(op *ir.Op) bool {
	if !op.Def.CanFold() || len(op.Results) != 1 || op.Result().Type.Kind != ir.TensorKind || op.Def.Name == "transpose" {
		return false
	}
	dims, static := op.Result().Type.Static()
	if !static || ir.Elements(dims)*int64(op.Result().Type.DType.Size()) > foldLimit {
		return false
	}
	constants, values := 0, 0
	op.EachArg(func(a *ir.Arg) {
		if a.Kind != ir.ValueArg {
			return
		}
		values++
		if c := a.Value.Constant; c != nil && c.Data != nil && ir.DataSize(c.Data) <= foldLimit {
			constants++
		}
	})
	return values > 0 && values == constants
}

// fold computes op and reports whether the result is the same with and without rounding.
func fold(op *ir.Op) (*eval.Tensor, bool, error) {
	var first *eval.Tensor
	for _, precision := range []eval.Precision{eval.FP32, eval.Strict} {
		c := &eval.Call{Op: op, Precision: precision, Args: make([][]eval.Value, len(op.Args))}
		for i, args := range op.Args {
			for _, a := range args {
				v := eval.Value{Int: a.Int}
				if a.Kind == ir.ValueArg {
					d := a.Value.Constant.Data
					p, err := ir.ReadData(d)
					if err != nil {
						return nil, false, err
					}
					dims := make([]int, len(d.Shape()))
					for j, n := range d.Shape() {
						dims[j] = int(n)
					}
					if v.Tensor, err = eval.Decode(d.DType(), dims, p); err != nil {
						return nil, false, err
					}
				}
				c.Args[i] = append(c.Args[i], v)
			}
		}
		out, err := eval.Run(c)
		if err != nil {
			return nil, false, err
		}
		t := out[0].Tensor
		if first == nil {
			first = t
			continue
		}
		for i, v := range t.F {
			if v != first.F[i] && (v == v || first.F[i] == first.F[i]) {
				return nil, false, nil
			}
		}
		if !bytes.Equal(first.Encode(), t.Encode()) {
			return nil, false, nil
		}
	}
	return first, true, nil
}
