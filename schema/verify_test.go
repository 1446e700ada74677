package schema

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema/mlxgraph"
	"github.com/etc-ml/etc/schema/program"
)

func TestVerifyAccepts(t *testing.T) {
	p := mustMarshal(t, Program(), sampleProgram())
	require.Empty(t, cmp.Diff("forward", string(program.GetRootAsProgram(p, 0).UnPack().ExecutionPlan[0].Name)))
	require.NoError(t, Verify(Program(), p, ""), "an empty identifier is not compared")
	require.NoError(t, Verify(Program(), append(p, 1, 2, 3), "ET12"), "bytes after the tables do not matter")
	mustMarshal(t, MLXGraph(), sampleGraph())
}

// TestLoadedSchema pins what Verify takes from the binary schemas.
func TestLoadedSchema(t *testing.T) {
	require.Equal(t, "ET12", Program().Identifier())
	require.Equal(t, "", MLXGraph().Identifier())
	find := func(s *Schema, table, name string) field {
		for _, o := range s.objects {
			for _, f := range o.fields {
				if o.name == table && f.name == name {
					return f
				}
			}
		}
		require.Fail(t, "missing", "%s.%s", table, name)
		return field{}
	}
	for _, c := range []struct {
		schema       *Schema
		table, field string
		kind         kind
		size, align  uint32
		required     bool
	}{
		{Program(), "Tensor", "scalar_type", inlineValue, 1, 1, false},
		{Program(), "Tensor", "sizes", inlineVector, 4, 4, false},
		{Program(), "Int", "int_val", inlineValue, 8, 8, false},
		{Program(), "DataSegment", "offset", inlineValue, 8, 8, false},
		{Program(), "IntList", "items", inlineVector, 8, 8, false},
		{Program(), "Buffer", "storage", inlineVector, 1, 16, false},
		{Program(), "BackendDelegateInlineData", "data", inlineVector, 1, 16, false},
		{Program(), "EValue", "val", unionValue, 0, 0, false},
		{Program(), "Program", "execution_plan", tableVector, 0, 0, false},
		{MLXGraph(), "RopeNode", "x", inlineValue, 4, 4, true},
		{MLXGraph(), "RopeNode", "freqs", inlineValue, 4, 4, false},
		{MLXGraph(), "RopeNode", "offset", tableValue, 0, 0, true},
		{MLXGraph(), "SplitNode", "outs", inlineVector, 4, 4, true},
		{MLXGraph(), "MetalKernelNode", "input_names", stringVector, 0, 0, false},
		{MLXGraph(), "GeluNode", "approximate", stringValue, 0, 0, true},
		{MLXGraph(), "Instruction", "op", unionValue, 0, 0, true},
	} {
		f := find(c.schema, c.table, c.field)
		require.Equal(t, c.kind, f.kind, "%s.%s", c.table, c.field)
		require.Equal(t, c.required, f.required, "%s.%s", c.table, c.field)
		if c.size > 0 {
			require.Equal(t, [2]uint32{c.size, c.align}, [2]uint32{f.size, f.align}, "%s.%s", c.table, c.field)
		}
	}
}

// patched returns a copy of buf with some bytes replaced.
func patched(buf []byte, at int, with ...byte) []byte {
	out := slices.Clone(buf)
	copy(out[at:], with)
	return out
}

func TestVerifyRefusesBytes(t *testing.T) {
	// A version and an empty vector of chains, which is the last thing in the buffer.
	graph := finish("", func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
		mlxgraph.MLXGraphStartInstructionChainsVector(b, 0)
		chains := b.EndVector(0)
		version := b.CreateString("1")
		mlxgraph.MLXGraphStart(b)
		mlxgraph.MLXGraphAddVersion(b, version)
		mlxgraph.MLXGraphAddInstructionChains(b, chains)
		return mlxgraph.MLXGraphEnd(b)
	})
	require.NoError(t, Verify(MLXGraph(), graph, ""))
	le := binary.LittleEndian
	root := int(le.Uint32(graph))
	vtable := root - int(int32(le.Uint32(graph[root:])))
	versionSlot := root + int(le.Uint16(graph[vtable+4:]))
	version := versionSlot + int(le.Uint32(graph[versionSlot:]))
	chainsSlot := root + int(le.Uint16(graph[vtable+4+2*7:]))
	chains := chainsSlot + int(le.Uint32(graph[chainsSlot:]))

	for name, c := range map[string]struct {
		buf                  []byte
		table, field, substr string
		offset               int
	}{
		"nothing":             {nil, "MLXGraph", "", "0 bytes are too few", 0},
		"root behind the end": {patched(graph, 0, 0xfc, 0xff), "MLXGraph", "", "ends beyond the buffer", 0xfffc},
		"root of zero":        {patched(graph, 0, 0), "MLXGraph", "", "offset of 0 bytes", 0},
		"root not aligned":    {patched(graph, 0, byte(root+1)), "MLXGraph", "", "not aligned to 4", root + 1},
		"root negative":       {patched(graph, 0, 0, 0, 0, 0x80), "MLXGraph", "", "offset of 2147483648 bytes", 0},
		"vtable before": {patched(graph, root, 0xff, 0xff, 0, 0), "MLXGraph", "",
			"vtable of 4 bytes ends", root - 0xffff},
		"vtable behind": {patched(graph, root, 0, 0, 0xff, 0xff), "MLXGraph", "",
			"vtable of 4 bytes ends", root + 0x10000},
		"vtable odd place": {patched(graph, root, byte(root-vtable+1)), "MLXGraph", "",
			"not aligned to 2", vtable - 1},
		"vtable too short":  {patched(graph, vtable, 2), "MLXGraph", "", "vtable of 2 bytes", vtable},
		"vtable odd length": {patched(graph, vtable, 7), "MLXGraph", "", "vtable of 7 bytes", vtable},
		"vtable too long": {patched(graph, vtable, 0xfe, 0xff), "MLXGraph", "",
			"vtable of 65534 bytes ends", vtable},
		"field not aligned": {patched(graph, vtable+4, 6), "MLXGraph", "version", "not aligned to 4", root + 6},
		"field behind": {patched(graph, vtable+4, 0xfc), "MLXGraph", "version",
			"value of 4 bytes ends", root + 0xfc},
		"string behind": {patched(graph, versionSlot, 0xf0, 0xff), "MLXGraph", "version",
			"ends beyond", versionSlot + 0xfff0},
		"string too long": {patched(graph, version, 0xff, 0xff, 0xff, 0xff), "MLXGraph", "version",
			"vector of 4294967295 elements of 1 bytes", version},
		"string without NUL": {patched(graph, version+5, 'x'), "MLXGraph", "version",
			"does not end in NUL", version + 5},
		"string at the end": {patched(graph[:version+5], version, 1), "MLXGraph", "version",
			"string of 1 bytes ends", version + 5},
		"required missing": {patched(graph, vtable+4+2*7, 0, 0), "MLXGraph", "instruction_chains",
			"required field is missing", root},
		"vector too long": {patched(graph, chains, 0, 0, 0, 0x40), "MLXGraph", "instruction_chains",
			"1073741824 elements of 4 bytes", chains},
		"element is missing": {patched(graph, chains, 1), "MLXGraph", "instruction_chains",
			"1 elements of 4 bytes ends", chains},
	} {
		t.Run(name, func(t *testing.T) {
			err := Verify(MLXGraph(), c.buf, "")
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.table, e.Table)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.ErrorContains(t, err, c.substr)
			require.Equal(t, int64(c.offset), e.Offset, "%v", err)
		})
	}
}

func TestVerifyRefusesMeaning(t *testing.T) {
	type builder = *flatbuffers.Builder
	// instruction wraps what op adds to an Instruction in a graph.
	instruction := func(before func(builder) flatbuffers.UOffsetT, op func(builder, flatbuffers.UOffsetT)) []byte {
		return finish("", func(b builder) flatbuffers.UOffsetT {
			node := before(b)
			mlxgraph.InstructionStart(b)
			op(b, node)
			i := mlxgraph.InstructionEnd(b)
			instructions := b.CreateVectorOfTables([]flatbuffers.UOffsetT{i})
			mlxgraph.InstructionChainStart(b)
			mlxgraph.InstructionChainAddInstructions(b, instructions)
			chains := b.CreateVectorOfTables([]flatbuffers.UOffsetT{mlxgraph.InstructionChainEnd(b)})
			mlxgraph.MLXGraphStart(b)
			mlxgraph.MLXGraphAddInstructionChains(b, chains)
			return mlxgraph.MLXGraphEnd(b)
		})
	}
	noop := func(b builder) flatbuffers.UOffsetT {
		mlxgraph.NoopNodeStart(b)
		return mlxgraph.NoopNodeEnd(b)
	}
	inline := func(align int) []byte {
		return finish("ET12", func(b builder) flatbuffers.UOffsetT {
			b.StartVector(1, 5, 1) // an odd length, so that alignment is not a matter of luck
			b.Pad(5)
			b.EndVector(5)
			content := CreateAlignedBytes(b, []byte{1, 2, 3}, align)
			program.BackendDelegateInlineDataStart(b)
			program.BackendDelegateInlineDataAddData(b, content)
			data := b.CreateVectorOfTables([]flatbuffers.UOffsetT{program.BackendDelegateInlineDataEnd(b)})
			program.ProgramStart(b)
			program.ProgramAddBackendDelegateData(b, data)
			return program.ProgramEnd(b)
		})
	}
	unaligned := slices.IndexFunc([]int{1, 2, 4, 8},
		func(a int) bool { return Verify(Program(), inline(a), "ET12") != nil })
	require.NotEqual(t, -1, unaligned, "some smaller alignment breaks force_align")
	newField := func(slots int, identifier string) []byte {
		return finish(identifier, func(b builder) flatbuffers.UOffsetT {
			mlxgraph.MLXGraphStartInstructionChainsVector(b, 0)
			chains := b.EndVector(0)
			b.StartObject(slots + 1)
			if identifier == "" {
				mlxgraph.MLXGraphAddInstructionChains(b, chains)
			}
			b.PrependUint32Slot(slots, 7, 0)
			return b.EndObject()
		})
	}

	for name, c := range map[string]struct {
		schema     *Schema
		buf        []byte
		identifier string
		want       string // "" accepts
	}{
		"identifier": {Program(), finish("ET11",
			func(b builder) flatbuffers.UOffsetT { program.ProgramStart(b); return program.ProgramEnd(b) }),
			"ET12", `root (Program) at offset 4: file identifier "ET11", expected "ET12"`},
		"union": {MLXGraph(), instruction(noop, func(b builder, node flatbuffers.UOffsetT) {
			mlxgraph.InstructionAddOpType(b, mlxgraph.OpNodeNoopNode)
			mlxgraph.InstructionAddOp(b, node)
		}), "", ""},
		"unknown node": {MLXGraph(), instruction(noop, func(b builder, node flatbuffers.UOffsetT) {
			mlxgraph.InstructionAddOpType(b, 200)
			mlxgraph.InstructionAddOp(b, node)
		}), "", "instruction_chains[0].instructions[0] (Instruction.op) at offset 83: OpNode number 200 is unknown: this version knows 1 to 134"},
		"node without a type": {MLXGraph(), instruction(noop, func(b builder, node flatbuffers.UOffsetT) {
			mlxgraph.InstructionAddOp(b, node)
		}), "", "OpNode has a value but no type"},
		"type without a node": {MLXGraph(), instruction(noop, func(b builder, node flatbuffers.UOffsetT) {
			mlxgraph.InstructionAddOpType(b, mlxgraph.OpNodeNoopNode)
		}), "", "OpNode is of type NoopNode but has no value"},
		"no node": {MLXGraph(), instruction(noop, func(builder, flatbuffers.UOffsetT) {}),
			"", "instruction_chains[0].instructions[0] (Instruction.op) at offset 64: required field is missing"},
		"wrong node": {MLXGraph(), instruction(noop, func(b builder, node flatbuffers.UOffsetT) {
			mlxgraph.InstructionAddOpType(b, mlxgraph.OpNodeAddNode)
			mlxgraph.InstructionAddOp(b, node)
		}), "", "instruction_chains[0].instructions[0].op (AddNode.a) at offset 88: required field is missing"},
		"force_align kept": {Program(), inline(16), "ET12", ""},
		"force_align broken": {Program(), inline(1 << unaligned), "ET12",
			"backend_delegate_data[0] (BackendDelegateInlineData.data) at offset"},
		"new program field": {Program(), newField(8, "ET12"), "ET12", ""},
		"new graph field": {MLXGraph(), newField(15, ""), "",
			"field number 15 is not in this version of the schema"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Verify(c.schema, c.buf, c.identifier)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestVerifySharing: buffers of kilobytes that unfold to gigabytes are refused, those that share what real
// writers share are not.
func TestVerifySharing(t *testing.T) {
	chains := func(n, m int) []byte { // n chains share one vector of m offsets to one instruction
		return finish("", func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
			mlxgraph.NoopNodeStart(b)
			node := mlxgraph.NoopNodeEnd(b)
			mlxgraph.InstructionStart(b)
			mlxgraph.InstructionAddOpType(b, mlxgraph.OpNodeNoopNode)
			mlxgraph.InstructionAddOp(b, node)
			instructions := b.CreateVectorOfTables(slices.Repeat([]flatbuffers.UOffsetT{mlxgraph.InstructionEnd(b)}, m))
			mlxgraph.InstructionChainStart(b)
			mlxgraph.InstructionChainAddInstructions(b, instructions)
			chains := b.CreateVectorOfTables(slices.Repeat([]flatbuffers.UOffsetT{mlxgraph.InstructionChainEnd(b)}, n))
			mlxgraph.MLXGraphStart(b)
			mlxgraph.MLXGraphAddInstructionChains(b, chains)
			return mlxgraph.MLXGraphEnd(b)
		})
	}
	require.NoError(t, Verify(MLXGraph(), chains(10, 100), ""))
	bomb := chains(2000, 2000)
	require.Less(t, len(bomb), 20_000)
	require.ErrorContains(t, Verify(MLXGraph(), bomb, ""), "tables")

	kernels := func(n, size int) []byte { // n named slots share one string
		return finish("", func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
			name := b.CreateString(strings.Repeat("x", size))
			mlxgraph.SlotVariantStart(b)
			slot := mlxgraph.SlotVariantEnd(b)
			mlxgraph.NamedSlotStart(b)
			mlxgraph.NamedSlotAddName(b, name)
			mlxgraph.NamedSlotAddSlot(b, slot)
			slots := b.CreateVectorOfTables(slices.Repeat([]flatbuffers.UOffsetT{mlxgraph.NamedSlotEnd(b)}, n))
			mlxgraph.MLXGraphStartInstructionChainsVector(b, 0)
			chains := b.EndVector(0)
			mlxgraph.MLXGraphStart(b)
			mlxgraph.MLXGraphAddInstructionChains(b, chains)
			mlxgraph.MLXGraphAddNamedSlots(b, slots)
			return mlxgraph.MLXGraphEnd(b)
		})
	}
	require.NoError(t, Verify(MLXGraph(), kernels(100, 100_000), ""))
	require.ErrorContains(t, Verify(MLXGraph(), kernels(1000, 100_000), ""), "shared so often")
}

// TestVerifyDepth: no table of the two schemas nests in itself, so the schema is made by hand.
func TestVerifyDepth(t *testing.T) {
	s := &Schema{objects: []object{{name: "Nest", end: 6, fields: []field{{name: "nest", slot: 4, kind: tableValue}}}}}
	s.root = &s.objects[0]
	nested := func(n int) []byte {
		return finish("", func(b *flatbuffers.Builder) flatbuffers.UOffsetT {
			var inner flatbuffers.UOffsetT
			for range n {
				b.StartObject(1)
				b.PrependUOffsetTSlot(0, inner, 0)
				inner = b.EndObject()
			}
			return inner
		})
	}
	require.NoError(t, Verify(s, nested(maxDepth+1), ""))
	require.ErrorContains(t, Verify(s, nested(maxDepth+2), ""), "nest more than 64 deep")
}

// TestVerifyMutants flips bytes of good buffers. What Verify still accepts must unpack.
func TestVerifyMutants(t *testing.T) {
	for name, c := range map[string]struct {
		schema *Schema
		seed   []byte
	}{
		"program": {Program(), mustMarshal(t, Program(), sampleProgram())},
		"graph":   {MLXGraph(), mustMarshal(t, MLXGraph(), sampleGraph())},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			accepted := 0
			for range 20_000 {
				buf := slices.Clone(c.seed)
				for range 1 + r.IntN(3) {
					buf[r.IntN(len(buf))] = byte(r.Uint32())
				}
				if Verify(c.schema, buf, c.schema.identifier) == nil {
					accepted++
					require.NotNil(t, readAll(c.schema, buf))
				}
			}
			require.Positive(t, accepted)
			require.Less(t, accepted, 20_000)
		})
	}
}

func FuzzVerifyProgram(f *testing.F)  { fuzzVerify(f, Program(), sampleProgram()) }
func FuzzVerifyMLXGraph(f *testing.F) { fuzzVerify(f, MLXGraph(), sampleGraph()) }

func fuzzVerify(f *testing.F, s *Schema, sample Packer) {
	f.Add(mustMarshal(f, s, sample))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, buf []byte) {
		if Verify(s, buf, s.identifier) == nil {
			require.NotNil(t, readAll(s, buf))
		}
	})
}
