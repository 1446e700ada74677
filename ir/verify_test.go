package ir

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// verifiable is a module that the tests break: state, control flow, a derived constant.
const verifiable = `module {
  symbol s0 [1, 8]
  symbol s1 [-2147483648, 2147483647]
  symbol s2 [-2147483648, 2147483647]
  constant @c : f32[2]
  constant @cell : f32[]
  buffer @b : f32[2]
  init {
    %0 = neg(x=@c) : f32[2]
    derive ^cell = %0
  }
  entry forward(%x: f32[s0,2], %i: i32[1], %n: int(s1)) {
    %0 = item_int(x=%i) : int(s2)
    %1 = load @b() : f32[2]
    %2 = if(cond=%0) : f32[2] {
      %3 = add(a=%1, b=^cell) : f32[2]
      yield %3
    } else {
      yield @c
    }
    store @b(x=%2)
    %4, %5 = scan(originals=[%x], carry=[%2]) {scan_axis=0} : f32[s0,2], f32[2] {
      args %6: f32[2], %7: f32[2]
      %8 = add(a=%6, b=%7) : f32[2]
      yield %8, %8
    }
    return %4: f32[s0,2], %0: int(s2), %2: bf16[2]
  }
}
`

func TestVerify(t *testing.T) {
	require.Equal(t, verifiable, parse(t, verifiable).String())
	op := func(m *Module, i int) *Op { return m.Entry.Body.Ops[i] }
	for _, test := range []struct {
		name  string
		spoil func(m *Module)
		want  string
	}{
		{"constant twice", func(m *Module) { m.NewConstant("c", StaticType(F32), nil) }, `constant @c stands twice`},
		{"constant with a symbolic dim", func(m *Module) { m.NewConstant("d", m.Entry.Params[0].Type, nil) },
			`constant @d has type f32[s0,2], want a tensor with constant dims`},
		{"constant that is an int", func(m *Module) { m.NewConstant("d", IntType(Const(1)), nil) },
			`constant @d has type int(1), want a tensor with constant dims`},
		{"data of another dtype", func(m *Module) { m.Constants[0].Data = Bytes(BF16, []int64{2}, make([]byte, 4)) },
			`constant @c has type f32[2], its data is bf16[2]`},
		{"data of another shape", func(m *Module) { m.Constants[0].Data = Float32s([]int64{1, 2}, 1, 2) },
			`constant @c has type f32[2], its data is f32[1 2]`},
		{"buffer twice", func(m *Module) { m.NewBuffer("b", StaticType(F32)) }, `buffer @b stands twice`},
		{"buffer with a symbolic dim", func(m *Module) { m.NewBuffer("d", m.Entry.Params[0].Type) },
			`buffer @d has type f32[s0,2], want a tensor with constant dims`},
		{"quantized buffer", func(m *Module) {
			m.NewBuffer("d", Type{Kind: QuantizedKind, DType: F32, WeightForm: WeightForm{Bits: 4, Group: 32}})
		}, `buffer @d has type quantized<4,32,f32>[], want a tensor with constant dims`},
		{"init with state", func(m *Module) {
			(&Builder{Module: m, Region: m.Init}).Load(m.Buffers[0])
		}, `init: buffer @b is used; buffers start as zeros and belong to the entry`},
		{"init with a value of the entry", func(m *Module) { m.Init.Ops[0].Args[0][0].Value = m.Entry.Params[0] },
			"init: a value is used where it is not defined\n\tin %0 = neg(x=%x) : f32[2]"},
		{"derived from nothing", func(m *Module) { m.Derived[0].From = m.Entry.Params[0] },
			`derive ^cell: its value is not defined in init`},
		{"derived without init", func(m *Module) { m.Init = nil }, `derive ^cell: its value is not defined in init`},
		{"cell of no constant", func(m *Module) { m.Derived[0].Cell = &Constant{Name: "lost", Value: &Value{}} },
			`derive ^lost: its cell is not a constant of the module`},
		{"derived twice", func(m *Module) { m.Derived = append(m.Derived, m.Derived[0]) }, `^cell is derived twice`},
		{"derived type", func(m *Module) { m.Derived[0].Value.Type = StaticType(F32, 3) },
			`^cell has type f32[3], init gives it f32[2]`},
		{"no entry", func(m *Module) { m.Entry = nil }, `the module has no entry`},
		{"parameter twice", func(m *Module) { m.Entry.NewParam("x", StaticType(F32)) },
			`forward: parameter %x stands twice`},
		{"quantized parameter", func(m *Module) {
			m.Entry.NewParam("w", Type{Kind: QuantizedKind, DType: F32, WeightForm: WeightForm{Bits: 4, Group: 32}})
		}, `forward: parameter %w has type quantized<4,32,f32>[], want a tensor or an int`},
		{"value of init in the entry", func(m *Module) {
			op(m,
				2).Regions[0].Ops[0].Args[0][0].Value = m.Derived[0].From
		}, `a value is used where it is not defined`},
		{"value before its definition", func(m *Module) { m.Entry.Body.Ops = append(m.Entry.Body.Ops[1:], op(m, 0)) },
			"forward: a value is used where it is not defined\n\tin %1 = if(cond=%8) : f32[2] { … }"},
		{"value defined twice", func(m *Module) { m.Entry.Body.Ops = slices.Insert(m.Entry.Body.Ops, 3, op(m, 2)) },
			"forward: a value is defined twice\n\tin %2 = if(cond=%0) : f32[2] { … }"},
		{"argument defined twice", func(m *Module) { r := op(m, 4).Regions[0]; r.Args[1] = r.Args[0] },
			`a value is defined twice`},
		{"value of an arm outside of it", func(m *Module) { m.Entry.Body.Results[2] = op(m, 2).Regions[0].Results[0] },
			`forward: result 2: a value is used where it is not defined`},
		{"value of one arm in the other",
			func(m *Module) { op(m, 2).Regions[1].Results[0] = op(m, 2).Regions[0].Results[0] },
			`result 0: a value is used where it is not defined`},
		{"argument outside of its region", func(m *Module) { m.Entry.Body.Results[2] = op(m, 4).Regions[0].Args[0] },
			`forward: result 2: a value is used where it is not defined`},
		{"no value", func(m *Module) { m.Entry.Body.Results[2] = nil },
			`forward: result 2: a value is used where it is not defined`},
		{"missing operand", func(m *Module) { op(m, 3).Args[0] = nil }, `store: operand x is missing`},
		{"too many arguments", func(m *Module) { op(m, 3).Args[0] = append(op(m, 3).Args[0], op(m, 3).Args[0]...) },
			`store: operand x has 2 arguments, want one`},
		{"operand kind", func(m *Module) { op(m, 3).Args[0][0] = Int(1) },
			`store: operand x is the literal 1, want tensor`},
		{"absent value", func(m *Module) { op(m, 3).Args[0][0].Value = nil },
			`store: operand x is nothing, want tensor`},
		{"no buffer", func(m *Module) { op(m, 1).Buffer = nil }, `load: names no buffer`},
		{"buffer of another module", func(m *Module) { op(m, 1).Buffer = &Buffer{"b", StaticType(F32, 2)} },
			`buffer @b is not one of the module`},
		{"buffer of a pure operation", func(m *Module) { op(m, 0).Buffer = m.Buffers[0] },
			`item_int: works on no buffer, but names @b`},
		{"regions", func(m *Module) { op(m, 2).Regions = op(m, 2).Regions[:1] }, `if: has 1 regions, want 2`},
		{"results", func(m *Module) { op(m, 0).Results = append(op(m, 0).Results, &Value{}) },
			`item_int: has 2 results, want 1`},
		{"results of an if", func(m *Module) {
			op(m, 2).Results = append(op(m, 2).Results,
				&Value{Type: StaticType(F32)})
		}, `has 2 results, its arguments make it 1`},
		{"result type", func(m *Module) { op(m, 2).Result().Type = StaticType(F32, 3) },
			`result 0 has type f32[3], its arguments make it f32[2]`},
		{"argument type of a scan", func(m *Module) { op(m, 4).Regions[0].Args[1].Type = StaticType(BF16, 2) },
			`argument 1 of the region must be f32[2], found bf16[2]`},
		{"symbol twice", func(m *Module) { op(m, 0).Results[0].Type = IntType(m.Entry.Params[0].Type.Shape[0]) },
			`result 0 has type int(s0), its arguments make it int(?)`},
		{"symbol of a parameter", func(m *Module) { op(m, 0).Results[0].Type = m.Entry.Params[2].Type },
			"its symbol is not new\n\tin %0 = item_int(x=%i) : int(s1)"},
		{"outputs", func(m *Module) { m.Entry.Outputs = m.Entry.Outputs[:2] },
			`forward: 3 results, 2 declared outputs`},
		{"output kind", func(m *Module) { m.Entry.Outputs[1] = StaticType(I64) },
			`forward: output 1: declared as i64[], the program computes int(s2)`},
		{"output rank", func(m *Module) { m.Entry.Outputs[2] = StaticType(F32, 1, 2) },
			`forward: output 2: declared as f32[1,2], the program computes f32[2]`},
		{"output dim", func(m *Module) { m.Entry.Outputs[2] = StaticType(F32, 3) },
			`forward: output 2: declared as f32[3], the program computes f32[2]`},
		{"output dim out of bounds", func(m *Module) { m.Entry.Outputs[0] = StaticType(F32, 9, 2) },
			`forward: output 0: declared as f32[9,2], the program computes f32[s0,2]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := parse(t, verifiable)
			require.NoError(t, Verify(m))
			test.spoil(m)
			require.ErrorContains(t, Verify(m), test.want)
		})
	}
}

// TestVerifyLoads: the value of a load is good until something writes its buffer, here or in a region.
func TestVerifyLoads(t *testing.T) {
	const stale = "is used after a later write of the buffer; copy it with id_copy first"
	for _, test := range []struct{ name, body, want string }{
		{"use before the write", "%0 = load @b() : f32[2]\n%1 = neg(x=%0) : f32[2]\nstore @b(x=%x)\nreturn %1: f32[2]",
			""},
		{"used by the write itself", "%0 = load @b() : f32[2]\nstore @b(x=%0)\nreturn %x: f32[2]", ""},
		{"use after the write", "%0 = load @b() : f32[2]\nstore @b(x=%x)\nreturn %0: f32[2]", stale},
		{"a write of another buffer", "%0 = load @b() : f32[2]\nstore @a(x=%x)\nreturn %0: f32[2]", ""},
		{"a copy", "%0 = load @b() : f32[2]\n%1 = id_copy(x=%0) : f32[2]\nstore @b(x=%x)\nreturn %1: f32[2]", ""},
		{"a second load", "%0 = load @b() : f32[2]\nstore @b(x=%x)\n%1 = load @b() : f32[2]\nreturn %1: f32[2]", ""},
		{"slice update", "%0 = load @b() : f32[2]\nbuffer_slice_update @b(update=%x, axis=0, start=0, stop=2)\nreturn %0: f32[2]", stale},
		{"index copy", "%0 = load @b() : f32[2]\nbuffer_index_copy @b(update=%x, indices=%i)\nreturn %0: f32[2]",
			stale},
		{"a write in an arm", "%0 = load @b() : f32[2]\nif(cond=%n) {\nstore @b(x=%x)\nyield\n} else {\nyield\n}\nreturn %0: f32[2]", stale},
		{"the other arm", "%0 = load @b() : f32[2]\n%1 = if(cond=%n) : f32[2] {\nstore @b(x=%x)\nyield %x\n} else {\n%2 = neg(x=%0) : f32[2]\nyield %2\n}\nreturn %1: f32[2]", ""},
		{"later in the arm", "%0 = load @b() : f32[2]\n%1 = if(cond=%n) : f32[2] {\nstore @b(x=%x)\n%2 = neg(x=%0) : f32[2]\nyield %2\n} else {\nyield %x\n}\nreturn %1: f32[2]", stale},
		{"result of an arm", "%0 = load @b() : f32[2]\n%1 = if(cond=%n) : f32[2] {\nstore @b(x=%x)\nyield %0\n} else {\nyield %x\n}\nreturn %1: f32[2]", stale},
		{"a nested write", "%0 = load @b() : f32[2]\nif(cond=%n) {\nif(cond=%n) {\nyield\n} else {\nstore @b(x=%x)\nyield\n}\nyield\n} else {\nyield\n}\nreturn %0: f32[2]", stale},
		{"loads of both arms", "%0 = if(cond=%n) : f32[2] {\n%1 = load @b() : f32[2]\nyield %1\n} else {\nstore @b(x=%x)\n%2 = load @b() : f32[2]\nyield %2\n}\nreturn %0: f32[2]", ""},
		{"a step reads what the one before it wrote",
			"%0 = load @b() : f32[2]\n%1 = scan(originals=[%x]) {scan_axis=0} : f32[2] {\nargs %2: f32[]\n%3 = sum(x=%0) : f32[]\nstore @b(x=%x)\nyield %3\n}\nreturn %1: f32[2]", stale},
		{"a step loads for itself", "%0 = scan(originals=[%x]) {scan_axis=0} : f32[2] {\nargs %1: f32[]\n%2 = load @b() : f32[2]\n%3 = sum(x=%2) : f32[]\nstore @b(x=%x)\nyield %3\n}\nreturn %0: f32[2]", ""},
		{"a scan that writes nothing", "%0 = load @b() : f32[2]\n%1 = scan(originals=[%x]) {scan_axis=0} : f32[2] {\nargs %2: f32[]\n%3 = sum(x=%0) : f32[]\nyield %3\n}\nreturn %1: f32[2]", ""},
		{"after a scan that writes", "%0 = load @b() : f32[2]\n%1 = scan(originals=[%x]) {scan_axis=0} : f32[2] {\nargs %2: f32[]\nstore @b(x=%x)\nyield %2\n}\nreturn %0: f32[2]", stale},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("module {\nsymbol n [-2147483648, 2147483647]\nbuffer @a : f32[2]\nbuffer @b : f32[2]\nentry f(%x: f32[2], %i: i64[2], %n: int(n)) {\n" + test.body + "\n}\n}")
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "the loaded value of buffer @b "+test.want)
		})
	}
}
