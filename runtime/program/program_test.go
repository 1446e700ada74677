package program

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/container/containertest"
	"github.com/etc-ml/etc/schema/mlxgraph"
	wire "github.com/etc-ml/etc/schema/program"
)

// TestFilesOfOthers: every file lifts to a module that verifies, prints, and reads back from its text with
// the file's weights. What a few of them are is in testdata/lifted.
func TestFilesOfOthers(t *testing.T) {
	texts, err := filepath.Glob("testdata/lifted/*.ir")
	require.NoError(t, err)
	require.NotEmpty(t, texts)
	for name, data := range files(t) {
		t.Run(name, func(t *testing.T) {
			p := openBytes(t, name, data)
			require.Equal(t, []string{"forward"}, p.Methods())
			m, err := p.Module("forward")
			require.NoError(t, err)
			require.NoError(t, ir.Verify(m))
			text := m.String()
			again, err := ir.Parse(text)
			require.NoError(t, err)
			require.Equal(t, text, again.String())
			require.NoError(t, p.Bind(again))
			require.NoError(t, ir.Verify(again))
			for i, c := range m.Constants {
				want, err := ir.ReadData(c.Data)
				require.NoError(t, err)
				got, err := ir.ReadData(again.Constants[i].Data)
				require.NoError(t, err)
				require.True(t, string(want) == string(got), c.Name)
			}
			golden := filepath.Join("testdata", "lifted", strings.TrimSuffix(name, ".pte")+".ir")
			if want, err := os.ReadFile(golden); err == nil {
				require.Equal(t, string(want), text)
			}
		})
	}
}

// TestRegistersAreTakenLiterally: in the exporter's file one If of the eight reads a register that was
// overwritten since it held the condition (research, part 1, item 7).
func TestRegistersAreTakenLiterally(t *testing.T) {
	name := "qwen35moe-tiny-4w-g32-scan.noweights.pte"
	m, err := openBytes(t, name, files(t)[name]).Module("forward")
	require.NoError(t, err)
	conditions := map[string]int{}
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == "if" {
			conditions[op.Input("cond").Def.Def.Name]++
		}
	})
	require.Equal(t, map[string]int{"floor_divide_int": 7, "sym_size": 1}, conditions)
	require.Len(t, m.Derived, 25, "biases that the init chain makes of scales")
	for _, d := range m.Derived {
		require.Zero(t, d.Cell.Value.Type.Rank())
		require.Equal(t, 2, d.Value.Type.Rank())
	}
}

// TestMetadata: constant methods of ints, bools and floats; others are no metadata of a module.
func TestMetadata(t *testing.T) {
	file := takeApart(t, files(t)["AddInt_3_4.pte"])
	value := func(kind wire.KernelTypes, v any) *wire.EValueT {
		return &wire.EValueT{Val: &wire.KernelTypesT{Type: kind, Value: v}}
	}
	plan := func(name string, values ...*wire.EValueT) {
		p := &wire.ExecutionPlanT{Name: name, Values: values, Chains: []*wire.ChainT{{}},
			NonConstBufferSizes: []int64{0}}
		for i := range values {
			p.Outputs = append(p.Outputs, int32(i))
		}
		file.Program.ExecutionPlan = append(file.Program.ExecutionPlan, p)
	}
	plan("get_max_seq_len", value(wire.KernelTypesInt, &wire.IntT{IntVal: 7}))
	plan("name", value(wire.KernelTypesString, &wire.StringT{StringVal: "x"}))
	plan("mixed", value(wire.KernelTypesBool, &wire.BoolT{BoolVal: true}),
		value(wire.KernelTypesDouble, &wire.DoubleT{DoubleVal: 0.5}))
	data, err := file.Bytes(alignment)
	require.NoError(t, err)
	p := openBytes(t, "test.pte", data)
	want := []ir.Method{{Name: "get_max_seq_len", Values: []any{int64(7)}}, {Name: "mixed", Values: []any{true, 0.5}}}
	require.Equal(t, want, p.Metadata)
	m, err := p.Module("forward")
	require.NoError(t, err)
	require.Equal(t, want, m.Metadata)
}

// TestModuleErrors: programs that hold something else than one call of the delegate over the method's inputs.
func TestModuleErrors(t *testing.T) {
	forward := func(f *containertest.Parts) *wire.ExecutionPlanT { return f.Program.ExecutionPlan[0] }
	call := func(f *containertest.Parts) *wire.DelegateCallT {
		return forward(f).Chains[0].Instructions[0].InstrArgs.Value.(*wire.DelegateCallT)
	}
	for _, test := range []struct {
		name, method string
		edit         func(f *containertest.Parts)
		want         string
	}{
		{"no such method", "backward", func(*containertest.Parts) {},
			`method backward: the file has no such method; it has ["forward"]`},
		{"a kernel", "forward", func(f *containertest.Parts) {
			forward(f).Operators = []*wire.OperatorT{{Name: "aten::add", Overload: "out"}}
			forward(f).Chains[0].Instructions = append(forward(f).Chains[0].Instructions,
				&wire.InstructionT{InstrArgs: &wire.InstructionArgumentsT{
					Type: wire.InstructionArgumentsKernelCall, Value: &wire.KernelCallT{Args: []int32{0}}}})
		}, "method forward: holds the instruction kernel aten::add.out; only calls of the MLX delegate can be run"},
		{"two calls", "forward", func(f *containertest.Parts) {
			forward(f).Chains[0].Instructions = append(forward(f).Chains[0].Instructions,
				forward(f).Chains[0].Instructions[0])
		}, "method forward: has 2 delegate calls, want one call of the MLX delegate"},
		{"another delegate", "forward", func(f *containertest.Parts) { forward(f).Delegates[0].Id = "CoreMLBackend" },
			`method forward: is delegated to "CoreMLBackend"; only "MLXBackend" can be run`},
		{"an input of the delegate that is none of the method", "forward",
			func(f *containertest.Parts) { forward(f).Inputs = forward(f).Inputs[:1] },
			"method forward: delegate input 1 is value 1, which is no input of the method"},
		{"an output that is not computed", "forward", func(f *containertest.Parts) {
			forward(f).Values = append(forward(f).Values, forward(f).Values[0])
			forward(f).Outputs = append(forward(f).Outputs, int32(len(forward(f).Values)-1))
		}, "which the delegate does not compute"},
		{"a graph that does not lift", "forward", func(f *containertest.Parts) {
			f.Graph.InstructionChains[0].Instructions = f.Graph.InstructionChains[0].Instructions[1:]
		}, "method forward: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := takeApart(t, files(t)["Scan_twooriginals_axis0.pte"])
			require.NotNil(t, call(file))
			test.edit(file)
			data, err := file.Bytes(alignment)
			require.NoError(t, err)
			m, err := openBytes(t, "dir/test.pte", data).Module(test.method)
			require.Nil(t, m)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "dir/test.pte: ")
			require.ErrorIs(t, err, container.ErrInvalid)
		})
	}
}

func TestOpen(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none.pte"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, container.ErrInvalid)
	path := filepath.Join(t.TempDir(), "short.pte")
	require.NoError(t, os.WriteFile(path, []byte("not a program"), 0o644))
	_, err = Open(path)
	require.ErrorIs(t, err, container.ErrInvalid)
	require.ErrorContains(t, err, path)
	p, err := Open("../container/testdata/AddInt_3_4.pte")
	require.NoError(t, err)
	require.NoError(t, p.Close())
}

// TestConstants: views of the map that read like any data.
func TestConstants(t *testing.T) {
	name := "GatherQmm_f32_4.pte"
	m, err := openBytes(t, name, files(t)[name]).Module("forward")
	require.NoError(t, err)
	for _, c := range m.Constants {
		d, ok := c.Data.(*Constant)
		require.True(t, ok)
		require.Equal(t, "file("+c.Name+")", d.Provenance())
		whole, err := ir.ReadData(d)
		require.NoError(t, err)
		require.Equal(t, d.Bytes(), whole)
		p := make([]byte, 10)
		n, err := d.ReadAt(p, int64(len(whole)-4))
		require.Equal(t, 4, n)
		require.Equal(t, io.EOF, err)
		require.Equal(t, whole[len(whole)-4:], p[:4])
		_, err = d.ReadAt(p, -1)
		require.Error(t, err)
		_, err = d.ReadAt(p, int64(len(whole)))
		require.Equal(t, io.EOF, err)
	}
}

// TestBind: constants of a text get the file's bytes by name, and only bytes that fit.
func TestBind(t *testing.T) {
	name := "GatherQmm_f32_4.pte"
	file := takeApart(t, files(t)[name])
	// Another name for the segment of the scales.
	for _, n := range file.Program.NamedData {
		if n.Key == "n/c1" {
			file.Program.NamedData = append(file.Program.NamedData,
				&wire.NamedDataT{Key: "twin", SegmentIndex: n.SegmentIndex})
		}
	}
	data, err := file.Bytes(alignment)
	require.NoError(t, err)
	p := openBytes(t, name, data)
	text := func(constants string) *ir.Module {
		m, err := ir.Parse("module {\n" + constants + "\nentry f(%x: f32[]) {\nreturn %x: f32[]\n}\n}")
		require.NoError(t, err)
		return m
	}
	m := text("constant @\"n/c1\" : f32[4,32,2]\nconstant @twin : bf16[2,256]\nconstant @\"n/c2\" : f32[256]")
	require.NoError(t, p.Bind(m))
	require.Equal(t, m.Constants[0].Data.Provenance(), m.Constants[1].Data.Provenance(),
		"one segment is stored once again")
	require.NotEqual(t, m.Constants[0].Data.Provenance(), m.Constants[2].Data.Provenance())
	require.NoError(t, ir.Verify(m))
	require.EqualError(t, p.Bind(text("constant @none : f32[]")),
		name+`: no named data "none", which the module's constant needs`)
	require.EqualError(t, p.Bind(text("constant @twin : f32[3]")),
		name+`: named data "twin" has 1024 bytes, constant @twin of type f32[3] needs 12`)
	require.ErrorIs(t, p.Bind(text("constant @none : f32[]")), container.ErrInvalid)
}

// TestTakenApart: the helper of the tests and of the fuzz target puts files together that lift alike.
func TestTakenApart(t *testing.T) {
	for name, data := range files(t) {
		want, err := openBytes(t, name, data).Module("forward")
		require.NoError(t, err)
		again, err := takeApart(t, data).Bytes(alignment)
		require.NoError(t, err)
		got, err := openBytes(t, name, again).Module("forward")
		require.NoError(t, err)
		require.Equal(t, want.String(), got.String())
	}
	_, ok := mlxgraph.NewNode("AddNode")
	require.True(t, ok)
}
