package eval

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// register32 is an argument that comes from a register instead of a literal.
type register32 int64

// evaluate infers the result types of an op and runs it. Operands are tensors, lists of tensors, ints,
// int lists, floats, registers, or nil where absent; attrs nil stands for the defaults.
func evaluate(p Precision, op string, attrs any, operands ...any) ([]Value, error) {
	def := ir.LookupOp(op)
	if attrs == nil {
		attrs = def.NewAttrs()
	}
	c := &Call{Op: &ir.Op{Def: def, Attrs: attrs, Args: make([][]ir.Arg, len(def.Operands))}, Precision: p,
		Args: make([][]Value, len(def.Operands))}
	for i, o := range operands {
		add := func(a ir.Arg, v Value) { c.Op.Args[i], c.Args[i] = append(c.Op.Args[i], a), append(c.Args[i], v) }
		tensor := func(x *Tensor) { add(ir.Use(&ir.Value{Type: staticType(x)}), Value{Tensor: x}) }
		switch o := o.(type) {
		case nil:
		case *Tensor:
			tensor(o)
		case []*Tensor:
			for _, x := range o {
				tensor(x)
			}
		case int:
			add(ir.Int(int64(o)), Value{Int: int64(o)})
		case []int:
			for _, v := range o {
				add(ir.Int(int64(v)), Value{Int: int64(v)})
			}
		case float64:
			add(ir.Float(o), Value{})
		case register32:
			e := ir.Sym(&ir.Symbol{Name: "r", Lo: -1 << 31, Hi: 1<<31 - 1})
			add(ir.Use(&ir.Value{Type: ir.IntType(e)}), Value{Int: int64(o)})
		default:
			panic(o)
		}
	}
	if err := ir.Infer(c.Op); err != nil {
		return nil, err
	}
	return Run(c)
}

// must is evaluate in FP32 for an op with one tensor result.
func must(t *testing.T, op string, attrs any, operands ...any) *Tensor {
	t.Helper()
	return mustIn(t, FP32, op, attrs, operands...)
}

func mustIn(t *testing.T, p Precision, op string, attrs any, operands ...any) *Tensor {
	t.Helper()
	values, err := evaluate(p, op, attrs, operands...)
	require.NoError(t, err)
	require.Len(t, values, 1)
	return values[0].Tensor
}

// refuses checks that the type rule or the kernel answers with an error that says want.
func refuses(t *testing.T, want, op string, attrs any, operands ...any) {
	t.Helper()
	_, err := evaluate(FP32, op, attrs, operands...)
	require.ErrorContains(t, err, want)
	require.ErrorContains(t, err, op, "the error names the operation")
}

// f32 makes an f32 tensor.
func f32(shape []int, v ...float32) *Tensor { return Floats(ir.F32, shape, v) }

// list makes a tensor with one dim of an integer dtype or bool.
func list(d ir.DType, v ...int64) *Tensor { return Ints(d, []int{len(v)}, v) }

// iota32 has the elements 0, 1, 2, …
func iota32(shape ...int) *Tensor {
	x, err := NewTensor(ir.F32, shape...)
	if err != nil {
		panic(err)
	}
	for i := range x.F {
		x.F[i] = float32(i)
	}
	return x
}
