package ir

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuilder builds a module with every kind of operand, regions and state, and compares its text.
func TestBuilder(t *testing.T) {
	m := &Module{Entry: &Func{Name: "forward", Body: &Region{}}}
	f := m.Entry
	require.NoError(t, Build(func() {
		b := &Builder{Module: m, Region: f.Body}
		x := f.NewParam("x", TensorType(F32, Const(2), Sym(&Symbol{Lo: 1, Hi: 8})))
		c, cache := m.NewConstant("c", StaticType(F32, 2), nil), m.NewBuffer("cache", StaticType(F32, 2, 8))
		n := b.Value("sym_size", &SymSizeAttrs{Dim: 1}, x)
		b.Value("reshape", nil, x, []any{n, 2, int64(1), Use(n)}[:3])
		b.Value("reshape", nil, x, []Arg{Int(2), Use(n)})
		b.Value("reshape", nil, x, []int64{-1})
		b.Value("full", nil, []*Value{n, n}, math.Inf(1))
		b.Value("concatenate", nil, []*Value{c, c})
		b.Value("rms_norm", &NormAttrs{Eps: 1e-6}, x, nil)
		b.Value("rms_norm", nil, x, (*Value)(nil))
		b.Value("layer_norm", nil, c, nil, c)
		b.BufferOp("buffer_slice_update", cache, nil, x, 1, 0, n)
		chosen := b.If(n, func(b *Builder) []*Value {
			return []*Value{b.Load(cache)}
		}, func(b *Builder) []*Value {
			return []*Value{b.Value("neg", nil, b.Load(cache))}
		})
		outputs, last := b.Scan(-1, []*Value{x, chosen[0]}, []*Value{c},
			func(b *Builder, slices, carry []*Value) (outputs, next []*Value) {
				sum := b.Value("add", nil, slices[0], slices[1])
				return []*Value{sum, carry[0]}, []*Value{b.Value("add", nil, sum, carry[0])}
			})
		require.Len(t, outputs, 2)
		require.Len(t, last, 1)
		f.Body.Results = append(outputs, last...)
		for _, v := range f.Body.Results {
			f.Outputs = append(f.Outputs, v.Type)
		}
	}))
	require.NoError(t, Verify(m))
	require.Equal(t, `module {
  symbol s0 [1, 8]
  constant @c : f32[2]
  buffer @cache : f32[2,8]
  entry forward(%x: f32[2,s0]) {
    %0 = sym_size(a=%x) {dim=1} : int(s0)
    %1 = reshape(x=%x, shape=[%0, 2, 1]) : f32[s0,2,1]
    %2 = reshape(x=%x, shape=[2, %0]) : f32[2,s0]
    %3 = reshape(x=%x, shape=[-1]) : f32[2*s0]
    %4 = full(shape=[%0, %0], v=inf) : u8[s0,s0]
    %5 = concatenate(tensors=[@c, @c]) : f32[4]
    %6 = rms_norm(x=%x) {eps=1e-06} : f32[2,s0]
    %7 = rms_norm(x=%x) : f32[2,s0]
    %8 = layer_norm(x=@c, bias=@c) : f32[2]
    buffer_slice_update @cache(update=%x, axis=1, start=0, stop=%0)
    %9 = if(cond=%0) : f32[2,8] {
      %10 = load @cache() : f32[2,8]
      yield %10
    } else {
      %11 = load @cache() : f32[2,8]
      %12 = neg(x=%11) : f32[2,8]
      yield %12
    }
    %13, %14, %15 = scan(originals=[%x, %9], carry=[@c]) {scan_axis=-1} : f32[2,s0], f32[2,s0], f32[2] {
      args %16: f32[2], %17: f32[2], %18: f32[2]
      %19 = add(a=%16, b=%17) : f32[2]
      %20 = add(a=%19, b=%18) : f32[2]
      yield %19, %18, %20
    }
    return %13: f32[2,s0], %14: f32[2,s0], %15: f32[2]
  }
}
`, m.String())
}

// TestBuilderInsert: what a pass inserts goes where it says.
func TestBuilderInsert(t *testing.T) {
	var ops []*Op
	b := &Builder{Insert: func(op *Op) { ops = append(ops, op) }}
	require.NoError(t, Build(func() { b.Value("neg", nil, &Value{Type: StaticType(F32, 2)}) }))
	require.Len(t, ops, 1)
	require.Equal(t, "neg", ops[0].Def.Name)
	require.Same(t, ops[0], ops[0].Result().Def)
}

// TestBuilderErrors: a graph that does not type ends as an error of Build, with the operation's name.
func TestBuilderErrors(t *testing.T) {
	x := &Value{Type: StaticType(F32, 2)}
	n := &Value{Type: IntType(Const(1))}
	for _, test := range []struct {
		name string
		f    func(*Builder)
		want string
	}{
		{"unknown op", func(b *Builder) { b.Value("negate", nil, x) }, `no op is named "negate"`},
		{"too many operands", func(b *Builder) { b.Value("neg", nil, x, x) }, `neg: 2 operands, it has 1`},
		{"too few operands", func(b *Builder) { b.Value("add", nil, x) }, `add: operand b is missing`},
		{"several for one", func(b *Builder) { b.Value("neg", nil, []*Value{x, x}) },
			`neg: operand x has 2 arguments, want one`},
		{"Go type", func(b *Builder) { b.Value("neg", nil, "x") }, `an operand of Go type string`},
		{"Go type in a list", func(b *Builder) { b.Value("reshape", nil, x, []any{1, uint8(2)}) },
			`an operand of Go type uint8`},
		{"int for a tensor", func(b *Builder) { b.Value("neg", nil, n) },
			`neg: operand x is a value of type int(1), want tensor`},
		{"tensor for an int", func(b *Builder) { b.Value("add_int", nil, x, 1) },
			`add_int: operand a is a value of type f32[2], want int`},
		{"float for an int", func(b *Builder) { b.Value("add_int", nil, 1.5, 1) },
			`add_int: operand a is the literal 1.5, want int`},
		{"int for a float", func(b *Builder) { b.Value("full", nil, []int64{1}, 1) },
			`full: operand v is the literal 1, want float`},
		{"type rule", func(b *Builder) { b.Value("transpose", &TransposeAttrs{Perm: []int{1}}, x) }, `transpose: `},
		{"in an arm", func(b *Builder) {
			b.If(n, func(b *Builder) []*Value { b.Fail("no token %d", 7); return nil },
				func(*Builder) []*Value { return nil })
		}, `no token 7`},
		{"arms", func(b *Builder) {
			b.If(n, func(*Builder) []*Value { return []*Value{x} }, func(*Builder) []*Value { return nil })
		}, `if: the arms must have as many results, found 1 and 0`},
		{"scan axis", func(b *Builder) {
			b.Scan(1, []*Value{x}, nil, func(*Builder, []*Value, []*Value) (o, n []*Value) { return nil, nil })
		}, `scan: axis 1 is out of range for f32[2]`},
		{"carry of another type", func(b *Builder) {
			b.Scan(0, []*Value{x}, []*Value{x}, func(_ *Builder, s, c []*Value) (o, n []*Value) { return nil, s })
		}, `scan: result 0 of the region must be f32[2], found f32[]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := Build(func() { test.f(&Builder{Module: &Module{}, Region: &Region{}}) })
			require.ErrorContains(t, err, test.want)
		})
	}
	cause := errors.New("cause")
	require.ErrorIs(t, BuildError{cause}, cause)
	require.PanicsWithValue(t, "a mistake", func() { _ = Build(func() { panic("a mistake") }) })
}

func TestOp(t *testing.T) {
	m := parse(t, texts(t)["attributes.ir"])
	slice := m.Entry.Body.Ops[4]
	require.Equal(t, "slice", slice.Def.Name)
	require.Same(t, m.Entry.Params[0], slice.Input("x"))
	require.Nil(t, slice.Input("start"), "a literal is no value")
	stop, ok := slice.Arg("stop")
	require.True(t, ok)
	require.Equal(t, Int(math.MaxInt64), stop)
	_, ok = m.Entry.Body.Ops[0].Arg("shape")
	require.True(t, ok)
	require.PanicsWithValue(t, `ir: op slice has no operand "y"`, func() { slice.Operand("y") })
	count := 0
	slice.EachArg(func(a *Arg) { count++ })
	require.Equal(t, 4, count)
}

// TestOpTable: names and nodes lead to their rows, and attributes start with the defaults of their row.
func TestOpTable(t *testing.T) {
	nodes := map[string]bool{}
	for i := range Ops {
		d := &Ops[i]
		require.Same(t, d, LookupOp(d.Name))
		require.NotNil(t, d.Infer, d.Name)
		if d.Node != "" && !nodes[d.Node] {
			require.Same(t, d, OpOfNode(d.Node))
			nodes[d.Node] = true
		}
		for _, o := range d.Operands {
			require.NotEmpty(t, o.Kind.String())
		}
		if d.Attrs == nil {
			require.Nil(t, d.NewAttrs())
			continue
		}
		require.NotSame(t, d.NewAttrs(), d.NewAttrs())
	}
	require.Len(t, nodes, 134, "every node of the delegate has an operation (requirement D3)")
	require.Nil(t, LookupOp("Add"))
	require.Nil(t, OpOfNode("add"))
	attrs := LookupOp("slice").NewAttrs().(*StepAttrs)
	attrs.Step = 7
	require.Equal(t, 1, LookupOp("slice").NewAttrs().(*StepAttrs).Step, "attributes are copies of the defaults")
}

func TestWalk(t *testing.T) {
	var names []string
	parse(t, texts(t)["control.ir"]).Entry.Body.Walk(func(op *Op) { names = append(names, op.Def.Name) })
	require.Equal(t, []string{"if", "slice", "if", "exp", "undef", "id_copy", "scan", "add", "multiply", "if"}, names)
}
