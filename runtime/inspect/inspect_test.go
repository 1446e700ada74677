package inspect_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/inspect"
	"github.com/etc-ml/etc/runtime/program"
)

// open reads the program of a file.
func open(t testing.TB, path string) *program.Program {
	t.Helper()
	p, err := program.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// write writes a module and reads its report.
func write(t testing.TB, f codegen.File) *inspect.Report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.pte")
	f.Jobs = 1
	require.NoError(t, codegen.Write(t.Context(), path, f))
	r := inspect.Read(open(t, path))
	r.File = "m.pte"
	return r
}

// constant adds a constant whose bytes are those of no other.
func constant(m *ir.Module, name string, d ir.DType, shape ...int64) *ir.Value {
	bytes := make([]byte, ir.Elements(shape)*int64(d.Size()))
	bytes[0] = byte(len(m.Constants) + 1)
	return m.NewConstant(name, ir.StaticType(d, shape...), ir.Bytes(d, shape, bytes))
}

// quantizedModel has an embedding of 8 bits, two linears of 4 bits, plain constants, and a KV cache.
func quantizedModel(t testing.TB) *ir.Module {
	t.Helper()
	m := &ir.Module{Metadata: []ir.Method{{Name: "get_max_seq_len", Values: []any{int64(16)}},
		{Name: "get_vocab_size", Values: []any{int64(64)}}}}
	f := &ir.Func{Name: "forward", Body: &ir.Region{}}
	m.Entry = f
	length := ir.Sym(&ir.Symbol{Lo: 1, Hi: 8})
	tokens := f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), length))
	f.NewParam("input_pos", ir.TensorType(ir.I64, length))
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		m.NewBuffer("keys", ir.StaticType(ir.BF16, 1, 16, 8))
		m.NewBuffer("values", ir.StaticType(ir.BF16, 1, 16, 8))
		f32 := ir.F32
		part := func(v *ir.Value) *ir.Value { return b.Value("take", nil, v, tokens) }
		x := b.Value("dequantize", &ir.DequantizeAttrs{GroupSize: 64, Bits: 8, Mode: "affine", Dtype: &f32},
			part(constant(m, "embedding.codes", ir.U32, 64, 16)), part(constant(m, "embedding.scales", ir.BF16, 64, 1)),
			part(constant(m, "embedding.biases", ir.BF16, 64, 1)))
		linear := func(name string) {
			x = b.Value("quantized_matmul",
				&ir.QuantizedMatmulAttrs{GroupSize: 32, Bits: 4, Mode: "affine", Transpose: true}, x,
				constant(m, name+".codes", ir.U32, 64, 8), constant(m, name+".scales", ir.BF16, 64, 2),
				constant(m, name+".biases", ir.BF16, 64, 2))
		}
		linear("first")
		linear("second")
		x = b.Value("rms_norm", &ir.NormAttrs{Eps: 1e-6}, x, constant(m, "norm", ir.BF16, 64))
		logits := b.Value("take", &ir.AxisAttrs{Axis: 1}, x, -1)
		f.Body.Results, f.Outputs = []*ir.Value{logits}, []ir.Type{logits.Type}
	}))
	require.NoError(t, ir.Verify(m))
	return m
}

// Quantized weights are found through the nodes that use them; codes, scales and biases count as one.
func TestStorage(t *testing.T) {
	r := write(t, codegen.File{Module: quantizedModel(t)})
	m, ok := r.Method("forward")
	require.True(t, ok)
	require.Empty(t, m.Problem)
	const small, large = 64*16*4 + 2*64*2, 64*8*4 + 2*64*2*2
	require.Equal(t, []inspect.Storage{
		{Format: "affine 4-bit g32", Tensors: 2, Elements: 2 * 64 * 64, Size: 2 * large, BitsPerWeight: 5},
		{Format: "affine 8-bit g64", Tensors: 1, Elements: 64 * 64, Size: small, BitsPerWeight: 8.5},
		{Format: "bf16", Tensors: 1, Elements: 64, Size: 128, BitsPerWeight: 16},
	}, m.Graph.Storage)
	require.EqualValues(t, 2*large+small+128, m.Graph.WeightSize)
	require.InDelta(t, float64(8*(2*large+small+128))/(3*64*64+64), m.Graph.BitsPerWeight, 1e-9)
	parts := map[string]string{}
	for _, w := range m.Graph.Weights {
		parts[w.Name] = w.Part
		require.Zero(t, w.Offset%w.Alignment)
		require.NotZero(t, w.Offset)
	}
	require.Equal(t, map[string]string{
		"embedding.codes": "codes", "embedding.scales": "scales", "embedding.biases": "biases", "norm": "",
		"first.codes": "codes", "first.scales": "scales", "first.biases": "biases",
		"second.codes": "codes", "second.scales": "scales", "second.biases": "biases",
	}, parts)
	require.Equal(t, []inspect.Buffer{{Name: "keys", DType: "bf16", Shape: []int{1, 16, 8}, Size: 256},
		{Name: "values", DType: "bf16", Shape: []int{1, 16, 8}, Size: 256}}, m.Graph.Buffers)
	require.Equal(t, []inspect.Count{{Node: "TakeNode", Count: 4}, {Node: "QuantizedMatmulNode", Count: 2},
		{Node: "DequantizeNode", Count: 1}, {Node: "RMSNormNode", Count: 1}}, m.Graph.NodeCounts)
}

// Bytes that two names share count once.
func TestSharedBytes(t *testing.T) {
	m := quantizedModel(t)
	tied := ir.Float32s([]int64{64}, make([]float32, 64)...)
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: m.Entry.Body}
		x := m.Entry.Body.Results[0]
		x = b.Value("add", nil, x, m.NewConstant("one", ir.StaticType(ir.F32, 64), tied))
		m.Entry.Body.Results[0] = b.Value("add", nil, x, m.NewConstant("other", ir.StaticType(ir.F32, 64), tied))
	}))
	r := write(t, codegen.File{Module: m})
	g := r.Methods[0].Graph
	require.Contains(t, g.Storage, inspect.Storage{Format: "f32", Tensors: 1, Elements: 64,
		Size: 256, BitsPerWeight: 32})
	require.Len(t, g.Weights, 12)
	require.Equal(t, g.Weights[10].Offset, g.Weights[11].Offset)
}

func TestText(t *testing.T) {
	r := write(t, codegen.File{Module: quantizedModel(t),
		Extra: []codegen.NamedBytes{{Key: "metadata.config.json", Bytes: []byte("{}")}}})
	// they depend on the schema's tables
	r.Size, r.ProgramSize, r.SegmentBase, r.SegmentSize = 40000, 3000, 16384, 20000
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	require.Equal(t, `m.pte, 39 KiB
program    2.9 KiB
segments   13 from offset 16384, 20 KiB
method     forward(tokens i64[1,1..8], input_pos i64[1..8]) -> f32[1,64]
  form     language model that gives logits; context 16, vocabulary 64, prefill in chunks of 8
  graph    8 nodes in 1 chain, 3 temporaries, 0 registers
  nodes    Take 4, QuantizedMatmul 2, Dequantize 1, RMSNorm 1
  weights  10 constants, 9.4 KiB, 6.22 bits per weight
           affine 4-bit g32: 2 tensors, 8,192 elements, 5.0 KiB, 5.00 bits per weight
           affine 8-bit g64: 1 tensor, 4,096 elements, 4.3 KiB, 8.50 bits per weight
           bf16: 1 tensor, 64 elements, 128 B, 16.00 bits per weight
  state    2 buffers, 512 B
           2 of bf16[1,16,8]
constants  get_max_seq_len 16, get_vocab_size 64
metadata   metadata.config.json 2 B
`, b.String())
}

// The facts of programs whose methods have other forms, or cannot be lifted.
func TestPrograms(t *testing.T) {
	for _, test := range []struct {
		file    string
		nodes   string
		text    []string
		problem string
	}{
		{"AddInt_3_4.pte", "", []string{"-> int", "form", "not that of a language model; run it with etc exec"}, ""},
		{"Full_zero_dim_throws.pte", "FullNode 1\n", []string{"cannot run", "shape [0]: dim 0 must be positive"},
			"full: shape [0]"},
		{"GatherQmm_f32_4.pte", "GatherQmmNode 1\n", []string{"affine 4-bit g"}, ""},
		{"If_nested_scan_in_branch.pte", "", []string{"in 4 chains"}, ""},
		{"init_chain_rewrites_const.pte", "", []string{"in 2 chains"}, ""},
		{"mutable_alias_value_semantics.pte", "", []string{"state", "1 buffer"}, ""},
	} {
		t.Run(test.file, func(t *testing.T) {
			p := open(t, filepath.Join("testdata", test.file))
			r := inspect.Read(p)
			var text, nodes, dot bytes.Buffer
			require.NoError(t, r.WriteText(&text))
			for _, want := range test.text {
				require.Contains(t, text.String(), want)
			}
			m := r.Methods[0]
			require.Contains(t, m.Problem, test.problem)
			require.Equal(t, test.problem == "", m.Problem == "")
			require.Nil(t, m.Model)
			require.NoError(t, m.Graph.WriteNodes(&nodes))
			if test.nodes != "" {
				require.Equal(t, test.nodes, nodes.String())
			}
			require.Equal(t, len(m.Graph.NodeCounts), strings.Count(nodes.String(), "\n"))
			encoded, err := json.Marshal(r)
			require.NoError(t, err)
			var again inspect.Report
			require.NoError(t, json.Unmarshal(encoded, &again))
			require.Equal(t, r.Methods[0].Graph.NodeCounts, again.Methods[0].Graph.NodeCounts)
			module, err := p.Module("forward")
			if test.problem != "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.NoError(t, inspect.WriteDot(&dot, module))
			checkDot(t, dot.String(), module)
		})
	}
}

// checkDot checks that edges join nodes that have been written, one of them for every operation.
func checkDot(t *testing.T, dot string, m *ir.Module) {
	t.Helper()
	known, boxes := map[string]bool{}, 0
	for line := range strings.SplitSeq(dot, "\n") {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] != "node" && strings.HasPrefix(f[1], "[shape=") {
			known[f[0]] = true
			if f[1] == "[shape=box," {
				boxes++
			}
		}
	}
	for line := range strings.SplitSeq(dot, "\n") {
		f := strings.Fields(line)
		if len(f) > 2 && f[1] == "->" {
			require.True(t, known[f[0]] && known[strings.TrimSuffix(f[2], ";")], line)
		}
	}
	ops := 0
	m.Entry.Body.Walk(func(*ir.Op) { ops++ })
	require.Equal(t, ops, boxes)
	require.Equal(t, strings.Count(dot, "{"), strings.Count(dot, "}"))
}

// Constant methods of every kind of value.
func TestConstants(t *testing.T) {
	m := quantizedModel(t)
	m.Metadata = append(m.Metadata, ir.Method{Name: "mixed", Values: []any{int64(-5), true, 0.5}},
		ir.Method{Name: "none"})
	r := write(t, codegen.File{Module: m})
	require.Equal(t, []inspect.Constant{
		{Name: "get_max_seq_len", Values: []any{int64(16)}}, {Name: "get_vocab_size", Values: []any{int64(64)}},
		{Name: "mixed", Values: []any{int64(-5), true, 0.5}}, {Name: "none", Values: []any{}},
	}, r.Constants)
	_, ok := r.Method("mixed")
	require.False(t, ok)
}

// Whatever a file holds, there is a report of it and the report has a text.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.pte"))
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := container.OpenBytes("fuzz.pte", b)
		if err != nil {
			return
		}
		p, err := program.New(file)
		if err != nil {
			return
		}
		r := inspect.Read(p)
		var out bytes.Buffer
		if err := r.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Methods {
			if m.Graph == nil {
				continue
			}
			if err := m.Graph.WriteWeights(&out); err != nil {
				t.Fatal(err)
			}
		}
	})
}
