package codegen_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// TestEncodeRefuses what the wire cannot hold, or cannot hold as it stands; the error quotes the operation.
func TestEncodeRefuses(t *testing.T) {
	for _, test := range []struct{ name, body, want string }{
		{"composite", "%0 = linear(x=%x, weight=%w) : f32[2,2]\nreturn %0: f32[2,2]",
			"method f: linear has no node; it must be decomposed before it is written\n\tin %0 = linear(x=%x, weight=%w) : f32[2,2]"},
		{"quantized", "%0 = quantized(packed=@p, scales=@s) {group_size=32, bits=4} : quantized<4,32,bf16>[2,64]\nreturn %x: f32[2,2]", "quantized has no node"},
		{"result of an arm from outside",
			"%0 = if(cond=%n) : f32[2,2] {\nyield %x\n} else {\n%1 = neg(x=%x) : f32[2,2]\nyield %1\n}\nreturn %0: f32[2,2]",
			"result 0 of arm 0: is not computed there; it needs an id_copy\n\tin %0 = if(cond=%n) : f32[2,2] { … }"},
		{"constant as the result of an arm",
			"%0 = if(cond=%n) : bf16[2,2] {\n%1 = id_copy(x=@s) : bf16[2,2]\nyield %1\n} else {\nyield @s\n}\nreturn %0: bf16[2,2]",
			"result 0 of arm 1: is not computed there; it needs an id_copy"},
		{"load as the result of an arm",
			"%0 = if(cond=%n) : f32[2,2] {\n%1 = load @b() : f32[2,2]\nyield %1\n} else {\n%2 = neg(x=%x) : f32[2,2]\nyield %2\n}\nreturn %0: f32[2,2]",
			"result 0 of arm 0: is not computed there; it needs an id_copy"},
		{"int of an arm from outside", "%0 = if(cond=%n) : int(n) {\nyield %n\n} else {\nyield %n\n}\nreturn %0: int(n)", "result 0 of arm 0: is not computed there"},
		{"result of an arm twice", "%0, %1 = if(cond=%n) : f32[2,2], f32[2,2] {\n%2 = neg(x=%x) : f32[2,2]\nyield %2, %2\n} else {\n%3 = neg(x=%x) : f32[2,2]\n%4 = neg(x=%x) : f32[2,2]\nyield %3, %4\n}\nreturn %0: f32[2,2], %1: f32[2,2]",
			"result 1 of arm 0 is yielded twice"},
		{"undefined value", "%0 = undef() : f32[2,2]\n%1 = neg(x=%0) : f32[2,2]\nreturn %1: f32[2,2]",
			"undef is legal only as the result of an arm of an if"},
		{"carry that is no copy", "%0, %1 = scan(originals=[%x], carry=[%x]) {scan_axis=0} : f32[2,2], f32[2,2] {\nargs %2: f32[2], %3: f32[2,2]\n%4 = neg(x=%2) : f32[2]\n%5 = id_copy(x=%3) : f32[2,2]\nyield %4, %5\n}\nreturn %0: f32[2,2]",
			"carry 0 is not an id_copy of its own; the scan overwrites it"},
		{"one copy for two carries", "%0 = id_copy(x=%x) : f32[2,2]\n%1, %2 = scan(originals=[%x], carry=[%0, %0]) {scan_axis=0} : f32[2,2], f32[2,2] {\nargs %3: f32[2], %4: f32[2,2], %5: f32[2,2]\n%6 = id_copy(x=%4) : f32[2,2]\n%7 = id_copy(x=%5) : f32[2,2]\nyield %6, %7\n}\nreturn %1: f32[2,2]",
			"carry 0 is not an id_copy of its own"},
		{"new carry that is no copy", "%0 = id_copy(x=%x) : f32[2,2]\n%1 = scan(originals=[%x], carry=[%0]) {scan_axis=0} : f32[2,2] {\nargs %2: f32[2], %3: f32[2,2]\n%4 = neg(x=%3) : f32[2,2]\nyield %4\n}\nreturn %x: f32[2,2]",
			"the next value of carry 0 is not an id_copy of its own at the end of the body"},
		{"new carry from outside", "%0 = id_copy(x=%x) : f32[2,2]\n%1 = id_copy(x=%x) : f32[2,2]\n%2 = scan(originals=[%x], carry=[%0]) {scan_axis=0} : f32[2,2] {\nargs %3: f32[2], %4: f32[2,2]\nyield %1\n}\nreturn %x: f32[2,2]",
			"the next value of carry 0 is not an id_copy of its own at the end of the body"},
		{"carry read after its copy", "%0 = id_copy(x=%x) : f32[2,2]\n%1, %2 = scan(originals=[%x], carry=[%0]) {scan_axis=0} : f32[2,2,2], f32[2,2] {\nargs %3: f32[2], %4: f32[2,2]\n%5 = neg(x=%4) : f32[2,2]\n%6 = id_copy(x=%5) : f32[2,2]\n%7 = exp(x=%4) : f32[2,2]\nyield %7, %6\n}\nreturn %1: f32[2,2,2]",
			"the next value of carry 0 is copied into its slot before the body has read the old one"},
		{"carries that change places", "%0 = id_copy(x=%x) : f32[2,2]\n%1 = id_copy(x=%x) : f32[2,2]\n%2, %3 = scan(originals=[%x], carry=[%0, %1]) {scan_axis=0} : f32[2,2], f32[2,2] {\nargs %4: f32[2], %5: f32[2,2], %6: f32[2,2]\n%7 = id_copy(x=%6) : f32[2,2]\n%8 = id_copy(x=%5) : f32[2,2]\nyield %7, %8\n}\nreturn %x: f32[2,2]",
			"the next value of carry 0 is copied into its slot before the body has read the old one"},
		{"output of a step from outside",
			"%0 = scan(originals=[%x]) {scan_axis=0} : f32[2,2,2] {\nargs %1: f32[2]\nyield %x\n}\nreturn %0: f32[2,2,2]", "output 0: is not computed there; it needs an id_copy"},
		{"output of a step twice", "%0, %1 = scan(originals=[%x]) {scan_axis=0} : f32[2,2], f32[2,2] {\nargs %2: f32[2]\n%3 = neg(x=%2) : f32[2]\nyield %3, %3\n}\nreturn %0: f32[2,2], %1: f32[2,2]", "output 1 is yielded twice"},
		{"carry that is used afterwards",
			"%0 = id_copy(x=%x) : f32[2,2]\n%1, %2 = scan(originals=[%x], carry=[%0]) {scan_axis=0} : f32[2,2], f32[2,2] {\nargs %3: f32[2], %4: f32[2,2]\n%5 = neg(x=%3) : f32[2]\n%6 = id_copy(x=%4) : f32[2,2]\nyield %5, %6\n}\n%7 = neg(x=%0) : f32[2,2]\nreturn %7: f32[2,2]",
			"carry 0 is not an id_copy of its own; the scan overwrites it"},
		{"carry that the body reads from outside",
			"%0 = id_copy(x=%x) : f32[2,2]\n%1, %2 = scan(originals=[%x], carry=[%0]) {scan_axis=0} : f32[2,2,2], f32[2,2] {\nargs %3: f32[2], %4: f32[2,2]\n%5 = neg(x=%0) : f32[2,2]\n%6 = id_copy(x=%4) : f32[2,2]\nyield %5, %6\n}\nreturn %1: f32[2,2,2]",
			"carry 0 is not an id_copy of its own; the scan overwrites it"},
		{"wide attribute", "%0 = round(x=%x) {decimals=4294967296} : f32[2,2]\nreturn %0: f32[2,2]",
			"Decimals: 4294967296 does not fit the wire's int32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := parse(t, "module {\nsymbol n [-2147483648, 2147483647]\nconstant @p : u32[2,8]\nconstant @s : bf16[2,2]\nbuffer @b : f32[2,2]\nentry f(%x: f32[2,2], %w: f32[2,2], %n: int(n)) {\n"+test.body+"\n}\n}")
			_, err := codegen.Encode(m)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "method f: ")
		})
	}
}

// TestSizes: dims that the wire does not hold, and outputs that no memory holds.
func TestSizes(t *testing.T) {
	for _, test := range []struct{ name, params, want string }{
		{"large constant dim", "%x: f32[2147483648]", "x: dim 0 is 2147483648, the wire holds 0 to 2147483647"},
		{"unbounded", "%x: f32[s]", "input 0 (x): dim 0 of f32[s] has no upper bound, which a program needs to plan its memory"},
		{"large bound", "%x: f32[r]", "input 0 (x): dim 0 of f32[r] has no upper bound"},
		{"product", "%x: f32[2147483647,2147483647,2147483647]", "has more than"},
		{"dynamic product", "%x: f32[d,d,d]", "has more than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := parse(t, "module {\nsymbol s [1, inf]\nsymbol r [1, 2147483648]\nsymbol d [0, 2147483647]\nentry f("+
				test.params+") {\nreturn %x: "+test.params[4:]+"\n}\n}")
			_, err := codegen.Plan(codegen.File{Module: m})
			require.ErrorContains(t, err, test.want)
		})
	}
	m := parse(t, "module {\nsymbol s [0, 2147483647]\nentry f(%x: u8[1,s]) {\nreturn %x: u8[1,s]\n}\n}")
	_, err := codegen.Plan(codegen.File{Module: m})
	require.NoError(t, err)
}

// TestDynamicDims: bounds of dims, as delegate and program declare them.
func TestDynamicDims(t *testing.T) {
	m := parse(t, "module {\nsymbol s [1, 64]\nsymbol r [1, 7]\nentry f(%x: f32[s,3], %y: f32[2,r]) {\n%0 = concatenate(tensors=[%x, %x]) : f32[2*s,3]\nreturn %0: f32[2*s,3], %y: f32[2,r]\n}\n}")
	g, err := codegen.Encode(m)
	require.NoError(t, err)
	dims := func(tid int) (out [][3]int32) {
		for _, d := range g.TensorMeta[tid].Shape {
			out = append(out, [3]int32{d.Value, d.MinValue, d.MaxValue})
		}
		return out
	}
	require.Equal(t, [][3]int32{{-1, 1, 64}, {3, 0, -1}}, dims(0))
	require.Equal(t, [][3]int32{{2, 0, -1}, {-1, 1, 7}}, dims(1))
	require.Equal(t, [][3]int32{{-1, 2, 128}, {3, 0, -1}}, dims(2), "the output")
	path, _ := write(t, codegen.File{Module: m})
	method, ok := open(t, path).File.Method("f")
	require.True(t, ok)
	require.Equal(t, []int{128, 3}, method.Values[method.Outputs[0]].Tensor.Sizes)
	require.Equal(t, m.String(), lifted(t, open(t, path), "f").String())
}

// TestSlots: temporaries are few and reused, those of dead values first; outputs, buffers and inputs keep
// their own.
func TestSlots(t *testing.T) {
	m := parse(t, `module {
  buffer @b : f32[2]
  entry f(%x: f32[2]) {
    %0 = neg(x=%x) : f32[2]
    %1 = exp(x=%0) : f32[2]
    %2 = neg(x=%1) : f32[2]
    %3 = exp(x=%2) : f32[2]
    %4 = add(a=%3, b=%1) : f32[2]
    store @b(x=%4)
    %5 = load @b() : f32[2]
    %6 = neg(x=%5) : f32[2]
    return %6: f32[2]
  }
}`)
	g, err := codegen.Encode(m)
	require.NoError(t, err)
	require.EqualValues(t, []uint32{0, 1, 1, 1, 2, 0},
		[]uint32{g.NumConstantTensors, g.NumInputTensors, g.NumOutputTensors, g.NumMutableBufferTensors,
			g.NumTempTensors, g.NumValues})
	require.Equal(t, "1", g.Version)
	require.EqualValues(t, -1, g.InitChainIdx)
	var outs []uint32
	for _, in := range g.InstructionChains[0].Instructions {
		switch n := in.Op.Value.(type) {
		case *mlxgraph.NegNodeT:
			outs = append(outs, n.Out.Idx)
		case *mlxgraph.ExpNodeT:
			outs = append(outs, n.Out.Idx)
		case *mlxgraph.AddNodeT:
			outs = append(outs, n.Out.Idx)
		case *mlxgraph.IdCopyNodeT:
			outs = append(outs, n.Out.Idx)
		}
	}
	require.Equal(t, []uint32{3, 3, 4, 4, 3, 2, 1}, outs)
}

// TestSlotsAreGivenBack: a long program of short-lived values needs few slots, whatever its control flow.
func TestSlotsAreGivenBack(t *testing.T) {
	m := parse(t, "module {\nentry f(%x: f32[2,3]) {\nreturn %x: f32[2,3]\n}\n}")
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: m.Entry.Body}
		v := m.Entry.Params[0]
		for range 30 {
			n := b.Value("sym_size", nil, v)
			rows := b.If(b.Value("subtract_int", nil, n, 1), func(b *ir.Builder) []*ir.Value {
				return []*ir.Value{b.Value("neg", nil, b.Value("exp", nil, v))}
			}, func(b *ir.Builder) []*ir.Value { return []*ir.Value{b.Value("exp", nil, b.Value("neg", nil, v))} })[0]
			outputs, last := b.Scan(0, []*ir.Value{rows, v},
				[]*ir.Value{b.Value("id_copy", nil,
					b.Value("sum", &ir.ReduceAttrs{Axes: []int{0}}, v))}, func(b *ir.Builder, slices,
					carry []*ir.Value) (out, next []*ir.Value) {
					sum := b.Value("add", nil, b.Value("add", nil, slices[0], slices[1]), carry[0])
					return []*ir.Value{sum}, []*ir.Value{b.Value("id_copy", nil, sum)}
				})
			v = b.Value("add", nil, outputs[0], last[0])
		}
		m.Entry.Body.Results[0] = v
	}))
	require.NoError(t, ir.Verify(m))
	g, err := codegen.Encode(m)
	require.NoError(t, err)
	require.LessOrEqual(t, g.NumTempTensors, uint32(8))
	require.LessOrEqual(t, g.NumValues, uint32(2))
	path, _ := write(t, codegen.File{Module: m})
	require.Equal(t, m.String(), lifted(t, open(t, path), "f").String())
}

// TestEncodeIsAFunction of the module: two texts that are equal give equal graphs, whatever lies where in memory.
func TestEncodeIsAFunction(t *testing.T) {
	for seed := range uint64(20) {
		m := generate(t, seed)
		for _, p := range lowering() {
			require.NoError(t, p.Run(m, nil))
		}
		again := parse(t, m.String())
		for i, c := range m.Constants {
			again.Constants[i].Data = c.Data
		}
		_, a := write(t, codegen.File{Module: m})
		_, b := write(t, codegen.File{Module: again})
		requireSameBytes(t, a, b)
	}
}

// TestMethodValues: constant methods hold ints, bools and floats of every size.
func TestMethodValues(t *testing.T) {
	m := module(t)
	m.Metadata = []ir.Method{{Name: "get_eos_ids", Values: []any{int64(math.MinInt64), int64(math.MaxInt64)}},
		{Name: "use_x", Values: []any{true, false}},
		{Name: "rate", Values: []any{0.1, math.Inf(-1), math.MaxFloat64}}, {Name: "empty"}}
	path, _ := write(t, codegen.File{Module: m})
	p := open(t, path)
	require.Equal(t, m.Metadata, p.Metadata)
	require.Equal(t, []string{"forward"}, p.Methods())
}
