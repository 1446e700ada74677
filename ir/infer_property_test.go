package ir

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSymbolicAgreesWithConcrete applies every case of the tables to numbers in the place of its
// symbols. What a rule refuses for symbols it must refuse for all their values; where it accepts both,
// the symbolic dims must have the concrete values. Symbols of dims are never 1 in the second
// comparison: a symbolic dim counts as not 1 where that matters (broadcasting, squeeze).
func TestSymbolicAgreesWithConcrete(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	compared, refused := 0, 0
	for _, c := range allInferCases() {
		x := newTestTypes()
		symbolic, symbolicErr := x.apply(nil, c.op, c.attrs, append([]any{}, c.operands...)...)
		for range 40 {
			one := false
			x.values = map[*Symbol]int64{}
			for _, name := range []string{"B", "M", "N", "P", "S", "T", "W"} { // a fixed order, so that runs are alike
				s := x.symbols[name]
				lo, hi := max(s.Lo, -300), min(s.Hi, 300)
				x.values[s] = lo + random.Int64N(hi-lo+1)
				if name != "P" && random.IntN(4) == 0 {
					x.values[s] = min(lo+random.Int64N(3), hi)
				}
				one = one || name != "P" && x.values[s] == 1
			}
			concrete, concreteErr := x.apply(nil, c.op, c.attrs, append([]any{}, c.operands...)...)
			if symbolicErr != nil {
				if c.err != "axis must be known before the program runs, found T" &&
					c.err != "the number of chunks of 4 in a dim of T is not known" {
					require.Error(t, concreteErr, "%s%v is refused: %v; with %v it is not", c.op,
						c.operands, symbolicErr, x.values)
					refused++
				}
				continue
			}
			if concreteErr != nil || one {
				continue
			}
			require.Equal(t, len(symbolic.Results), len(concrete.Results))
			for i, r := range symbolic.Results {
				compareTypes(t, x, r.Type, concrete.Results[i].Type, c)
				compared++
			}
		}
	}
	require.Greater(t, compared, 3000)
	require.Greater(t, refused, 3000)
}

func compareTypes(t *testing.T, x testTypes, symbolic, concrete Type, c inferCase) {
	t.Helper()
	require.Equal(t, concrete.Kind, symbolic.Kind)
	require.Equal(t, concrete.DType, symbolic.DType)
	require.Equal(t, concrete.Rank(), symbolic.Rank())
	compare := func(s, e *Expr) {
		want, ok := e.Const()
		if !ok { // a fresh symbol in both
			return
		}
		lo, hi := s.Bounds()
		require.True(t, lo <= want && want <= hi, "%s%v: %s is %d, outside of [%d,%d] with %v", c.op, c.operands, s,
			want, lo, hi, x.values)
		got, err := s.Eval(func(s *Symbol) (int64, bool) { v, ok := x.values[s]; return v, ok })
		if err == nil {
			require.Equal(t, want, got, "%s%v: %s with %v", c.op, c.operands, s, x.values)
		}
	}
	if symbolic.Kind == IntKind {
		compare(symbolic.Int, concrete.Int)
	}
	for i := range symbolic.Shape {
		compare(symbolic.Shape[i], concrete.Shape[i])
	}
}

// TestInferNeverPanics applies random arguments of the right kinds to every op.
func TestInferNeverPanics(t *testing.T) {
	dims := []string{"0", "1", "2", "3", "8", "32", "64", "T", "S", "M", "T+3", "floordiv(S,T)", "min(S,M)"}
	ints := []int64{0, 1, -1, 2, 3, 4, 8, 16, 32, 64, 1 << 31, -1 << 31, math.MaxInt64, math.MinInt64}
	rapid.Check(t, func(t *rapid.T) {
		x := newTestTypes()
		tensor := func() *Value {
			typ := TensorType(rapid.SampledFrom(allDTypes()).Draw(t, "dtype"))
			for range rapid.IntRange(0, 5).Draw(t, "rank") {
				typ.Shape = append(typ.Shape, x.typ("f32[" + rapid.SampledFrom(dims).Draw(t, "dim") + "]").Shape[0])
			}
			return &Value{Type: typ}
		}
		number := func() Arg {
			if rapid.Bool().Draw(t, "register") {
				return Use(x.value("int(" + rapid.SampledFrom(append(dims, "P", "P-T", "-P")).Draw(t, "int") + ")"))
			}
			return Int(rapid.SampledFrom(ints).Draw(t, "literal"))
		}
		def := &Ops[rapid.IntRange(0, len(Ops)-1).Draw(t, "op")]
		op := &Op{Def: def, Attrs: def.NewAttrs()}
		for _, o := range def.Operands {
			n := 1
			if o.Kind.IsList() {
				n = rapid.IntRange(0, 4).Draw(t, "list")
			} else if o.Optional {
				n = rapid.IntRange(0, 1).Draw(t, "present")
			}
			var args []Arg
			for range n {
				switch o.Kind {
				case IntOperand, IntsOperand:
					args = append(args, number())
				case IntValueOperand, FloatOperand:
					args = append(args, Use(x.value("int(P)")))
				case IntOrTensorOperand:
					args = append(args, rapid.SampledFrom([]Arg{Use(x.value("int(P)")), Use(tensor())}).Draw(t,
						"position"))
				case AnyOperand:
					args = append(args, rapid.SampledFrom([]Arg{number(), Use(tensor())}).Draw(t, "index"))
				default:
					args = append(args, Use(tensor()))
				}
			}
			op.Args = append(op.Args, args)
		}
		if op.Attrs != nil {
			for _, f := range reflect.ValueOf(op.Attrs).Elem().Fields() {
				switch p := f.Addr().Interface().(type) {
				case *int:
					*p = int(rapid.SampledFrom(ints).Draw(t, "attr"))
				case *[]int:
					*p = rapid.SliceOfN(rapid.IntRange(-3, 8), 0, 5).Draw(t, "attr")
				case *[]DType:
					*p = rapid.SliceOfN(rapid.SampledFrom(allDTypes()), 0, 3).Draw(t, "attr")
				case *DType:
					*p = DType(rapid.Int8().Draw(t, "attr"))
				case *bool:
					*p = rapid.Bool().Draw(t, "attr")
				case *string:
					*p = rapid.SampledFrom([]string{"", "affine", "mxfp4", "constant"}).Draw(t, "attr")
				}
			}
		}
		if def.State != NoState {
			op.Buffer = &Buffer{"buffer", StaticType(BF16, 1, 8, 64)}
		}
		for range def.Regions {
			r := &Region{}
			for range rapid.IntRange(0, 3).Draw(t, "args") {
				r.NewArg(tensor().Type)
			}
			for range rapid.IntRange(0, 3).Draw(t, "results") {
				r.Results = append(r.Results, tensor())
			}
			op.Regions = append(op.Regions, r)
		}
		if Infer(op) != nil {
			return
		}
		for _, r := range op.Results {
			require.True(t, r.Type.DType.Valid())
			for _, d := range r.Type.Shape {
				_, hi := d.Bounds()
				require.GreaterOrEqual(t, hi, int64(0), r.Type)
			}
		}
		before := make([]Type, len(op.Results))
		for i, r := range op.Results {
			before[i] = r.Type
		}
		require.NoError(t, Infer(op))
		for i, r := range op.Results {
			require.True(t, before[i].Equal(r.Type), "%s became %s", before[i], r.Type)
		}
	})
}

// TestEveryOpHasCases: no row of the op table goes untested.
func TestEveryOpHasCases(t *testing.T) {
	seen := map[string]bool{"if": true, "scan": true, "undef": true} // infer_control_test.go
	for _, c := range allInferCases() {
		if c.err == "" {
			seen[c.op] = true
		}
	}
	// Ops that share a rule with one that has cases and differ in nothing from it.
	for _, name := range []string{"floor", "ceil", "square", "abs", "sign", "sigmoid", "tanh", "rsqrt", "sqrt", "log",
		"log2", "log10", "log1p",
		"sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh",
		"arctanh", "erf", "expm1",
		"subtract", "maximum", "minimum", "logaddexp", "less_equal", "greater", "greater_equal", "not_equal",
		"logical_or", "bitwise_xor", "triu"} {
		seen[name] = true
	}
	for i := range Ops {
		if Ops[i].State != NoState {
			continue // infer_state_test.go, fused_test.go
		}
		require.True(t, seen[Ops[i].Name], "op %s has no case", Ops[i].Name)
	}
}
