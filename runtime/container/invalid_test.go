package container

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
	"github.com/etc-ml/etc/schema/program"
)

// requireInvalid checks an error of a file's content: what it says, and that it came from a check and not
// from a panic.
func requireInvalid(t *testing.T, err error, want string) {
	t.Helper()
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, want)
	require.ErrorContains(t, err, "test.pte: ")
	require.NotContains(t, err.Error(), panicked)
}

func TestInvalidHeader(t *testing.T) {
	good := newTestFile().bytes(t)
	header, err := schema.ReadExtendedHeader(good)
	require.NoError(t, err)
	size := uint64(len(good))
	set := func(at int, value uint64) []byte {
		out := slices.Clone(good)
		binary.LittleEndian.PutUint64(out[at:], value)
		return out
	}
	replace := func(at int, text string) []byte {
		out := slices.Clone(good)
		copy(out[at:], text)
		return out
	}
	for want, data := range map[string][]byte{
		"63 bytes, a .pte file has at least 64":                         good[:63],
		"offset 4: Program: file identifier \"ET13\"":                   replace(4, "ET13"),
		"offset 8: extended header: extended header of 20 bytes":        set(12, 20|header.ProgramSize<<32),
		"the file has 100: it may be truncated":                         good[:100],
		"bytes of segments at":                                          good[:size-1],
		"offset 8: extended header: program of":                         set(16, size+1),
		"program of 18446744073709551615 bytes":                         set(16, math.MaxUint64),
		"segments begin at 16, within the program":                      set(24, 16),
		"bytes of segments at 18446744073709551615":                     set(24, math.MaxUint64),
		"18446744073709551615 bytes of segments":                        set(32, math.MaxUint64),
		"segments[1]: ":                                                 set(32, 16),
		"bytes of segments at offset 0":                                 set(24, 0),
		"3 segments, but no extended header that says where they begin": replace(8, "eh01"),
	} {
		_, err := OpenBytes("test.pte", data)
		requireInvalid(t, err, want)
	}
}

// TestInvalidProgram changes one thing of a valid program.
func TestInvalidProgram(t *testing.T) {
	forward := func(f *testFile) *program.ExecutionPlanT { return f.program.ExecutionPlan[0] }
	x := func(f *testFile) *program.TensorT { return forward(f).Values[0].Val.Value.(*program.TensorT) }
	instruction := func(kind program.InstructionArguments, value any) *program.InstructionT {
		return &program.InstructionT{InstrArgs: &program.InstructionArgumentsT{Type: kind, Value: value}}
	}
	add := func(f *testFile, in *program.InstructionT) {
		forward(f).Chains[0].Instructions = append(forward(f).Chains[0].Instructions, in)
	}
	list := func(f *testFile, v *program.EValueT) { forward(f).Values = append(forward(f).Values, v) }
	for want, change := range map[string]func(*testFile){
		"execution_plan: the program has no methods": func(
			f *testFile) {
			f.program.ExecutionPlan = nil
		},
		"execution_plan[0]: name is missing": func(
			f *testFile) {
			forward(f).Name = ""
		},
		`method "forward" has no chain`: func(
			f *testFile) {
			forward(f).Chains = nil
		},
		`execution_plan[0].inputs[1]: value 4, method "forward" has 4 values`: func(
			f *testFile) {
			forward(f).Inputs[1] = 4
		},
		`execution_plan[0].outputs[0]: value -1, method "forward" has 4 values`: func(
			f *testFile) {
			forward(f).Outputs[0] = -1
		},
		`execution_plan[0].chains[0].instructions[0].args[2]: value 9`: func(
			f *testFile) {
			forward(f).Chains[0].Instructions[0] = call(0, 0, 1, 9)
		},
		`execution_plan[0].chains[0].instructions[0]: delegate 1, method "forward" has 1`: func(
			f *testFile) {
			forward(f).Chains[0].Instructions[0] = call(1)
		},
		`execution_plan[0].chains[0].instructions[0]: delegate -1`: func(
			f *testFile) {
			forward(f).Chains[0].Instructions[0] = call(-1)
		},
		`execution_plan[0].chains[0].instructions[1]: operator 0, method "forward" has 0`: func(f *testFile) {
			add(f,
				instruction(program.InstructionArgumentsKernelCall, &program.KernelCallT{}))
		},
		`execution_plan[0].chains[0].instructions[1]: an instruction without arguments`: func(f *testFile) {
			add(f,
				&program.InstructionT{})
		},
		"execution_plan[0].delegates[0]: id is missing": func(
			f *testFile) {
			forward(f).Delegates[0].Id = ""
		},
		"execution_plan[0].delegates[0]: processed is missing": func(
			f *testFile) {
			forward(f).Delegates[0].Processed = nil
		},
		"execution_plan[0].delegates[0].processed: segment 3, the program has 3": func(
			f *testFile) {
			forward(f).Delegates[0].Processed.Index = 3
		},
		"processed: entry 1 of backend_delegate_data, the program has 0": func(
			f *testFile) {
			forward(f).Delegates[0].Processed.Location = program.DataLocationINLINE
		},
		"processed: DataLocation(2), expected INLINE or SEGMENT": func(
			f *testFile) {
			forward(f).Delegates[0].Processed.Location = 2
		},
		"named_data[1]: key is missing": func(
			f *testFile) {
			f.program.NamedData[1].Key = ""
		},
		`named_data[0]: key "w" is segment 3, the program has 3`: func(
			f *testFile) {
			f.program.NamedData[0].SegmentIndex = 3
		},
		"execution_plan[0].values[0].scalar_type: ScalarType(8) is no scalar type": func(
			f *testFile) {
			x(f).ScalarType = 8
		},
		"execution_plan[0].values[0].storage_offset: 1, only 0": func(
			f *testFile) {
			x(f).StorageOffset = 1
		},
		"execution_plan[0].values[0].shape_dynamism: DYNAMIC_UNBOUND": func(
			f *testFile) {
			x(f).ShapeDynamism = program.TensorShapeDynamismDYNAMIC_UNBOUND
		},
		"execution_plan[0].values[0].sizes[1]: size -1": func(
			f *testFile) {
			x(f).Sizes[1] = -1
		},
		"execution_plan[0].values[0].sizes: 17 dimensions": func(
			f *testFile) {
			x(f).Sizes = make([]int32, 17)
		},
		"execution_plan[0].values[0].sizes: [2147483647 2147483647 2147483647] elements": func(f *testFile) {
			*x(f) = *tensor(6, math.MaxInt32, math.MaxInt32, math.MaxInt32).Val.Value.(*program.TensorT)
		},
		"execution_plan[0].values[0].dim_order: [0 0], expected a permutation of 2 dimensions": func(
			f *testFile) {
			x(f).DimOrder[1] = 0
		},
		"execution_plan[0].values[0].dim_order: [0 255], expected a permutation of 2 dimensions": func(
			f *testFile) {
			x(f).DimOrder[1] = 255
		},
		"execution_plan[0].values[0].dim_order: [0], expected a permutation of 2 dimensions": func(
			f *testFile) {
			x(f).DimOrder = []byte{0}
		},
		"execution_plan[0].values[4].items[1]: value 5, the method has 5 values": func(f *testFile) {
			list(f, val(program.KernelTypesIntList, &program.IntListT{Items: []int64{1, 5}}))
		},
		"execution_plan[0].values[4].items[0]: value -1": func(f *testFile) {
			list(f, val(program.KernelTypesTensorList, &program.TensorListT{Items: []int32{-1}}))
		},
		"execution_plan[0].values[4].items[1]: value -2": func(f *testFile) {
			list(f, val(program.KernelTypesOptionalTensorList, &program.OptionalTensorListT{Items: []int32{-1, -2}}))
		},
	} {
		f := newTestFile()
		change(f)
		_, err := OpenBytes("test.pte", f.bytes(t))
		requireInvalid(t, err, want)
	}
}

// TestOtherInstructions: methods with more than delegate calls open, and say so.
func TestOtherInstructions(t *testing.T) {
	f := newTestFile()
	plan := f.program.ExecutionPlan[0]
	plan.Operators = []*program.OperatorT{{Name: "aten::add", Overload: "out"}, {Name: "executorch_prim::et_view"}}
	for _, in := range []program.InstructionArgumentsT{
		{Type: program.InstructionArgumentsKernelCall, Value: &program.KernelCallT{}},
		{Type: program.InstructionArgumentsKernelCall, Value: &program.KernelCallT{OpIndex: 1}},
		{Type: program.InstructionArgumentsMoveCall, Value: &program.MoveCallT{}},
		{Type: program.InstructionArgumentsJumpFalseCall, Value: &program.JumpFalseCallT{}},
		{Type: program.InstructionArgumentsFreeCall, Value: &program.FreeCallT{}},
	} {
		plan.Chains[0].Instructions = append(plan.Chains[0].Instructions, &program.InstructionT{InstrArgs: &in})
	}
	plan.Delegates = append(plan.Delegates,
		&program.BackendDelegateT{Id: "XnnpackBackend",
			Processed:    &program.BackendDelegateDataReferenceT{Location: program.DataLocationSEGMENT},
			CompileSpecs: []*program.CompileSpecT{{Key: "k", Value: []byte{1}}}})
	plan.Chains[0].Instructions = append(plan.Chains[0].Instructions, call(1, 0))
	plan.Values = append(plan.Values,
		val(program.KernelTypesOptionalTensorList, &program.OptionalTensorListT{Items: []int32{0, -1}}),
		val(program.KernelTypesBoolList, &program.BoolListT{Items: []bool{true, false}}),
		val(program.KernelTypesDoubleList, &program.DoubleListT{Items: []float64{0.5}}),
		val(program.KernelTypesNull, &program.NullT{}),
		&program.EValueT{},
	)
	file, err := OpenBytes("test.pte", f.bytes(t))
	require.NoError(t, err)
	m, _ := file.Method("forward")
	require.Equal(t, []string{"kernel aten::add.out", "kernel executorch_prim::et_view", "move", "jump", "free"},
		m.Others)
	require.Equal(t, []CompileSpec{{Key: "k", Value: []byte{1}}}, m.Delegates[1].Specs)
	require.Equal(t, []Value{
		{Kind: program.KernelTypesOptionalTensorList, Items: []int{0, -1}},
		{Kind: program.KernelTypesBoolList, Bools: []bool{true, false}},
		{Kind: program.KernelTypesDoubleList, Doubles: []float64{0.5}},
		{Kind: program.KernelTypesNull}, {Kind: program.KernelTypesNull},
	}, m.Values[4:])
	_, err = file.MLX(m, 0)
	require.NoError(t, err)
	_, err = file.MLX(m, 1)
	requireInvalid(t, err, `delegate of the backend "XnnpackBackend", expected "MLXBackend"`)
}

// TestInvalidGraph changes one thing of a valid graph, or of what the program has for it.
func TestInvalidGraph(t *testing.T) {
	// first replaces the first instruction of chain 0.
	first := func(value any) func(*testFile) {
		return func(f *testFile) { f.graph.InstructionChains[0].Instructions[0] = node(value) }
	}
	x := func(f *testFile) *program.TensorT {
		return f.program.ExecutionPlan[0].Values[0].Val.Value.(*program.TensorT)
	}
	chainOf := func(instructions ...*mlxgraph.InstructionT) *mlxgraph.InstructionChainT {
		return &mlxgraph.InstructionChainT{Instructions: append([]*mlxgraph.InstructionT{}, instructions...)}
	}
	branch := func(then, otherwise uint32) *mlxgraph.InstructionT {
		return node(&mlxgraph.IfNodeT{Cond: literal(1), ThenChainIdx: then, ElseChainIdx: otherwise})
	}
	const at = "graph.instruction_chains[0].instructions[0].op "
	for want, change := range map[string]func(*testFile){
		"graph.version: 2, this version reads up to 1": func(f *testFile) { f.graph.Version = "2" },
		`graph.version: "1.0", expected a number`:      func(f *testFile) { f.graph.Version = "1.0" },
		"at most 1000000 of each are possible":         func(f *testFile) { f.graph.NumTempTensors = math.MaxUint32 },
		"and 1000001 registers, at most":               func(f *testFile) { f.graph.NumValues = 1_000_001 },

		"graph.tensor_meta: 3 entries for 4 tensors that are not temporaries and 1 that are": func(
			f *testFile) {
			f.graph.TensorMeta = f.graph.TensorMeta[:3]
		},
		"graph.tensor_meta: 4 entries for 6 tensors that are not temporaries and 1 that are": func(
			f *testFile) {
			f.graph.NumInputTensors = 3
		},
		"graph.tensor_meta: 4 entries for 2 tensors that are not temporaries and 1 that are": func(
			f *testFile) {
			f.graph.NumMutableBufferTensors, f.graph.NumOutputTensors = 0, 0
		},
		"graph.tensor_meta[2].scalar_type: DOUBLE, which MLX does not have": func(
			f *testFile) {
			f.graph.TensorMeta[2].ScalarType = 7
		},
		"graph.tensor_meta[2].shape: 17 dimensions, at most 16": func(
			f *testFile) {
			f.graph.TensorMeta[2].Shape = fixed(make([]int32, 17)...)
		},
		"graph.tensor_meta[2].shape[1]: size -2": func(
			f *testFile) {
			f.graph.TensorMeta[2].Shape[1].Value = -2
		},
		"graph.tensor_meta[1].shape[1]: a size from 1 to 0": func(
			f *testFile) {
			f.graph.TensorMeta[1].Shape[1].MaxValue = 0
		},
		"graph.tensor_meta[1].shape[1]: a size from -1 to 3": func(
			f *testFile) {
			f.graph.TensorMeta[1].Shape[1].MinValue = -1
		},
		"graph.tensor_meta[0].dim_order: [0 2], expected a permutation of 2 dimensions": func(
			f *testFile) {
			f.graph.TensorMeta[0].DimOrder[1] = 2
		},
		"graph.tensor_meta[0].shape[1]: size is not fixed": func(
			f *testFile) {
			f.graph.TensorMeta[0].Shape[1].Value = -1
		},
		"graph.tensor_meta[3].shape[0]: size is not fixed": func(
			f *testFile) {
			f.graph.TensorMeta[3].Shape[0].Value = -1
		},
		"graph.tensor_meta[0].shape: [2147483647 2147483647 2147483647] elements do not fit": func(f *testFile) {
			f.graph.TensorMeta[0] = &mlxgraph.TensorMetaT{Shape: fixed(math.MaxInt32, math.MaxInt32, math.MaxInt32)}
		},
		"graph.mutable_buffer_map: mutable buffer 3 is not in it": func(
			f *testFile) {
			f.graph.MutableBufferMap = nil
		},
		"graph.mutable_buffer_map[1]: tensor 3 is there twice": func(
			f *testFile) {
			f.graph.MutableBufferMap = append(f.graph.MutableBufferMap, slot(3))
		},
		"graph.mutable_buffer_map[0]: TensorSlot 2, mutable buffers are the tensors from 3 to": func(
			f *testFile) {
			f.graph.MutableBufferMap[0] = slot(2)
		},
		"graph.mutable_buffer_map[0]: TensorSlot 4, mutable buffers are the tensors from 3 to": func(
			f *testFile) {
			f.graph.MutableBufferMap[0] = slot(4)
		},
		"graph.mutable_buffer_map[0]: IntValueSlot 3, mutable buffers are": func(
			f *testFile) {
			f.graph.MutableBufferMap[0] = intSlot(3)
		},
		"graph.mutable_buffer_map[0]: tensor 3 of shape [0] has 0 bytes, expected 1": func(
			f *testFile) {
			f.graph.TensorMeta[3].Shape = fixed(0)
		},
		"graph.mutable_buffer_map[0]: tensor 3 of shape [1073741825] has 4294967300 bytes": func(
			f *testFile) {
			f.graph.TensorMeta[3].Shape = fixed(1<<30 + 1)
		},
		"graph.input_map[0]: tensor 5, the graph has 5": func(
			f *testFile) {
			f.graph.InputMap[0] = slot(5)
		},
		"graph.input_map[0]: tensor 0 is a constant": func(
			f *testFile) {
			f.graph.InputMap[0] = slot(0)
		},
		"graph.input_map[1]: register 2, the graph has 2": func(
			f *testFile) {
			f.graph.InputMap[1] = intSlot(2)
		},
		"graph.input_map[1]: FloatValueSlot, expected TensorSlot or IntValueSlot": func(
			f *testFile) {
			f.graph.InputMap[1].SlotType = mlxgraph.SlotTypeFloatValueSlot
		},
		"graph.output_map[1]: BoolValueSlot, expected TensorSlot or IntValueSlot": func(
			f *testFile) {
			f.graph.OutputMap[1].SlotType = mlxgraph.SlotTypeBoolValueSlot
		},
		"graph.output_map[0]: slot type 9 is unknown": func(
			f *testFile) {
			f.graph.OutputMap[0].SlotType = 9
		},
		`graph.named_slots[1] "cache": tensor 5, the graph has 5`: func(
			f *testFile) {
			f.graph.NamedSlots[1].Slot = slot(5)
		},
		`graph.named_slots[1] "cache": register 2, the graph has 2`: func(
			f *testFile) {
			f.graph.NamedSlots[1].Slot = intSlot(2)
		},
		"graph.named_slots: constant 0 has no name": func(
			f *testFile) {
			f.graph.NamedSlots = f.graph.NamedSlots[1:]
		},
		`graph.named_slots: constant 0 is "v", which is not in the program's named data`: func(
			f *testFile) {
			f.graph.NamedSlots[0].Name = "v"
		},
		`constant 0, "w", is FLOAT[2 3] and so 24 bytes, its named data has 23`: func(
			f *testFile) {
			f.weight = f.weight[1:]
		},
		`constant 0, "w", is FLOAT[2 3] and so 24 bytes, its named data has 25`: func(
			f *testFile) {
			f.weight = make([]byte, 25)
		},
		`constant 0, "w", is BFLOAT16[2 3] and so 12 bytes, its named data has 24`: func(
			f *testFile) {
			f.graph.TensorMeta[0].ScalarType = 15
		},
		"graph.input_map: 1 inputs and 2 outputs, method \"forward\" calls it with 4 arguments": func(
			f *testFile) {
			f.graph.InputMap = f.graph.InputMap[:1]
		},
		"graph.input_map[0]: TensorSlot, but value 1 of method \"forward\" is a value of type": func(
			f *testFile) {
			f.program.ExecutionPlan[0].Chains[0].Instructions[0] = call(0, 1, 0, 2, 3)
		},
		"graph.output_map[1]: IntValueSlot, but value 2 of method \"forward\" is a tensor FLOAT": func(
			f *testFile) {
			f.program.ExecutionPlan[0].Chains[0].Instructions[0] = call(0, 0, 1, 2, 2)
		},
		"graph.input_map[0]: tensor 1 is of type FLOAT, value 0 of method \"forward\" of type": func(
			f *testFile) {
			x(f).ScalarType = program.ScalarTypeHALF
		},
		"graph.input_map[0]: value 0 of method \"forward\" is a tensor DOUBLE[2 3], which MLX": func(
			f *testFile) {
			x(f).ScalarType = program.ScalarTypeDOUBLE
		},
		"value 0 of method \"forward\" has its dimensions in the order [1 0], expected": func(
			f *testFile) {
			x(f).DimOrder = []byte{1, 0}
		},

		"graph.main_chain_idx: chain 3, the graph has 3": func(
			f *testFile) {
			f.graph.MainChainIdx = 3
		},
		"graph.init_chain_idx: chain 3, the graph has 3": func(
			f *testFile) {
			f.graph.InitChainIdx = 3
		},
		at + "(AddNode.a): tensor 5, the graph has 5": first(&mlxgraph.AddNodeT{A: tid(5),
			B: tid(0), Out: tid(4)}),
		at + "(AddNode.out): tensor 4294967295, the graph has 5": first(&mlxgraph.AddNodeT{A: tid(0),
			B: tid(0), Out: tid(math.MaxUint32)}),
		at + "(ClipNode.a_max): tensor 5": first(&mlxgraph.ClipNodeT{X: tid(0),
			Out: tid(4), AMax: tid(5)}),
		at + "(ItemIntNode.out): register 2, the graph has 2": first(
			&mlxgraph.ItemIntNodeT{X: tid(0), Out: &mlxgraph.VidT{Idx: 2}}),
		at + "(AddIntNode.b): register 2": first(
			&mlxgraph.AddIntNodeT{A: literal(1), B: register(2), Out: &mlxgraph.VidT{}}),
		at + "(AddIntNode.a): a register is named but there is no vid": first(
			&mlxgraph.AddIntNodeT{A: &mlxgraph.IntOrVidT{IsVid: true}, B: literal(2), Out: &mlxgraph.VidT{}}),
		at + "(ConcatenateNode.tensors): element 1: tensor 7": first(
			&mlxgraph.ConcatenateNodeT{Tensors: []*mlxgraph.TidT{tid(0), tid(7)}, Out: tid(4)}),
		at + "(ReshapeNode.shape): element 2: register 9": first(
			&mlxgraph.ReshapeNodeT{X: tid(0), Out: tid(4),
				Shape: []*mlxgraph.IntOrVidT{literal(1), register(1), register(9)}}),
		at + "(FullNode.v): register 2": first(&mlxgraph.FullNodeT{Out: tid(4),
			Shape: []*mlxgraph.IntOrVidT{}, V: &mlxgraph.FloatOrVidT{IsVid: true, Vid: &mlxgraph.VidT{Idx: 2}}}),
		at + "(FullNode.v): a register is named but there is no vid": first(&mlxgraph.FullNodeT{Out: tid(4),
			Shape: []*mlxgraph.IntOrVidT{}, V: &mlxgraph.FloatOrVidT{IsVid: true}}),
		at + "(RopeNode.offset): is_vid is false but there is no tid": first(&mlxgraph.RopeNodeT{X: tid(0),
			Out: tid(4), Offset: &mlxgraph.VidOrTidT{}}),
		at + "(RopeNode.offset): tensor 5": first(&mlxgraph.RopeNodeT{X: tid(0),
			Out: tid(4), Offset: &mlxgraph.VidOrTidT{Tid: tid(5)}}),
		at + "(RopeNode.offset): register 3": first(&mlxgraph.RopeNodeT{X: tid(0),
			Out: tid(4), Offset: &mlxgraph.VidOrTidT{IsVid: true, Vid: &mlxgraph.VidT{Idx: 3}}}),
		at + "(TakeNode.index): kind 3, expected 0 (literal), 1 (vid) or 2": first(&mlxgraph.TakeNodeT{X: tid(0),
			Out: tid(4), Index: &mlxgraph.IntOrVidOrTidT{Kind: 3}}),
		at + "(TakeNode.index): a register is named but there is no vid": first(&mlxgraph.TakeNodeT{X: tid(0),
			Out: tid(4), Index: &mlxgraph.IntOrVidOrTidT{Kind: 1}}),
		at + "(TakeNode.index): kind is 2 (tid) but there is no tid": first(&mlxgraph.TakeNodeT{X: tid(0),
			Out: tid(4), Index: &mlxgraph.IntOrVidOrTidT{Kind: 2}}),
		at + "(TakeNode.index): tensor 5": first(&mlxgraph.TakeNodeT{X: tid(0),
			Out: tid(4), Index: &mlxgraph.IntOrVidOrTidT{Kind: 2, Tid: tid(5)}}),
		at + "(IfNode.then_chain_idx): chain 3, the graph has 3": first(
			&mlxgraph.IfNodeT{Cond: literal(1), ThenChainIdx: 3}),
		at + "(IfNode.else_chain_idx): chain 4294967295": first(
			&mlxgraph.IfNodeT{Cond: literal(1), ThenChainIdx: 1, ElseChainIdx: math.MaxUint32}),
		at + "(ScanNode.body_chain_idx): chain -1": first(
			&mlxgraph.ScanNodeT{Originals: []*mlxgraph.TidT{}, Sliced: []*mlxgraph.TidT{}, Outputs: []*mlxgraph.TidT{},
				Carry: []*mlxgraph.TidT{}, BodyChainIdx: -1}),
		"graph.instruction_chains[0]: it runs itself, directly or through other": first(
			&mlxgraph.IfNodeT{Cond: literal(1), ThenChainIdx: 0, ElseChainIdx: 1}),
		"graph.instruction_chains[1]: it runs itself": func(f *testFile) {
			f.graph.InstructionChains[1] = chainOf(branch(2, 2))
			f.graph.InstructionChains[2] = chainOf(branch(1, 1))
		},
		"more than 1000000 instructions with those of the chains that it runs": func(f *testFile) {
			for i := range uint32(64) {
				f.graph.InstructionChains = append(f.graph.InstructionChains, chainOf(branch(i+4, i+4)))
			}
			f.graph.InstructionChains = append(f.graph.InstructionChains, chainOf())
		},
		"chains run one another more than 256 deep": func(f *testFile) {
			for i := range uint32(256) {
				f.graph.InstructionChains = append(f.graph.InstructionChains, chainOf(branch(i+4, 2)))
			}
			f.graph.InstructionChains = append(f.graph.InstructionChains, chainOf())
		},
		"[258]: chains run one another more than 256 deep": func(f *testFile) { // found from the inner end
			f.graph.InstructionChains = []*mlxgraph.InstructionChainT{f.graph.InstructionChains[1], chainOf(),
				chainOf()}
			for i := range uint32(256) {
				f.graph.InstructionChains = append(f.graph.InstructionChains, chainOf(branch(i+2, 1)))
			}
		},
	} {
		b := newTestFile()
		change(b)
		f, err := OpenBytes("test.pte", b.bytes(t))
		require.NoError(t, err, want)
		m, _ := f.Method("forward")
		_, err = f.MLX(m, 0)
		requireInvalid(t, err, want)
		var e *Error
		require.True(t, errors.As(err, &e))
		require.Positive(t, e.Offset)
	}
}

func TestUnfoldLimits(t *testing.T) {
	b := newTestFile()
	b.graph.InstructionChains = []*mlxgraph.InstructionChainT{{Instructions: []*mlxgraph.InstructionT{}}}
	for i := range uint32(255) {
		b.graph.InstructionChains = append(b.graph.InstructionChains,
			&mlxgraph.InstructionChainT{Instructions: []*mlxgraph.InstructionT{
				node(&mlxgraph.ScanNodeT{Originals: []*mlxgraph.TidT{}, Sliced: []*mlxgraph.TidT{},
					Outputs: []*mlxgraph.TidT{}, Carry: []*mlxgraph.TidT{}, BodyChainIdx: int32(i)})}})
	}
	open(t, b.bytes(t)) // 256 deep
}

// TestInvalidPayload breaks the bytes of the payload.
func TestInvalidPayload(t *testing.T) {
	good := newTestFile().bytes(t)
	f := open(t, good)
	m, _ := f.Method("forward")
	at := int(m.Delegates[0].Offset)
	for want, change := range map[string]func([]byte){
		`header of the MLX payload: magic "MLX1", expected "MLX0"`: func(b []byte) { b[7] = '1' },
		"header of the MLX payload: graph ends at 24":              func(b []byte) { clear(b[8:16]); b[8] = 24 },
		"graph.MLXGraph: ": func(b []byte) { b[24] = 1 },
	} {
		data := slices.Clone(good)
		change(data[at:])
		f, err := OpenBytes("test.pte", data)
		require.NoError(t, err)
		m, _ := f.Method("forward")
		_, err = f.MLX(m, 0)
		requireInvalid(t, err, want)
	}
}

// TestUnknownNode: a node of a later version is named by its number.
func TestUnknownNode(t *testing.T) {
	good := newTestFile().bytes(t)
	f := open(t, good)
	m, _ := f.Method("forward")
	buf, err := schema.MLXGraphBytes(m.Delegates[0].Payload)
	require.NoError(t, err)
	g := mlxgraph.GetRootAsMLXGraph(buf, 0)
	var chain mlxgraph.InstructionChain
	var in mlxgraph.Instruction
	g.InstructionChains(&chain, 1)
	chain.Instructions(&in, 0)
	require.True(t, in.MutateOpType(135)) // buf is a view of good
	f, err = OpenBytes("test.pte", good)
	require.NoError(t, err)
	m, _ = f.Method("forward")
	_, err = f.MLX(m, 0)
	requireInvalid(t, err, "graph.instruction_chains[1].instructions[0] (Instruction.op): OpNode number 135 is unknown: this version knows 1 to 134")
}

func TestErrorText(t *testing.T) {
	require.EqualError(t, &Error{File: "f", Offset: -1, Problem: "p"}, "f: p")
	require.EqualError(t, &Error{File: "f", Offset: 3, Field: "x", Problem: "p"}, "f: offset 3: x: p")
}

func TestGuard(t *testing.T) {
	f := &File{name: "test.pte"}
	err := f.guard(func() error { panic("boom") })
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "reading it panicked: boom")
}
