package lift

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// TestSlotsAreRenamed: a slot is written again and again; what was read before stays what it was.
func TestSlotsAreRenamed(t *testing.T) {
	// 0: input, 1: output, 2 and 3: temporaries
	requireLifts(t, graph{inputs: 1, outputs: 1, chains: [][]any{{
		neg(2, 0), exp(3, 2), neg(2, 3), add(2, 2, 3), exp(3, 0), add(1, 2, 3), exp(3, 1)}}},
		`module {
  entry forward(%input0: f32[2]) {
    %0 = neg(x=%input0) : f32[2]
    %1 = exp(x=%0) : f32[2]
    %2 = neg(x=%1) : f32[2]
    %3 = add(a=%2, b=%1) : f32[2]
    %4 = exp(x=%input0) : f32[2]
    %5 = add(a=%3, b=%4) : f32[2]
    %6 = exp(x=%5) : f32[2]
    return %5: f32[2]
  }
}
`)
}

// TestInputsMayBeWritten: an input's slot is a slot like any other.
func TestInputsMayBeWritten(t *testing.T) {
	requireLifts(t, graph{inputs: 1, chains: [][]any{{neg(0, 0), exp(0, 0)}},
		outputMap: []*mlxgraph.SlotVariantT{tensorSlot(0), tensorSlot(0)}},
		`module {
  entry forward(%input0: f32[2]) {
    %0 = neg(x=%input0) : f32[2]
    %1 = exp(x=%0) : f32[2]
    return %1: f32[2], %1: f32[2]
  }
}
`)
}

// TestIntegerSlotIsOverwritten: ExecuTorch's exporter writes a register again between two Ifs that it means
// to take the same way; the second reads what is there (research, part 1, item 7).
func TestIntegerSlotIsOverwritten(t *testing.T) {
	requireLifts(t, graph{inputs: 1, outputs: 1, intInputs: 1, types: map[uint32]ir.Type{0: f32(2, 3), 1: f32(2, 3)},
		chains: [][]any{{
			addInt(1, reg(0), lit(-1)),
			branch(reg(1), 1, 2),
			&mlxgraph.SymSizeNodeT{A: tid(0), Dim: 1, Out: vid(1)},
			branch(reg(1), 3, 4),
		}, {neg(2, 0)}, {exp(2, 0)}, {neg(1, 2)}, {exp(1, 2)}}},
		`module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%input0: f32[2,3], %int0: int(s0)) {
    %0 = add_int(a=%int0, b=-1) : int(s0-1)
    %1 = if(cond=%0) : f32[2,3] {
      %2 = neg(x=%input0) : f32[2,3]
      yield %2
    } else {
      %3 = exp(x=%input0) : f32[2,3]
      yield %3
    }
    %4 = sym_size(a=%input0) {dim=1} : int(3)
    %5 = if(cond=%4) : f32[2,3] {
      %6 = neg(x=%1) : f32[2,3]
      yield %6
    } else {
      %7 = exp(x=%1) : f32[2,3]
      yield %7
    }
    return %5: f32[2,3]
  }
}
`)
}

// TestNames: slots are called what the file calls them, by the last of several names; parameters never alike.
func TestNames(t *testing.T) {
	g := graph{constants: 1, inputs: 3, buffers: 1, intInputs: 2, outputMap: []*mlxgraph.SlotVariantT{},
		chains: [][]any{{}},
		names: map[slotID]string{{false, 1}: "tokens", {false, 2}: "tokens", {false, 4}: "layers.0.cache",
			{true, 0}: "tokens", {false, 0}: "weight"}}
	requireLifts(t, g, `module {
  symbol s0 [-2147483648, 2147483647]
  symbol s1 [-2147483648, 2147483647]
  constant @weight : f32[2]
  buffer @layers.0.cache : f32[2]
  entry forward(%tokens: f32[2], %tokens.2: f32[2], %input3: f32[2], %tokens.3: int(s0), %int1: int(s1)) {
    return
  }
}
`)
}

// TestInputsOfTheMethod: the method's inputs may come in another order than the delegate takes them.
func TestInputsOfTheMethod(t *testing.T) {
	m := graph{inputs: 3, outputs: 1, chains: [][]any{{add(3, 0, 2)}}, types: map[uint32]ir.Type{1: f32(7)}}.method()
	m.Inputs = []int{2, 0, 1}
	module, err := Lift(m)
	require.NoError(t, err)
	require.Contains(t, module.String(),
		"entry forward(%input1: f32[7], %input2: f32[2], %input0: f32[2]) {\n    %0 = add(a=%input0, b=%input2)")
}

// TestOutputs: declared dtypes and dims, inputs that the method returns, results in another order and twice.
func TestOutputs(t *testing.T) {
	dynamic := ir.TensorType(ir.F32, ir.Sym(&ir.Symbol{Lo: 2, Hi: 8}), ir.Const(2))
	m := graph{inputs: 1, outputs: 2, types: map[uint32]ir.Type{0: dynamic, 1: dynamic, 2: dynamic},
		chains: [][]any{{neg(1, 0), exp(2, 0)}}}.method()
	m.Outputs = []Output{{Result: 1, DType: ir.BF16}, {Result: -1, Input: 0, DType: ir.F32}, {Result: 0, DType: ir.F32},
		{Result: 1, DType: ir.F32}}
	module, err := Lift(m)
	require.NoError(t, err)
	require.Equal(t, `module {
  symbol s0 [1, 8]
  entry forward(%input0: f32[s0,2]) {
    %0 = neg(x=%input0) : f32[s0,2]
    %1 = exp(x=%input0) : f32[s0,2]
    return %1: bf16[s0,2], %input0: f32[s0,2], %0: f32[s0,2], %1: f32[s0,2]
  }
}
`, module.String(), "the least length is 1: exporters write 2 where 1 is legal")
}

// TestConstantsHaveTheTypeOfTheirSlot: the container knows the bytes alone.
func TestConstantsHaveTheTypeOfTheirSlot(t *testing.T) {
	m := graph{constants: 1, inputs: 1, outputs: 1, types: map[uint32]ir.Type{0: ir.StaticType(ir.BF16, 2)},
		chains: [][]any{{add(2, 1, 0)}}}.method()
	m.Constant = func(name string) (ir.Data, error) {
		require.Equal(t, "c0", name)
		return ir.Bytes(ir.U8, []int64{4}, []byte{1, 2, 3, 4}), nil
	}
	module, err := Lift(m)
	require.NoError(t, err)
	d := module.Constants[0].Data
	require.Equal(t, ir.BF16, d.DType())
	require.Equal(t, []int64{2}, d.Shape())
	p, err := ir.ReadData(d)
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3, 4}, p)
}

// TestInit: the init chain gives constants' slots other values, also of other types, and its temporaries
// end with it.
func TestInit(t *testing.T) {
	// 0: scales, 1: a dummy, 2: -8, 3: input, 4: output, 5: temporary
	requireLifts(t, graph{constants: 3, inputs: 1, outputs: 1, init: 1,
		types: map[uint32]ir.Type{0: f32(4, 2), 1: f32(), 2: f32(), 3: f32(4, 2), 4: f32(4, 2)},
		chains: [][]any{{add(4, 3, 1), add(4, 4, 2)}, {&mlxgraph.MultiplyNodeT{A: tid(0), B: tid(2), Out: tid(5)},
			neg(1, 5), neg(1, 1), exp(5, 0)}}},
		`module {
  constant @c0 : f32[4,2]
  constant @c1 : f32[]
  constant @c2 : f32[]
  init {
    %0 = multiply(a=@c0, b=@c2) : f32[4,2]
    %1 = neg(x=%0) : f32[4,2]
    %2 = neg(x=%1) : f32[4,2]
    %3 = exp(x=@c0) : f32[4,2]
    derive ^c1 = %2
  }
  entry forward(%input3: f32[4,2]) {
    %0 = add(a=%input3, b=^c1) : f32[4,2]
    %1 = add(a=%0, b=@c2) : f32[4,2]
    return %1: f32[4,2]
  }
}
`)
}

// TestBuffers: any node may write a buffer's slot; two write a part of it in place. A buffer that is read
// after a write is loaded again.
func TestBuffers(t *testing.T) {
	// 0: input, 1: indices, 2: output, 3: buffer, 4: buffer, 5, 6: temporaries
	requireLifts(t, graph{inputs: 2, outputs: 1, buffers: 2,
		types: map[uint32]ir.Type{0: f32(2, 1), 1: ir.StaticType(ir.I64, 2), 2: f32(4, 1), 3: f32(4, 1), 4: f32(4, 1)},
		chains: [][]any{{
			add(5, 3, 4),
			add(5, 5, 3),
			&mlxgraph.SliceUpdateNodeT{Dst: tid(3), Update: tid(0), Out: tid(3), Axis: lit(0), Start: lit(1),
				Stop: lit(3), Step: 1},
			add(5, 5, 3),
			idCopy(6, 3),
			&mlxgraph.IndexCopyNodeT{Dst: tid(3), Update: tid(0), Indices: tid(1), Out: tid(3)},
			add(5, 5, 6),
			idCopy(4, 5),
			neg(3, 4),
			&mlxgraph.SliceUpdateNodeT{Dst: tid(3), Update: tid(0), Out: tid(2), Axis: lit(0), Start: lit(0),
				Stop: lit(2), Step: 1},
			&mlxgraph.SliceUpdateNodeT{Dst: tid(2), Update: tid(0), Out: tid(4), Axis: lit(0), Start: lit(0),
				Stop: lit(2), Step: 1},
		}}},
		`module {
  buffer @buffer3 : f32[4,1]
  buffer @buffer4 : f32[4,1]
  entry forward(%input0: f32[2,1], %input1: i64[2]) {
    %0 = load @buffer3() : f32[4,1]
    %1 = load @buffer4() : f32[4,1]
    %2 = add(a=%0, b=%1) : f32[4,1]
    %3 = add(a=%2, b=%0) : f32[4,1]
    buffer_slice_update @buffer3(update=%input0, axis=0, start=1, stop=3)
    %4 = load @buffer3() : f32[4,1]
    %5 = add(a=%3, b=%4) : f32[4,1]
    %6 = id_copy(x=%4) : f32[4,1]
    buffer_index_copy @buffer3(update=%input0, indices=%input1)
    %7 = add(a=%5, b=%6) : f32[4,1]
    store @buffer4(x=%7)
    %8 = load @buffer4() : f32[4,1]
    %9 = neg(x=%8) : f32[4,1]
    store @buffer3(x=%9)
    %10 = load @buffer3() : f32[4,1]
    %11 = slice_update(dst=%10, update=%input0, axis=0, start=0, stop=2) : f32[4,1]
    %12 = slice_update(dst=%11, update=%input0, axis=0, start=0, stop=2) : f32[4,1]
    store @buffer4(x=%12)
    return %11: f32[4,1]
  }
}
`)
}

// TestLiftErrors: what a graph may say that means nothing, with the place.
func TestLiftErrors(t *testing.T) {
	full1 := graph{inputs: 1, outputs: 1, chains: [][]any{{neg(1, 0)}}}
	for _, test := range []struct {
		name string
		g    graph
		edit func(*Method)
		want string
	}{
		{"unset slot", graph{inputs: 1, outputs: 1, chains: [][]any{{neg(1, 2)}}}, nil,
			"method forward: chain 0, instruction 0 (NegNode): x: tensor slot 2 is read before it is written"},
		{"unset output", graph{outputs: 1, chains: [][]any{{}}}, nil,
			"method forward: output 0: tensor slot 0 is read before it is written"},
		{"unset register", graph{outputs: 1, chains: [][]any{{full(0, 1, reg(3))}}}, nil,
			"chain 0, instruction 0 (FullNode): shape: integer slot 3 is read before it is written"},
		{"unset output register", graph{chains: [][]any{{}}, outputMap: []*mlxgraph.SlotVariantT{intSlot(1)}}, nil,
			"output 0: integer slot 1 is read before it is written"},
		{"unset condition", graph{chains: [][]any{{branch(reg(0), 1, 1)}, {}}}, nil,
			"chain 0, instruction 0 (IfNode): cond: integer slot 0 is read before it is written"},
		{"type", graph{inputs: 1, outputs: 1, types: map[uint32]ir.Type{0: f32(3)},
			chains: [][]any{{full(2, 0, lit(2)), add(1, 0, 2)}}}, nil, "chain 0, instruction 1 (AddNode): add: "},
		{"in a chain of a chain", graph{inputs: 1, chains: [][]any{{branch(lit(1), 1, 2)}, {neg(1, 5)}, {}}}, nil,
			"chain 0, instruction 0 (IfNode): chain 1, instruction 0 (NegNode): x: tensor slot 5 is read before it is written"},
		{"constant is written", graph{constants: 1, inputs: 1, chains: [][]any{{neg(0, 1)}}}, nil,
			`chain 0, instruction 0 (NegNode): writes constant "c0"; only the init chain may`},
		{"init reads a buffer", graph{constants: 1, buffers: 1, init: 1, chains: [][]any{{}, {neg(0, 1)}}}, nil,
			`init chain: chain 1, instruction 0 (NegNode): x: the init chain reads mutable buffer "buffer1"`},
		{"init writes a buffer", graph{constants: 1, buffers: 1, init: 1, chains: [][]any{{}, {neg(1, 0)}}}, nil,
			`init chain: chain 1, instruction 0 (NegNode): the init chain writes mutable buffer "buffer1"`},
		{"init copies to a buffer", graph{constants: 1, buffers: 1, init: 1, chains: [][]any{{}, {idCopy(1, 0)}}}, nil,
			`the init chain writes mutable buffer "buffer1"`},
		{"init reads an input", graph{constants: 1, inputs: 1, init: 1, chains: [][]any{{}, {neg(0, 1)}}}, nil,
			"tensor slot 1 is read before it is written"},
		{"temporary of init", graph{constants: 1, outputs: 1, init: 1, chains: [][]any{{neg(1, 2)}, {neg(2, 0)}}}, nil,
			"chain 0, instruction 0 (NegNode): x: tensor slot 2 is read before it is written"},
		{"register of init", graph{constants: 1, outputs: 1, init: 1, types: map[uint32]ir.Type{0: f32(1)},
			chains: [][]any{{full(1, 0, reg(0))}, {item(0, 0)}}}, nil, "integer slot 0 is read before it is written"},
		{"unnamed constant", graph{constants: 1, chains: [][]any{{}}}, func(m *Method) { m.Graph.NamedSlots = nil },
			"constant slot 0 has no name, so its bytes are nowhere"},
		{"constant without bytes", graph{constants: 1, chains: [][]any{{}}}, func(m *Method) {
			m.Constant = func(string) (ir.Data, error) { return nil, errors.New("it is not there") }
		}, `constant "c0": it is not there`},
		{"dynamic constant", graph{constants: 1, chains: [][]any{{}}},
			func(m *Method) { m.Graph.TensorMeta[0].Shape[0].Value = -1 },
			`constant "c0": dim 0 of tensor slot 0 is dynamic, want a constant`},
		{"constant without metadata", graph{constants: 1, chains: [][]any{{}}},
			func(m *Method) { m.Graph.TensorMeta = nil }, `constant "c0": tensor slot 0 has no metadata`},
		{"constants of one name", graph{constants: 2, chains: [][]any{{}}, names: map[slotID]string{{false, 1}: "c0"}},
			nil, "constant @c0 stands twice"},
		{"scalar type", graph{buffers: 1, chains: [][]any{{}}},
			func(m *Method) { m.Graph.TensorMeta[0].ScalarType = 99 },
			"mutable buffer: tensor slot 0 has scalar type 99, which the MLX delegate does not know"},
		{"dynamic buffer", graph{buffers: 1, chains: [][]any{{}}},
			func(m *Method) { m.Graph.TensorMeta[0].Shape[0].Value = -1 },
			"mutable buffer: dim 0 of tensor slot 0 is dynamic, want a constant"},
		{"store of another type", graph{inputs: 1, buffers: 1, types: map[uint32]ir.Type{1: f32(3)},
			chains: [][]any{{neg(1, 0)}}}, nil,
			"chain 0, instruction 0 (NegNode): store: x must be f32[3], found f32[2]"},
		{"float input", full1, func(m *Method) { m.Graph.InputMap[0].SlotType = mlxgraph.SlotTypeFloatValueSlot },
			"input 0 is a float or bool slot, which ExecuTorch's MLX runtime does not support"},
		{"input that is not used", full1, func(m *Method) { m.InputCount = 2 }, "input 1 is not used by the delegate"},
		{"absent element", graph{inputs: 1, outputs: 1,
			chains: [][]any{{&mlxgraph.ConcatenateNodeT{Tensors: []*mlxgraph.TidT{nil}, Out: tid(1)}}}}, nil,
			"tensors: element 0 is absent"},
		{"kind of an index", graph{inputs: 1, outputs: 1,
			chains: [][]any{{&mlxgraph.TakeNodeT{X: tid(0), Out: tid(1), Index: &mlxgraph.IntOrVidOrTidT{Kind: 3}}}}},
			nil, "index: kind 3, want 0 (literal), 1 (integer slot) or 2 (tensor slot)"},
		{"no slot", graph{inputs: 1, outputs: 1,
			chains: [][]any{{&mlxgraph.TakeNodeT{X: tid(0), Out: tid(1), Index: &mlxgraph.IntOrVidOrTidT{Kind: 2}}}}},
			nil, "index: names no slot"},
		{"results", graph{inputs: 1, outputs: 1,
			chains: [][]any{{&mlxgraph.SplitNodeT{X: tid(0), Sizes: []*mlxgraph.IntOrVidT{lit(1), lit(1)},
				Outs: tids(1)}}}}, nil, "writes 1 slots, computes 2 results"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := test.g.method()
			if test.edit != nil {
				test.edit(&m)
			}
			module, err := Lift(m)
			require.Nil(t, module)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "method forward: ")
		})
	}
}
