package container

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
	"github.com/etc-ml/etc/schema/program"
)

// testFile is a small valid file in parts, for tests to change: a program with a method of one delegate call
// and constant methods, the delegate's graph, and the data of its constant.
type testFile struct {
	program *program.ProgramT
	graph   *mlxgraph.MLXGraphT
	weight  []byte
}

func val(kind program.KernelTypes, value any) *program.EValueT {
	return &program.EValueT{Val: &program.KernelTypesT{Type: kind, Value: value}}
}

func tensor(t program.ScalarType, sizes ...int32) *program.EValueT {
	order := make([]byte, len(sizes))
	for i := range order {
		order[i] = byte(i)
	}
	return val(program.KernelTypesTensor, &program.TensorT{ScalarType: t, Sizes: sizes, DimOrder: order})
}

func call(delegate int32, args ...int32) *program.InstructionT {
	return &program.InstructionT{InstrArgs: &program.InstructionArgumentsT{
		Type:  program.InstructionArgumentsDelegateCall,
		Value: &program.DelegateCallT{DelegateIndex: delegate, Args: args}}}
}

// constantMethod has the values as outputs, in reverse order.
func constantMethod(name string, values ...*program.EValueT) *program.ExecutionPlanT {
	var outputs []int32
	for i := range values {
		outputs = append(outputs, int32(len(values)-1-i))
	}
	return &program.ExecutionPlanT{Name: name, Values: values, Outputs: outputs, Chains: []*program.ChainT{{}},
		NonConstBufferSizes: []int64{0}}
}

func node(value any) *mlxgraph.InstructionT {
	op, _ := mlxgraph.NodeOp(value)
	return &mlxgraph.InstructionT{Op: &mlxgraph.OpNodeT{Type: op, Value: value}}
}

func tid(i uint32) *mlxgraph.TidT         { return &mlxgraph.TidT{Idx: i} }
func literal(i int64) *mlxgraph.IntOrVidT { return &mlxgraph.IntOrVidT{Literal: i} }
func register(i uint32) *mlxgraph.IntOrVidT {
	return &mlxgraph.IntOrVidT{Vid: &mlxgraph.VidT{Idx: i}, IsVid: true}
}
func slot(i uint32) *mlxgraph.SlotVariantT { return &mlxgraph.SlotVariantT{Idx: i} }
func intSlot(i uint32) *mlxgraph.SlotVariantT {
	return &mlxgraph.SlotVariantT{Idx: i, SlotType: mlxgraph.SlotTypeIntValueSlot}
}
func fixed(sizes ...int32) (out []*mlxgraph.ShapeDimT) {
	for _, s := range sizes {
		out = append(out, &mlxgraph.ShapeDimT{Value: s, MaxValue: -1})
	}
	return out
}

// newTestFile: tensors 0 constant w [2,3] f32, 1 input, 2 output, 3 mutable buffer [4] f32, 4 temporary;
// registers 0 and 1. forward(x f32[2,3], n int) → (f32[2,3], int).
func newTestFile() *testFile {
	float := int8(program.ScalarTypeFLOAT)
	plan := &program.ExecutionPlanT{
		Name: "forward",
		Values: []*program.EValueT{
			tensor(program.ScalarTypeFLOAT, 2, 3), val(program.KernelTypesInt, &program.IntT{IntVal: 7}),
			tensor(program.ScalarTypeFLOAT, 2, 3), val(program.KernelTypesInt, &program.IntT{}),
		},
		Inputs: []int32{0, 1}, Outputs: []int32{2, 3},
		Chains: []*program.ChainT{{Instructions: []*program.InstructionT{call(0, 0, 1, 2, 3)}}},
		Delegates: []*program.BackendDelegateT{{Id: MLXBackend,
			Processed: &program.BackendDelegateDataReferenceT{Location: program.DataLocationSEGMENT, Index: 1}}},
		NonConstBufferSizes: []int64{0},
	}
	return &testFile{
		program: &program.ProgramT{
			ExecutionPlan: []*program.ExecutionPlanT{
				plan,
				constantMethod("get_max_seq_len", val(program.KernelTypesInt, &program.IntT{IntVal: 64})),
				constantMethod("use_sampling", val(program.KernelTypesBool, &program.BoolT{BoolVal: true})),
				constantMethod("get_eos_ids", val(program.KernelTypesInt, &program.IntT{IntVal: 5}),
					val(program.KernelTypesInt, &program.IntT{IntVal: 6})),
				constantMethod("get_rate", val(program.KernelTypesDouble, &program.DoubleT{DoubleVal: 0.5}),
					val(program.KernelTypesString, &program.StringT{StringVal: "s"})),
			},
			ConstantSegment: &program.SubsegmentOffsetsT{Offsets: []uint64{0}},
			NamedData: []*program.NamedDataT{{Key: "w", SegmentIndex: 2}, {Key: "metadata.x", SegmentIndex: 0},
				{Key: "w", SegmentIndex: 0}},
		},
		graph: &mlxgraph.MLXGraphT{
			Version: "1", NumConstantTensors: 1, NumInputTensors: 1, NumOutputTensors: 1, NumMutableBufferTensors: 1,
			NumTempTensors: 1, NumValues: 2,
			InitChainIdx: -1,
			InstructionChains: []*mlxgraph.InstructionChainT{
				{Instructions: []*mlxgraph.InstructionT{
					node(&mlxgraph.AddNodeT{A: tid(0), B: tid(1), Out: tid(4)}),
					node(&mlxgraph.IfNodeT{Cond: register(0), ThenChainIdx: 1, ElseChainIdx: 2}),
					node(&mlxgraph.AddIntNodeT{A: register(0), B: literal(math.MaxInt64), Out: &mlxgraph.VidT{Idx: 1}}),
				}},
				{Instructions: []*mlxgraph.InstructionT{node(&mlxgraph.IdCopyNodeT{X: tid(4), Out: tid(2)})}},
				{Instructions: []*mlxgraph.InstructionT{node(&mlxgraph.NegNodeT{X: tid(4), Out: tid(2)})}},
			},
			InputMap:         []*mlxgraph.SlotVariantT{slot(1), intSlot(0)},
			OutputMap:        []*mlxgraph.SlotVariantT{slot(2), intSlot(1)},
			MutableBufferMap: []*mlxgraph.SlotVariantT{slot(3)},
			NamedSlots:       []*mlxgraph.NamedSlotT{{Name: "w", Slot: slot(0)}, {Name: "cache", Slot: slot(3)}},
			TensorMeta: []*mlxgraph.TensorMetaT{
				{Shape: fixed(2, 3), ScalarType: float, DimOrder: []byte{0, 1}},
				{Shape: []*mlxgraph.ShapeDimT{{Value: 2}, {Value: -1, MinValue: 1, MaxValue: 3}}, ScalarType: float},
				{Shape: fixed(2, 3), ScalarType: float},
				{Shape: fixed(4), ScalarType: float},
			},
		},
		weight: make([]byte, 24),
	}
}

// bytes writes the file: segment 0 is empty, 1 is the payload, 2 the constant.
func (f *testFile) bytes(t testing.TB) []byte {
	t.Helper()
	graph, err := schema.Marshal(schema.MLXGraph(), f.graph)
	require.NoError(t, err)
	return layOut(t, f.program, nil, schema.MLXPayload(graph), f.weight)
}

// layOut appends segments to a program, each at a multiple of 16 bytes.
func layOut(t testing.TB, p *program.ProgramT, segments ...[]byte) []byte {
	t.Helper()
	var data []byte
	p.Segments = nil
	for _, s := range segments {
		p.Segments = append(p.Segments, &program.DataSegmentT{Offset: uint64(len(data)), Size: uint64(len(s))})
		data = append(data, s...)
		data = append(data, make([]byte, -len(data)&15)...)
	}
	head, err := schema.Marshal(schema.Program(), p)
	require.NoError(t, err)
	out, header := schema.WithExtendedHeader(head, uint64(len(data)), func(n uint64) uint64 { return (n + 127) &^ 127 })
	out = append(out, make([]byte, header.SegmentBase-header.ProgramSize)...)
	return append(out, data...)
}

// open reads a file of which every method must be readable.
func open(t testing.TB, data []byte) *File {
	t.Helper()
	f, err := OpenBytes("test.pte", data)
	require.NoError(t, err)
	require.NoError(t, readAll(f))
	return f
}

// readAll uses everything that a file gives access to, and returns the first error of a delegate's graph.
func readAll(f *File) error {
	for i := range f.Segments() {
		touch(f.SegmentBytes(i))
	}
	for _, d := range f.NamedData() {
		if _, ok := f.Lookup(d.Key); !ok {
			return errors.New("a key that is listed is not found: " + d.Key)
		}
	}
	var found error
	for _, m := range f.Methods() {
		for _, i := range append(append([]int{}, m.Inputs...), m.Outputs...) {
			_ = m.Values[i].Kind
		}
		for _, v := range m.Values {
			if v.Tensor != nil {
				touch(v.Tensor.Data)
				v.Tensor.Contiguous()
			}
			for _, item := range v.Items {
				if item >= 0 {
					_ = m.Values[item]
				}
			}
		}
		f.Constant(m.Name)
		f.ConstantInts(m.Name)
		for i := range m.Calls {
			mlx, err := f.MLX(m, i)
			if err != nil {
				found = errors.Join(found, err)
				continue
			}
			for _, c := range mlx.Constants {
				touch(c.Data)
			}
			run(mlx.Graph, int(mlx.Graph.MainChainIdx))
			if mlx.Graph.InitChainIdx >= 0 {
				run(mlx.Graph, int(mlx.Graph.InitChainIdx))
			}
		}
	}
	return found
}

// touch reads the first and the last byte.
func touch(b []byte) byte {
	if len(b) == 0 {
		return 0
	}
	return b[0] ^ b[len(b)-1]
}

// run goes through the instructions of a chain as a runtime does.
func run(g *mlxgraph.MLXGraphT, chain int) {
	for _, in := range g.InstructionChains[chain].Instructions {
		switch n := in.Op.Value.(type) {
		case *mlxgraph.IfNodeT:
			run(g, int(n.ThenChainIdx))
			run(g, int(n.ElseChainIdx))
		case *mlxgraph.ScanNodeT:
			run(g, int(n.BodyChainIdx))
		}
	}
}

// handProgram is a program with one method and what Pack does not align: a payload and constants in the
// program itself.
type handProgram struct {
	Plan      *program.ExecutionPlanT
	Payload   []byte
	Constants [][]byte
}

func (p handProgram) Pack(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	var buffers []flatbuffers.UOffsetT
	for _, c := range p.Constants {
		storage := schema.CreateAlignedBytes(b, c, 16)
		program.BufferStart(b)
		program.BufferAddStorage(b, storage)
		buffers = append(buffers, program.BufferEnd(b))
	}
	constants := b.CreateVectorOfTables(buffers)
	content := schema.CreateAlignedBytes(b, p.Payload, 16)
	program.BackendDelegateInlineDataStart(b)
	program.BackendDelegateInlineDataAddData(b, content)
	data := b.CreateVectorOfTables([]flatbuffers.UOffsetT{program.BackendDelegateInlineDataEnd(b)})
	plans := b.CreateVectorOfTables([]flatbuffers.UOffsetT{p.Plan.Pack(b)})
	program.ProgramStart(b)
	program.ProgramAddExecutionPlan(b, plans)
	program.ProgramAddConstantBuffer(b, constants)
	program.ProgramAddBackendDelegateData(b, data)
	return program.ProgramEnd(b)
}

// testdata returns the files of testdata by name.
func testdata(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.pte")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	files := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		files[filepath.Base(path)] = data
	}
	return files
}
