package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

var dtypes = []ir.DType{ir.Bool, ir.U8, ir.I8, ir.U16, ir.I16, ir.U32, ir.I32, ir.U64, ir.I64, ir.F16,
	ir.BF16, ir.F32, ir.F64}

// plainOps are the operations whose kernels work on plain arguments; the others have tests of their own.
var plainOps = map[string]bool{}

func init() {
	for _, name := range []string{
		"noop", "id_copy", "item_int", "expand_dims", "tile", "take_along_axis", "take", "add",
		"add_int", "subtract_int",
		"multiply_int", "floor_divide_int", "sym_size", "multiply", "divide", "subtract", "gelu",
		"arange", "silu", "sigmoid",
		"tanh", "squeeze", "split", "rsqrt", "maximum", "minimum", "log", "softmax", "broadcast_to",
		"pad", "where", "reshape",
		"transpose", "as_strided", "contiguous", "gather", "slice", "astype", "concatenate",
		"full", "full_like", "argmax",
		"slice_update", "index_copy", "less", "less_equal", "greater", "greater_equal", "equal",
		"not_equal", "logical_not",
		"logical_and", "logical_or", "tri", "tril", "triu", "floor", "ceil", "square", "exp", "sin",
		"cos", "tan", "arcsin",
		"arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh", "log2", "log10", "log1p",
		"erf", "expm1", "round",
		"reciprocal", "sqrt", "abs", "neg", "atan2", "logaddexp", "floor_divide", "power",
		"logsumexp", "sum", "mean", "var",
		"std", "prod", "max", "min", "argmin", "median", "mod_int", "remainder", "clip", "cumsum",
		"stack", "sign", "any",
		"all", "repeat", "sort", "argsort", "partition", "argpartition", "scatter_add", "bitwise_invert", "roll",
		"bitwise_and", "bitwise_or", "bitwise_xor", "random_bits",
	} {
		plainOps[name] = true
	}
}

// source makes random arguments, among them many that do not fit together.
type source struct{ *rand.Rand }

func (s source) dtype() ir.DType { return dtypes[s.IntN(len(dtypes))] }

func (s source) shape() []int {
	shape := make([]int, s.IntN(4))
	for i := range shape {
		shape[i] = []int{0, 1, 1, 2, 2, 3, 4}[s.IntN(7)]
	}
	return shape
}

// tensor has shape like with some dims changed to 1 at times.
func (s source) tensor(d ir.DType, like []int) *Tensor {
	shape := append([]int(nil), like...)
	for i := range shape {
		if s.IntN(6) == 0 {
			shape[i] = 1
		}
	}
	if s.IntN(12) == 0 {
		shape = s.shape()
	}
	x, err := NewTensor(d, shape...)
	if err != nil {
		panic(err)
	}
	nan := float32(math.NaN())
	inf := float32(math.Inf(1))
	for i := range x.F {
		x.F[i] = round(d, []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -2.5, 3.75, 1e-3, 300, -1e9, 3e38,
			inf, -inf, nan, float32(s.NormFloat64())}[s.IntN(15)])
	}
	small := s.IntN(2) == 0 // indices that fit
	for i := range x.I {
		x.I[i] = wrap(d, []int64{0, 1, 1, -1, 2, -2, 3, 100, -100, math.MaxInt64, math.MinInt64,
			math.MaxInt32}[s.IntN(12)])
		if small {
			x.I[i] = wrap(d, int64(s.IntN(3)))
		}
	}
	return x
}

func (s source) int(extreme bool) int64 {
	if extreme && s.IntN(8) == 0 {
		return []int64{math.MaxInt32, math.MaxInt64, math.MinInt64, math.MinInt32}[s.IntN(4)]
	}
	return int64(s.IntN(9) - 3)
}

// attrs fills an attribute struct with numbers that are mostly in range.
func (s source) attrs(a any) {
	v := reflect.ValueOf(a).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); p := f.Addr().Interface().(type) {
		case *int:
			*p = s.IntN(6) - 2
		case *bool:
			*p = s.IntN(2) == 0
		case *float32:
			*p = float32(s.NormFloat64())
		case *string:
			*p = []string{"tanh", "none", "constant", "edge", "reflect"}[s.IntN(5)]
		case *ir.DType:
			*p = s.dtype()
		case **ir.DType:
			if d := s.dtype(); s.IntN(2) == 0 {
				*p = &d
			}
		case *[]int:
			*p = make([]int, s.IntN(4))
			for k := range *p {
				(*p)[k] = s.IntN(5) - 2
			}
		default:
			panic(f.Type().String())
		}
	}
}

// call makes a call of op with random arguments; the type rules may refuse it.
func (s source) call(def *ir.OpDef, p Precision) *Call {
	c := &Call{Op: &ir.Op{Def: def, Attrs: def.NewAttrs(), Args: make([][]ir.Arg, len(def.Operands))},
		Precision: p, Args: make([][]Value, len(def.Operands)), Bits: func(n int) []uint32 { return make([]uint32, n) }}
	if c.Op.Attrs != nil {
		s.attrs(c.Op.Attrs)
	}
	like, d := s.shape(), s.dtype()
	for i, o := range def.Operands {
		n := 1
		switch {
		case o.Kind.IsList():
			n = []int{0, 1, 2, 3, len(like), len(like), len(like), 2 * len(like)}[s.IntN(8)]
		case o.Optional && s.IntN(2) == 0:
			continue
		}
		for range n {
			kind := o.Kind
			if kind == ir.AnyOperand {
				kind = []ir.OperandKind{ir.IntOperand, ir.TensorOperand}[s.IntN(2)]
			}
			arg, value := ir.Arg{}, Value{}
			switch kind {
			case ir.TensorOperand, ir.TensorsOperand:
				if s.IntN(3) == 0 {
					d = s.dtype()
				}
				if o.Name == "indices" || o.Name == "index" {
					d = []ir.DType{ir.I64, ir.I64, ir.U8, s.dtype()}[s.IntN(4)]
				}
				value.Tensor = s.tensor(d, like)
				arg = ir.Use(&ir.Value{Type: staticType(value.Tensor)})
			case ir.FloatOperand:
				arg = ir.Float([]float64{0, 1.5, -3, 1e300, math.NaN(), math.Inf(-1)}[s.IntN(6)])
			default:
				value.Int = s.int(def.Name != "arange")
				arg = ir.Int(value.Int)
				if kind == ir.IntValueOperand || s.IntN(3) == 0 {
					value.Int = clampInt32(value.Int)
					arg = ir.Use(&ir.Value{Type: ir.IntType(ir.Const(value.Int))})
				}
			}
			c.Op.Args[i], c.Args[i] = append(c.Op.Args[i], arg), append(c.Args[i], value)
		}
	}
	return c
}

// Whatever the arguments are, a kernel gives results of the type that the type rule derives, or an error.
func TestKernelsOnRandomArguments(t *testing.T) {
	s := source{rand.New(rand.NewPCG(1, 2))}
	for _, def := range ir.Ops {
		if !plainOps[def.Name] {
			continue
		}
		ran := 0
		for range 400 {
			c := s.call(&def, Precision(s.IntN(3)))
			before := describeArgs(c)
			refused := ir.Infer(c.Op)
			if refused != nil {
				// The shapes of a run may differ from what the type rule saw: the kernel must cope on its own.
				c.Op.Results = []*ir.Value{{Type: ir.Type{DType: s.dtype()}}}
			}
			results, err := Run(c)
			describe := func() string { return fmt.Sprintf("%s %+v %v", def.Name, c.Op.Attrs, describeArgs(c)) }
			require.Equal(t, before, describeArgs(c), "%s wrote to its arguments", def.Name)
			if err != nil || refused != nil {
				continue
			}
			ran++
			require.Len(t, results, len(c.Op.Results), describe())
			for i, r := range results {
				want := c.Op.Results[i].Type
				if want.Kind == ir.IntKind {
					require.Equal(t, r.Int, int64(int32(r.Int)), describe())
					continue
				}
				requireValid(t, want, r.Tensor, c.Precision, describe)
			}
		}
		require.Greater(t, ran, 1, "%s: hardly any call ran", def.Name)
	}
}

func describeArgs(c *Call) string {
	out := ""
	for i, o := range c.Op.Def.Operands {
		out += fmt.Sprintf(" %s=", o.Name)
		for _, v := range c.Args[i] {
			if v.Tensor != nil {
				out += fmt.Sprintf("%s%v %v%v ", v.Tensor.DType, v.Tensor.Shape, v.Tensor.F, v.Tensor.I)
			} else {
				out += fmt.Sprintf("%d ", v.Int)
			}
		}
	}
	return out
}

// requireValid checks dtype, shape and that every element is one of the dtype.
func requireValid(t *testing.T, want ir.Type, got *Tensor, p Precision, describe func() string) {
	t.Helper()
	require.Equal(t, want.DType, got.DType, describe())
	dims, ok := want.Static()
	require.True(t, ok, describe())
	require.Equal(t, fmt.Sprint(dims), fmt.Sprint(got.Shape), describe())
	n, err := elements(got.Shape)
	require.NoError(t, err)
	if want.DType.IsFloat() {
		require.Len(t, got.F, n, describe())
		require.Nil(t, got.I)
	} else {
		require.Len(t, got.I, n, describe())
		require.Nil(t, got.F)
	}
	for _, v := range got.I {
		require.Equal(t, wrap(want.DType, v), v, describe())
	}
	for _, v := range got.F {
		if p == Strict && v == v {
			require.Equal(t, round(want.DType, v), v, describe())
		}
	}
}
