package schema

import (
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema/mlxgraph"
	"github.com/etc-ml/etc/schema/program"
)

// sampleProgram has a value of every type, an instruction of every type and every kind of vector.
func sampleProgram() *program.ProgramT {
	val := func(kind program.KernelTypes, value any) *program.EValueT {
		return &program.EValueT{Val: &program.KernelTypesT{Type: kind, Value: value}}
	}
	do := func(kind program.InstructionArguments, value any) *program.InstructionT {
		return &program.InstructionT{InstrArgs: &program.InstructionArgumentsT{Type: kind, Value: value}}
	}
	return &program.ProgramT{
		ExecutionPlan: []*program.ExecutionPlanT{{
			Name:              "forward",
			ContainerMetaType: &program.ContainerMetadataT{EncodedInpStr: "in", EncodedOutStr: "out"},
			Values: []*program.EValueT{
				val(program.KernelTypesNull, &program.NullT{}),
				val(program.KernelTypesInt, &program.IntT{IntVal: -3}),
				val(program.KernelTypesBool, &program.BoolT{BoolVal: true}),
				val(program.KernelTypesDouble, &program.DoubleT{DoubleVal: 2.5}),
				val(program.KernelTypesTensor, &program.TensorT{
					ScalarType: program.ScalarTypeLONG, Sizes: []int32{1, 7}, DimOrder: []byte{0, 1},
					AllocationInfo:  &program.AllocationDetailsT{MemoryId: 1, MemoryOffsetLow: 16},
					ShapeDynamism:   program.TensorShapeDynamismDYNAMIC_BOUND,
					ExtraTensorInfo: &program.ExtraTensorInfoT{FullyQualifiedName: "x", DeviceIndex: 1},
				}),
				val(program.KernelTypesString, &program.StringT{StringVal: "s"}),
				val(program.KernelTypesIntList, &program.IntListT{Items: []int64{1, 1}}),
				val(program.KernelTypesDoubleList, &program.DoubleListT{Items: []float64{1, 2}}),
				val(program.KernelTypesBoolList, &program.BoolListT{Items: []bool{true, false}}),
				val(program.KernelTypesTensorList, &program.TensorListT{Items: []int32{4}}),
				val(program.KernelTypesOptionalTensorList, &program.OptionalTensorListT{Items: []int32{4, 0}}),
				{},
			},
			Inputs:  []int32{4},
			Outputs: []int32{4, 1},
			Chains: []*program.ChainT{{
				Instructions: []*program.InstructionT{
					do(program.InstructionArgumentsKernelCall, &program.KernelCallT{Args: []int32{4, 4}}),
					do(program.InstructionArgumentsDelegateCall, &program.DelegateCallT{Args: []int32{4, 4}}),
					do(program.InstructionArgumentsMoveCall, &program.MoveCallT{MoveFrom: 1, MoveTo: 1}),
					do(program.InstructionArgumentsJumpFalseCall, &program.JumpFalseCallT{CondValueIndex: 2}),
					do(program.InstructionArgumentsFreeCall, &program.FreeCallT{ValueIndex: 4}),
				},
				Stacktrace: []*program.FrameListT{{Items: []*program.FrameT{{Filename: "f.py", Lineno: 3}}}},
			}},
			Operators: []*program.OperatorT{{Name: "aten::add", Overload: "out"}},
			Delegates: []*program.BackendDelegateT{{
				Id:           "MLXBackend",
				Processed:    &program.BackendDelegateDataReferenceT{Location: program.DataLocationSEGMENT, Index: 1},
				CompileSpecs: []*program.CompileSpecT{{Key: "k", Value: []byte{1, 2, 3}}},
			}},
			NonConstBufferSizes:  []int64{0, 64},
			NonConstBufferDevice: []*program.NonConstBufferDeviceT{{BufferIdx: 1, DeviceType: program.DeviceTypeCUDA}},
		}},
		Segments:        []*program.DataSegmentT{{Offset: 0, Size: 0}, {Offset: 0, Size: 64}},
		ConstantSegment: &program.SubsegmentOffsetsT{Offsets: []uint64{0}},
		NamedData:       []*program.NamedDataT{{Key: "w", SegmentIndex: 1}},
	}
}

// sampleGraph has nodes with strings, optional scalars, vectors of structs, of tables, of strings and of
// scalars, and two chains.
func sampleGraph() *mlxgraph.MLXGraphT {
	tid := func(i uint32) *mlxgraph.TidT { return &mlxgraph.TidT{Idx: i} }
	literal := func(i int64) *mlxgraph.IntOrVidT { return &mlxgraph.IntOrVidT{Literal: i} }
	do := func(node any) *mlxgraph.InstructionT {
		op, _ := mlxgraph.NodeOp(node)
		return &mlxgraph.InstructionT{Op: &mlxgraph.OpNodeT{Type: op, Value: node}}
	}
	slot := func(i uint32) *mlxgraph.SlotVariantT { return &mlxgraph.SlotVariantT{Idx: i} }
	float := int8(program.ScalarTypeFLOAT)
	return &mlxgraph.MLXGraphT{
		Version: "1", NumConstantTensors: 1, NumInputTensors: 1, NumOutputTensors: 1, NumTempTensors: 2, NumValues: 1,
		InitChainIdx: -1,
		InstructionChains: []*mlxgraph.InstructionChainT{{Instructions: []*mlxgraph.InstructionT{
			do(&mlxgraph.NoopNodeT{}),
			do(&mlxgraph.RopeNodeT{X: tid(1), Out: tid(3), Dims: 4,
				Offset: &mlxgraph.VidOrTidT{Vid: &mlxgraph.VidT{}, IsVid: true}, Base: 1e4, Scale: 1}),
			do(&mlxgraph.QuantizedMatmulNodeT{X: tid(3), W: tid(0), Scales: tid(0), Out: tid(4), Mode: "affine",
				Bits: 4, GroupSize: 64}),
			do(&mlxgraph.FullLikeNodeT{X: tid(3), Out: tid(4), V: &mlxgraph.FloatOrVidT{Literal: 0.5},
				ScalarType: &float}),
			do(&mlxgraph.SplitNodeT{X: tid(3), Outs: []*mlxgraph.TidT{tid(3), tid(4)},
				Sizes: []*mlxgraph.IntOrVidT{literal(1), literal(2)}}),
			do(&mlxgraph.TransposeNodeT{X: tid(3), Out: tid(4), Perm: []int32{1, 0}}),
			do(&mlxgraph.MetalKernelNodeT{Name: "k", Source: "…", Inputs: []*mlxgraph.TidT{tid(1)},
				Outputs: []*mlxgraph.TidT{tid(2)},
				Grid:    []*mlxgraph.IntOrVidT{literal(1)}, Threadgroup: []*mlxgraph.IntOrVidT{},
				InputNames: []string{"a", "b"}, OutputDtypes: []int8{6}}),
			do(&mlxgraph.IfNodeT{Cond: literal(1), ThenChainIdx: 1, ElseChainIdx: 1}),
		}}, {Instructions: []*mlxgraph.InstructionT{}}},
		InputMap:   []*mlxgraph.SlotVariantT{slot(1)},
		OutputMap:  []*mlxgraph.SlotVariantT{slot(2)},
		NamedSlots: []*mlxgraph.NamedSlotT{{Name: "w", Slot: slot(0)}},
		TensorMeta: []*mlxgraph.TensorMetaT{{Shape: []*mlxgraph.ShapeDimT{{Value: 16},
			{Value: -1, MinValue: 1, MaxValue: 8}}, ScalarType: 28, DimOrder: []byte{0, 1}}},
	}
}

func mustMarshal(t testing.TB, s *Schema, root Packer) []byte {
	t.Helper()
	buf, err := Marshal(s, root)
	require.NoError(t, err)
	return buf
}

// readAll unpacks a buffer that Verify accepted.
func readAll(s *Schema, buf []byte) any {
	if s == Program() {
		return program.GetRootAsProgram(buf, 0).UnPack()
	}
	return mlxgraph.GetRootAsMLXGraph(buf, 0).UnPack()
}

// finish makes a buffer of what build writes and returns as root table.
func finish(identifier string, build func(*flatbuffers.Builder) flatbuffers.UOffsetT) []byte {
	b := flatbuffers.NewBuilder(0)
	if root := build(b); identifier != "" {
		b.FinishWithFileIdentifier(root, []byte(identifier))
	} else {
		b.Finish(root)
	}
	return b.FinishedBytes()
}
