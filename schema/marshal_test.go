package schema

import (
	"math"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema/mlxgraph"
	"github.com/etc-ml/etc/schema/program"
)

// TestMarshalRefuses shows what the generated Pack would have written in silence.
func TestMarshalRefuses(t *testing.T) {
	graph := func(change func(*mlxgraph.MLXGraphT)) *mlxgraph.MLXGraphT {
		g := sampleGraph()
		change(g)
		return g
	}
	for name, c := range map[string]struct {
		schema *Schema
		root   Packer
		want   string
	}{
		"nil table": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) { g.InputMap[0] = nil }),
			"InputMap[0] is nil"},
		"nil struct": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) {
			g.InstructionChains[0].Instructions[4].Op.Value.(*mlxgraph.SplitNodeT).Outs[1] = nil
		}), "InstructionChains[0].Instructions[4].Op.Outs[1] is nil"},
		"required struct": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) {
			g.InstructionChains[0].Instructions[1].Op.Value.(*mlxgraph.RopeNodeT).Out = nil
		}), "instruction_chains[0].instructions[1].op (RopeNode.out)"},
		"required vector": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) { g.InstructionChains = nil }),
			"(MLXGraph.instruction_chains)"},
		"no node": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) { g.InstructionChains[0].Instructions[0].Op = nil }),
			"(Instruction.op)"},
		"node of another type": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) {
			g.InstructionChains[0].Instructions[0].Op.Type = mlxgraph.OpNodeAddNode
		}), "InstructionChains[0].Instructions[0].Op is of type AddNode but its value is a NoopNodeT"},
		"type without a node": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) {
			g.InstructionChains[0].Instructions[0].Op.Value = nil
		}), "is of type NoopNode but has no value"},
		"nil node": {MLXGraph(), graph(func(g *mlxgraph.MLXGraphT) {
			g.InstructionChains[0].Instructions[0].Op.Value = (*mlxgraph.NoopNodeT)(nil)
		}), "is of type NoopNode but has no value"},
		"force_align": {Program(), &program.ProgramT{BackendDelegateData: []*program.BackendDelegateInlineDataT{{Data: []byte{1}}, {Data: []byte{1, 2, 3, 4, 5}}}},
			"not aligned to 16 bytes"},
		"builder panic": {Program(), panics{}, "flatbuffers: too large"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Marshal(c.schema, c.root)
			require.ErrorContains(t, err, c.want)
		})
	}
}

type panics struct{}

func (panics) Pack(*flatbuffers.Builder) flatbuffers.UOffsetT { panic("too large") }

func TestMarshalRoundTrip(t *testing.T) {
	buf := mustMarshal(t, Program(), sampleProgram())
	again := mustMarshal(t, Program(), program.GetRootAsProgram(buf, 0).UnPack())
	require.Empty(t, cmp.Diff(readAll(Program(), buf), readAll(Program(), again)))

	buf = mustMarshal(t, MLXGraph(), sampleGraph())
	again = mustMarshal(t, MLXGraph(), mlxgraph.GetRootAsMLXGraph(buf, 0).UnPack())
	require.Empty(t, cmp.Diff(readAll(MLXGraph(), buf), readAll(MLXGraph(), again)))
}

// TestCreateAlignedBytes: at any length, and behind anything, the content is aligned in the finished buffer.
func TestCreateAlignedBytes(t *testing.T) {
	for n := range 65 {
		content := make([]byte, n)
		for i := range content {
			content[i] = byte(i + 1)
		}
		buf := finish("ET12", func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
			b.CreateString("something before"[:n%16])
			storage := CreateAlignedBytes(b, content, 16)
			program.BufferStart(b)
			program.BufferAddStorage(b, storage)
			buffers := b.CreateVectorOfTables([]flatbuffers.UOffsetT{program.BufferEnd(b)})
			program.ProgramStart(b)
			program.ProgramAddConstantBuffer(b, buffers)
			return program.ProgramEnd(b)
		})
		require.NoError(t, Verify(Program(), buf, "ET12"), "%d bytes", n)
		var buffer program.Buffer
		require.True(t, program.GetRootAsProgram(buf, 0).ConstantBuffer(&buffer, 0))
		require.Equal(t, string(content), string(buffer.StorageBytes()))
	}
}

// TestZerosOfEitherSign: a float whose default is 0 keeps its bits; only 0 itself is left out, as FlatBuffers has it.
func TestZerosOfEitherSign(t *testing.T) {
	zero := 0
	for _, v := range []float32{0, float32(math.Copysign(0, -1)), 1, math.SmallestNonzeroFloat32} {
		g := sampleGraph()
		pad := &mlxgraph.PadNodeT{X: &mlxgraph.TidT{}, Out: &mlxgraph.TidT{}, PadWidth: []*mlxgraph.IntOrVidT{},
			ConstantValue: v}
		full := &mlxgraph.FullNodeT{Out: &mlxgraph.TidT{}, Shape: []*mlxgraph.IntOrVidT{},
			V: &mlxgraph.FloatOrVidT{Literal: float64(v)}}
		g.InstructionChains = []*mlxgraph.InstructionChainT{{Instructions: []*mlxgraph.InstructionT{
			{Op: &mlxgraph.OpNodeT{Type: mlxgraph.OpNodePadNode, Value: pad}},
			{Op: &mlxgraph.OpNodeT{Type: mlxgraph.OpNodeFullNode, Value: full}}}}}
		b, err := Marshal(MLXGraph(), g)
		require.NoError(t, err)
		got := mlxgraph.GetRootAsMLXGraph(b, 0).UnPack().InstructionChains[0].Instructions
		require.Equal(t, math.Float32bits(v), math.Float32bits(got[0].Op.Value.(*mlxgraph.PadNodeT).ConstantValue))
		require.Equal(t, math.Float64bits(float64(v)),
			math.Float64bits(got[1].Op.Value.(*mlxgraph.FullNodeT).V.Literal))
		if math.Float32bits(v) == 0 {
			zero = len(b)
		} else {
			require.Greater(t, len(b), zero)
		}
	}
}
