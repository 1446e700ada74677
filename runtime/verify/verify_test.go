package verify_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/verify"
	"github.com/etc-ml/etc/schema"
	schemaprogram "github.com/etc-ml/etc/schema/program"
)

const vocab = 8

// model is a language model program of two constants and a ring buffer.
func model(t testing.TB) codegen.File {
	t.Helper()
	m := &ir.Module{Metadata: []ir.Method{
		{Name: "get_max_seq_len", Values: []any{int64(32)}}, {Name: "get_vocab_size", Values: []any{int64(vocab)}},
		{Name: "get_max_prefill_chunk", Values: []any{int64(4)}}, {Name: "use_sampling", Values: []any{false}},
		{Name: "get_eos_ids", Values: []any{int64(1), int64(2)}},
	}}
	length := ir.Sym(&ir.Symbol{Lo: 1, Hi: 16})
	f := &ir.Func{Name: "forward", Body: &ir.Region{}}
	m.Entry = f
	tokens := f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), length))
	positions := f.NewParam("input_pos", ir.TensorType(ir.I64, length))
	err := ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		table := m.NewConstant("table", ir.StaticType(ir.F32, vocab, vocab),
			ir.Float32s([]int64{vocab, vocab}, make([]float32, vocab*vocab)...))
		scale := m.NewConstant("scale", ir.StaticType(ir.F32), ir.Float32s(nil, 2))
		ring := m.NewBuffer("ring", ir.StaticType(ir.F32, 1, 7, vocab))
		last := b.Value("take", &ir.AxisAttrs{Axis: 1}, b.Value("take", nil, table, tokens), -1) // [1,vocab]
		at := b.Value("item_int", nil, b.Value("take", nil, positions, 0))
		b.BufferOp("buffer_slice_update", ring, nil, b.Value("expand_dims", &ir.AxisAttrs{Axis: 1}, last), 1, at,
			b.Value("add_int", nil, at, 1))
		logits := b.Value("multiply", nil, last, scale)
		f.Body.Results, f.Outputs = []*ir.Value{logits}, []ir.Type{logits.Type}
	})
	require.NoError(t, err)
	require.NoError(t, ir.Verify(m))
	return codegen.File{Module: m, Jobs: 1}
}

// modelBytes is the file of a model that change has changed.
func modelBytes(t testing.TB, change func(*codegen.File)) []byte {
	t.Helper()
	f := model(t)
	if change != nil {
		change(&f)
	}
	path := filepath.Join(t.TempDir(), "model.pte")
	require.NoError(t, codegen.Write(t.Context(), path, f))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

// rewrite changes the program of a file and leaves its segments where they are.
func rewrite(t *testing.T, b []byte, change func(*schemaprogram.ProgramT)) []byte {
	t.Helper()
	h, err := schema.ReadExtendedHeader(b)
	require.NoError(t, err)
	p := schemaprogram.GetRootAsProgram(b[:h.ProgramSize], 0).UnPack()
	change(p)
	raw, err := schema.Marshal(schema.Program(), p)
	require.NoError(t, err)
	head, _ := schema.WithExtendedHeader(raw, h.SegmentSize, func(size uint64) uint64 {
		require.LessOrEqual(t, size, h.SegmentBase, "the segments begin where they did")
		return h.SegmentBase
	})
	return append(append(head, make([]byte, int(h.SegmentBase)-len(head))...), b[h.SegmentBase:]...)
}

// findings checks the bytes of a file.
func findings(t *testing.T, b []byte) []string {
	t.Helper()
	f, err := container.OpenBytes("m.pte", b)
	require.NoError(t, err)
	p, err := program.New(f)
	require.NoError(t, err)
	out := []string{}
	for _, x := range verify.Program(p) {
		out = append(out, x.String())
	}
	return out
}

// A file without a fault has no findings.
func TestValid(t *testing.T) {
	require.Empty(t, findings(t, modelBytes(t, nil)))
	require.Empty(t, findings(t, rewrite(t, modelBytes(t, nil), func(*schemaprogram.ProgramT) {})))
}

// Every check has a file that it finds something in. use_sampling against the output is requirement C13.
func TestFindings(t *testing.T) {
	set := func(name string, values ...any) func(*codegen.File) {
		return func(f *codegen.File) {
			for i := range f.Module.Metadata {
				if f.Module.Metadata[i].Name == name {
					f.Module.Metadata[i].Values = values
					return
				}
			}
			f.Module.Metadata = append(f.Module.Metadata, ir.Method{Name: name, Values: values})
		}
	}
	extra := func(key, text string) func(*codegen.File) {
		return func(f *codegen.File) {
			f.Extra = append(f.Extra, codegen.NamedBytes{Key: key, Bytes: []byte(text)})
		}
	}
	forward := func(p *schemaprogram.ProgramT) *schemaprogram.ExecutionPlanT { return p.ExecutionPlan[0] }
	output := func(p *schemaprogram.ProgramT) *schemaprogram.TensorT {
		plan := forward(p)
		return plan.Values[plan.Outputs[0]].Val.Value.(*schemaprogram.TensorT)
	}
	for _, test := range []struct {
		name    string
		change  func(*codegen.File)
		program func(*schemaprogram.ProgramT)
		want    []string
	}{
		{"use_sampling drifts (C13)", set("use_sampling", true), nil,
			[]string{"error: language-model: constant method use_sampling is true, but forward gives f32[1,8]"}},
		{"use_sampling is an int", set("use_sampling", int64(0)), nil, []string{
			"error: language-model: constant method use_sampling gives 0, want a bool",
			"error: metadata: m.pte: method use_sampling: a value of type Int, expected a bool"}},
		{"vocabulary", set("get_vocab_size", int64(9)), nil,
			[]string{"error: vocabulary: get_vocab_size is 9, forward gives 8 logits"}},
		{"stop token", set("get_eos_ids", int64(1), int64(8)), nil,
			[]string{"error: vocabulary: method get_eos_ids gives id 8, which is not in the vocabulary of 8 tokens"}},
		{"two first tokens", set("get_bos_id", int64(1), int64(2)), nil,
			[]string{"error: metadata: method get_bos_id gives 2 integers, want one"}},
		{"no stop tokens", set("get_eos_ids"), nil, []string{}},
		{"no layers", set("get_n_layers", int64(0)), nil,
			[]string{"error: metadata: method get_n_layers gives 0, want at least 1"}},
		{"layers as a double", set("get_n_layers", 2.0), nil,
			[]string{"error: metadata: m.pte: method get_n_layers, output 0: a value of type Double, expected integers"}},
		{"chunk and ring", set("get_max_prefill_chunk", int64(5)), nil,
			[]string{"warning: prefill-chunk: get_max_prefill_chunk is 5, but only chunks up to 4 are safe (a buffer of 7 positions wraps around): " +
				"etc run uses those, ExecuTorch's runners the declared ones, which answers long prompts wrong"}},
		{"smallest chunk", set("get_min_prefill_chunk", int64(5)), nil,
			[]string{"warning: prefill-chunk: get_min_prefill_chunk is 5, more than the largest chunk of 4: prompts are fed token by token"}},
		{"no JSON", extra("metadata.config.json", "{"), nil,
			[]string{"error: metadata: metadata.config.json is not valid JSON"}},
		{"JSON", extra("metadata.config.json", "{}"), nil, []string{}},
		{"no tokenizer", extra("metadata.tokenizer.json", "[]"), nil,
			[]string{"error: tokenizer: metadata.tokenizer.json: byte 0: expected '{', found '['"}},
		{"unused name", extra("left", "over"), nil,
			[]string{"note: named-data: 1 of 3 pieces of named data are used by no method, the first is \"left\""}},
		{"a value of one arm", func(f *codegen.File) {
			m := f.Module
			require.NoError(t, ir.Build(func() {
				b := &ir.Builder{Module: m, Region: m.Entry.Body}
				old := m.Entry.Body.Results[0]
				at := b.Value("item_int", nil, b.Value("take", nil, m.Entry.Params[1], 0))
				m.Entry.Body.Results[0] = b.If(at, func(b *ir.Builder) []*ir.Value {
					return []*ir.Value{b.Value("neg", nil, old)}
				}, func(b *ir.Builder) []*ir.Value {
					op := &ir.Op{Def: ir.LookupOp("undef")}
					op.Results = []*ir.Value{{Type: old.Type, Def: op}}
					b.Append(op)
					return op.Results
				})[0]
			}))
		}, nil, []string{"warning: if: method forward: what it gives may be undefined: "}},
		{"unused constant", func(f *codegen.File) {
			f.Module.NewConstant("idle", ir.StaticType(ir.F32), ir.Float32s(nil, 3))
		}, nil, []string{"note: constants: method forward: 1 of 3 constants are not used, the first is \"idle\""}},
		{"name twice", nil, func(p *schemaprogram.ProgramT) { p.NamedData = append(p.NamedData, p.NamedData[0]) },
			[]string{"warning: named-data: key \"table\" stands more than once; the first counts"}},
		{"method twice", nil, func(p *schemaprogram.ProgramT) {
			p.ExecutionPlan = append(p.ExecutionPlan,
				p.ExecutionPlan[1])
		},
			[]string{"error: metadata: method get_max_seq_len stands more than once"}},
		{"a constant method that computes", nil, func(p *schemaprogram.ProgramT) {
			plan := *forward(p)
			plan.Name = "get_n_layers"
			p.ExecutionPlan = append(p.ExecutionPlan, &plan)
		}, []string{"error: metadata: method get_n_layers computes, want a constant"}},
		{"ids in a list", nil, func(p *schemaprogram.ProgramT) {
			plan := p.ExecutionPlan[5]
			plan.Values = append(plan.Values, &schemaprogram.EValueT{Val: &schemaprogram.KernelTypesT{
				Type: schemaprogram.KernelTypesIntList, Value: &schemaprogram.IntListT{Items: []int64{0, 1}}}})
			plan.Outputs = []int32{2}
		}, []string{"warning: metadata: method get_eos_ids gives its ids in a list or a tensor; ExecuTorch's runners read Ints only"}},
		{"segments overlap", nil, func(p *schemaprogram.ProgramT) { p.Segments[3].Offset = p.Segments[2].Offset + 8 },
			[]string{"warning: segments: segment 3 at offset "}},
		{"kernel call", nil, func(p *schemaprogram.ProgramT) {
			forward(p).Operators = []*schemaprogram.OperatorT{{Name: "aten::add", Overload: "out"}}
			forward(p).Chains[0].Instructions = append(forward(p).Chains[0].Instructions,
				&schemaprogram.InstructionT{InstrArgs: &schemaprogram.InstructionArgumentsT{
					Type: schemaprogram.InstructionArgumentsKernelCall, Value: &schemaprogram.KernelCallT{}}})
		}, []string{"error: method: m.pte: method forward: holds the instruction kernel aten::add.out; only calls of the MLX delegate can be run"}},
		{"another backend", nil, func(p *schemaprogram.ProgramT) { forward(p).Delegates[0].Id = "XnnpackBackend" },
			[]string{
				"error: method: m.pte: method forward: is delegated to \"XnnpackBackend\"; only \"MLXBackend\" can be run",
				"note: named-data: 2 of 2 pieces of named data are used by no method, the first is \"table\""}},
		{"memory that is not planned", nil, func(p *schemaprogram.ProgramT) { output(p).AllocationInfo.MemoryId = 2 },
			[]string{"error: memory-plan: method forward: value 2 lies in memory 2, the method plans memories 1 to 1"}},
		{"beyond the memory", nil, func(p *schemaprogram.ProgramT) { output(p).AllocationInfo.MemoryOffsetLow = 16 },
			[]string{"error: memory-plan: method forward: value 2, 32 bytes at 16, does not lie within memory 1 of 32 bytes"}},
		{"far beyond the memory", nil, func(
			p *schemaprogram.ProgramT) {
			output(p).AllocationInfo.MemoryOffsetHigh = 1 << 31
		},
			[]string{"error: memory-plan: method forward: value 2, 32 bytes at 9223372036854775808, does not lie within memory 1 of 32 bytes"}},
		{"output without memory", nil, func(p *schemaprogram.ProgramT) { output(p).AllocationInfo = nil },
			[]string{"warning: memory-plan: method forward: output 0 has no planned memory: an ExecuTorch caller must provide some"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := modelBytes(t, test.change)
			if test.program != nil {
				b = rewrite(t, b, test.program)
			}
			got := findings(t, b)
			require.Len(t, got, len(test.want), "%q", got)
			for i := range got {
				require.Contains(t, got[i], test.want[i])
			}
		})
	}
}

// Large weights should begin on a page.
func TestAlignment(t *testing.T) {
	large := func(f *codegen.File) {
		shape := []int64{64 << 10 / 4}
		m := f.Module
		require.NoError(t, ir.Build(func() {
			b := &ir.Builder{Module: m, Region: m.Entry.Body}
			w := m.NewConstant("large", ir.StaticType(ir.F32, shape...),
				ir.Float32s(shape, make([]float32, shape[0])...))
			one := b.Value("slice", nil, w, 0, 0, 1)
			m.Entry.Body.Results[0] = b.Value("multiply", nil, m.Entry.Body.Results[0], one)
		}))
	}
	b := modelBytes(t, large)
	require.Empty(t, findings(t, b))
	moved := rewrite(t, append(b, make([]byte, 128)...), func(p *schemaprogram.ProgramT) {
		s := p.Segments[len(p.Segments)-1]
		s.Offset -= 128 // over the gap before it
	})
	got := findings(t, moved)
	require.Len(t, got, 1)
	require.Regexp(t, `^note: alignment: method forward: 1 of 1 weights of 65536 bytes and more do not begin on a multiple of 16384, the first is "large" at offset \d+: a GPU`, got[0])
}

// File opens; what the container refuses is a finding, what the system refuses an error.
func TestFile(t *testing.T) {
	for name, want := range map[string]string{
		"ItemInt_bool_1.pte":                "warning: item-int: method forward: %0 = item_int(x=%input0)",
		"Full_zero_dim_throws.pte":          "error: method: testdata/Full_zero_dim_throws.pte: method forward: chain 0, instruction 0 (FullNode): full: shape [0]: dim 0 must be positive",
		"init_chain_rewrites_const.pte":     "",
		"If_nested_scan_in_branch.pte":      "",
		"mutable_alias_value_semantics.pte": "",
	} {
		got, err := verify.File(filepath.Join("testdata", name))
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Len(t, got, 1, name)
		require.Contains(t, filepath.ToSlash(got[0].String()), want)
		require.Equal(t, got[0].Severity == verify.Error, verify.Invalid(got))
	}
	path := filepath.Join(t.TempDir(), "short.pte")
	require.NoError(t, os.WriteFile(path, modelBytes(t, nil)[:1000], 0o600))
	got, err := verify.File(path)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "container", got[0].Check)
	require.True(t, verify.Invalid(got))
	_, err = verify.File(filepath.Join(t.TempDir(), "missing.pte"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
