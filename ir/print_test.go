package ir

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// texts are the modules of testdata in their canonical text.
func texts(t testing.TB) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.ir")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	out := map[string]string{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		out[filepath.Base(path)] = string(b)
	}
	return out
}

func parse(t testing.TB, text string) *Module {
	t.Helper()
	m, err := Parse(text)
	require.NoError(t, err)
	return m
}

// TestTextIsCanonical: what is parsed prints as the text it was parsed from. The files of testdata hold
// every construct of the text form: quoted names, floats that have no digits, state, regions, derived
// constants, constant methods.
func TestTextIsCanonical(t *testing.T) {
	for name, text := range texts(t) {
		t.Run(name, func(t *testing.T) { require.Equal(t, text, parse(t, text).String()) })
	}
}

// TestNamesAreGivenAnew: names of values and symbols, spacing and comments do not count.
func TestNamesAreGivenAnew(t *testing.T) {
	const loose = `
module { // a comment
	symbol length[1,64] symbol unused[0,1]
	entry forward ( %x : f32 [ 2*length+0 , length ] , %7:f32[length]) {
		%sum = add(b=%7,a=%x) : f32[length*2,length]
		return %sum : f32[length+length, length]
	}
}`
	const canonical = `module {
  symbol s0 [1, 64]
  entry forward(%x: f32[2*s0,s0], %7: f32[s0]) {
    %0 = add(a=%x, b=%7) : f32[2*s0,s0]
    return %0: f32[2*s0,s0]
  }
}
`
	require.Equal(t, canonical, parse(t, loose).String())
}

// TestValuesAvoidNamesOfParameters: a parameter may have a number for a name, in files of others.
func TestValuesAvoidNamesOfParameters(t *testing.T) {
	m := &Module{Entry: &Func{Name: "forward", Body: &Region{}}}
	require.NoError(t, Build(func() {
		b := &Builder{Module: m, Region: m.Entry.Body}
		x := m.Entry.NewParam("0", StaticType(F32, 2))
		y := m.Entry.NewParam("2", StaticType(F32, 2))
		sum := b.Value("neg", nil, b.Value("exp", nil, b.Value("add", nil, x, y)))
		m.Entry.Body.Results, m.Entry.Outputs = []*Value{sum}, []Type{sum.Type}
	}))
	text := m.String()
	require.Contains(t, text, "%1 = add(a=%0, b=%2)")
	require.Contains(t, text, "%3 = exp(x=%1)")
	require.Equal(t, text, parse(t, text).String())
}

// TestNames: any string can be a name.
func TestNames(t *testing.T) {
	for _, name := range []string{"a", "layers.0.weight", "", "0", "-1", "yield", "none", "inf", "with space",
		"quo\"te", "back\\slash",
		"line\nbreak", "\x00\xff\xfe", "日本", "{}", "%0", "@x", "^y", "//", "s0", "1e5"} {
		m := &Module{Entry: &Func{Name: name, Body: &Region{}},
			Metadata: []Method{{Name: name, Values: []any{int64(1)}}}}
		c := m.NewConstant(name, StaticType(F32), nil)
		buffer := m.NewBuffer(name, StaticType(F32))
		require.NoError(t, Build(func() {
			b := &Builder{Module: m, Region: m.Entry.Body}
			p := m.Entry.NewParam(name, StaticType(F32))
			b.BufferOp("store", buffer, nil, b.Value("add", nil, b.Value("add", nil, c, p), b.Load(buffer)))
			m.Entry.Body.Results, m.Entry.Outputs = []*Value{p}, []Type{p.Type}
		}))
		require.NoError(t, Verify(m))
		again := parse(t, m.String())
		require.Equal(t, m.String(), again.String())
		for _, got := range []string{again.Entry.Name, again.Metadata[0].Name, again.Constants[0].Name,
			again.Buffers[0].Name, again.Entry.Params[0].Param} {
			require.Equal(t, name, got)
		}
	}
}

// TestAttributesRoundTrip gives every attribute of every operation other values than its defaults, prints
// and reads them.
func TestAttributesRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	count := 0
	for i := range Ops {
		def := &Ops[i]
		if def.Attrs == nil {
			continue
		}
		for range 20 {
			op := &Op{Def: def, Attrs: def.NewAttrs()}
			fields := reflect.ValueOf(op.Attrs).Elem()
			for f := range fields.NumField() {
				if random.IntN(4) > 0 {
					randomize(random, fields.Field(f))
					count++
				}
			}
			text := FormatAttrs(op)
			again := readAttrs(t, def, text)
			require.Equal(t, text, FormatAttrs(&Op{Def: def, Attrs: again}))
			requireEqualAttrs(t, fields, reflect.ValueOf(again).Elem(), def.Name+text)
		}
		require.Empty(t, FormatAttrs(&Op{Def: def, Attrs: def.NewAttrs()}), "defaults of %s are not written", def.Name)
	}
	require.Greater(t, count, 1000)
}

// randomize sets a field to some value of its type, extremes among them.
func randomize(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.SetZero(); r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomize(r, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			randomize(r, v.Index(i))
		}
	case reflect.String:
		v.SetString([]string{"", "affine", "a \"b\"\n\\", "\xff", "// no comment", "日本", "{x=1}"}[r.IntN(7)])
	case reflect.Float32:
		v.SetFloat(float64([]float32{0, float32(math.Copysign(0, -1)), 1, -1e-6, 1e20, math.MaxFloat32,
			math.SmallestNonzeroFloat32,
			float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0.1,
			math.Float32frombits(r.Uint32() &^ (1 << 23))}[r.IntN(12)]))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	default:
		if v.Type() == reflect.TypeFor[DType]() {
			v.SetInt(int64([]DType{F32, BF16, F16, I64, I32, U32, U8, Bool}[r.IntN(8)]))
			return
		}
		if v.Type() == reflect.TypeFor[QuantMode]() {
			v.SetUint(uint64(r.IntN(len(quantModes))))
			return
		}
		v.SetInt([]int64{0, 1, -1, math.MaxInt64, math.MinInt64, r.Int64()}[r.IntN(6)])
	}
}

// readAttrs reads attributes as they stand after an operation.
func readAttrs(t *testing.T, def *OpDef, text string) any {
	t.Helper()
	op := &Op{Def: def, Attrs: def.NewAttrs()}
	p := &parser{module: &Module{}}
	var err error
	p.tokens, err = lex(text)
	require.NoError(t, err)
	if p.accept("{") {
		p.list("}", func() { p.parseAttr(op) })
	}
	require.Equal(t, tokenEnd, p.peek().kind)
	return op.Attrs
}

// requireEqualAttrs compares attributes bit for bit: a NaN equals itself, an empty list an absent one.
func requireEqualAttrs(t *testing.T, want, got reflect.Value, context string) {
	t.Helper()
	switch want.Kind() {
	case reflect.Struct:
		for i := range want.NumField() {
			requireEqualAttrs(t, want.Field(i), got.Field(i), context)
		}
	case reflect.Pointer:
		require.Equal(t, want.IsNil(), got.IsNil(), context)
		if !want.IsNil() {
			requireEqualAttrs(t, want.Elem(), got.Elem(), context)
		}
	case reflect.Slice:
		require.Equal(t, want.Len(), got.Len(), context)
		for i := range want.Len() {
			requireEqualAttrs(t, want.Index(i), got.Index(i), context)
		}
	case reflect.Float32:
		a, b := float32(want.Float()), float32(got.Float())
		require.True(t, math.Float32bits(a) == math.Float32bits(b) || a != a && b != b, "%s: %v, %v", context, a, b)
	default:
		require.Equal(t, want.Interface(), got.Interface(), context)
	}
}

func TestDescribe(t *testing.T) {
	m := parse(t, texts(t)["control.ir"])
	ops := m.Entry.Body.Ops
	require.Equal(t, "%0 = if(cond=%n) : f32[2,s2,3] { … }", Describe(m, ops[0]))
	require.Equal(t, "%5 = id_copy(x=@start) : f32[3]", Describe(m, ops[1]))
	require.Equal(t, "%3 = exp(x=%1) : f32[2,s0-1,3]", Describe(m, ops[0].Regions[0].Ops[1].Regions[0].Ops[0]))
	require.Equal(t, "if(cond=%n) { … }", Describe(m, ops[3]))
}

// TestLiterals: every literal reads back as what it was.
func TestLiterals(t *testing.T) {
	for _, a := range []Arg{Int(0), Int(-1), Int(math.MaxInt64), Int(math.MinInt64), Float(0),
		Float(math.Copysign(0, -1)), Float(1), Float(-1e300),
		Float(0.1), Float(math.SmallestNonzeroFloat64), Float(math.MaxFloat64), Float(math.Inf(1)), Float(math.Inf(-1)),
		Float(math.NaN()), Float(1 << 53)} {
		text := newPrinter(&Module{}).arg(a)
		p := &parser{module: &Module{}}
		var err error
		p.tokens, err = lex(text)
		require.NoError(t, err)
		got := p.arg()
		require.Equal(t, a.Kind, got.Kind, text)
		require.Equal(t, a.Int, got.Int, text)
		require.True(t, math.Float64bits(a.Float) == math.Float64bits(got.Float) ||
			a.Float != a.Float && got.Float != got.Float, text)
	}
}

// TestPrintReportsTheWriter: an error of the writer is the caller's.
func TestPrintReportsTheWriter(t *testing.T) {
	require.EqualError(t, Print(brokenWriter{}, parse(t, texts(t)["init.ir"])), "no space left")
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("no space left") }

// TestSymbolsInOneExpressionKeepTheirOrder: two symbols that appear first in one expression are not told
// apart by where they lie in memory.
func TestSymbolsInOneExpressionKeepTheirOrder(t *testing.T) {
	const text = `module {
  symbol s0 [1, 4]
  symbol s1 [2, 9]
  entry forward(%x: f32[max(s0,s1),s0+2*s1]) {
    return %x: f32[max(s0,s1),s0+2*s1]
  }
}
`
	require.Equal(t, text, parse(t, text).String())
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		pool := make([]Symbol, 2)
		a, b := &pool[order[0]], &pool[order[1]]
		*a, *b = Symbol{"s9", 1, 4}, Symbol{"s10", 2, 9}
		f := &Func{Name: "forward", Body: &Region{}}
		x := f.NewParam("x", TensorType(F32, Sym(a).Max(Sym(b)), Sym(a).Add(Sym(b)).Add(Sym(b))))
		f.Body.Results, f.Outputs = []*Value{x}, []Type{x.Type}
		require.Equal(t, text, (&Module{Entry: f}).String())
	}
}
