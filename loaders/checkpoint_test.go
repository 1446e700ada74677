package loaders

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/loaders/synthetic"
)

func TestArchitectures(t *testing.T) {
	require.Equal(t, huggingface.Architectures(), Architectures(),
		"every configuration that is read must have a builder")
	families := map[string]bool{}
	for _, model := range tinies {
		c := openCheckpoint(t, chatCheckpoint(model.name))
		require.Contains(t, Architectures(), c.Architecture())
		families[c.Family()] = true
	}
	for _, test := range chats {
		families[test.family] = true
	}
	for _, f := range huggingface.Families {
		require.True(t, families[f.Name], "%s: a checkpoint in testdata is of every family", f.Name)
	}
	_, ok := findArchitecture(nil)
	require.False(t, ok)
}

// chats are the trained checkpoints with what their modules must be.
var chats = []struct {
	name, family string
	options      Options
	counts       map[string]int // of operations
	buffers      map[string]string
	methods      []ir.Method // after the first
	logits       string
}{
	{
		name: "qwen35moe-chat", family: "qwen35moe", options: Options{MaxSeqLen: 512},
		counts: map[string]int{
			"linear": 3*5 + 1*4 + 4*5 + 1, "embedding": 1, "gated_delta_rule": 3, "conv1d": 3, "sdpa": 1, "rope": 2,
			"rms_norm": 4*2 + 3*3 + 2 + 1,
			"top_k":    4, "softmax": 4, "switch_mlp": 4, "load": 3*2 + 2, "store": 3 * 2, "buffer_slice_update": 2,
			"equal": 1, "where": 3 * 2,
			"item_int": 1, "sym_size": 1, "add_int": 1, "transpose": 4, "sample": 1, "contiguous": 3,
		},
		buffers: map[string]string{
			"layers.0.linear_attn.conv_state":      "bf16[1,4,256]",
			"layers.0.linear_attn.recurrent_state": "f32[1,4,32,32]", "layers.3.self_attn.k_cache": "bf16[1,2,512,64]",
		},
		methods: []ir.Method{
			{Name: "get_max_seq_len", Values: []any{int64(512)}}, {Name: "get_vocab_size", Values: []any{int64(768)}},
			{Name: "get_n_layers", Values: []any{int64(4)}},
			{Name: "get_max_prefill_chunk", Values: []any{int64(511)}}, {Name: "use_kv_cache", Values: []any{true}},
			{Name: "use_sdpa_with_kv_cache", Values: []any{false}},
			{Name: "enable_dynamic_shape", Values: []any{true}}, {Name: "use_sampling", Values: []any{false}},
			{Name: "get_eos_ids", Values: []any{int64(762), int64(760)}},
		},
		logits: "bf16",
	},
	{
		name: "gemma4-chat", family: "gemma4",
		counts: map[string]int{
			"linear": 5*7 + 6 + 1, "embedding": 1, "sdpa": 6, "rope": 12, "rms_norm": 6*7 + 1, "gelu": 6, "load": 12,
			"buffer_slice_update": 5*4 + 2,
			"item_int":            1, "sym_size": 2, "mod_int": 1, "logical_and": 1, "transpose": 6 * 4,
			"tanh": 1, "sample": 1,
		},
		buffers: map[string]string{"layers.0.self_attn.k_cache": "bf16[1,2,127,32]",
			"layers.5.self_attn.v_cache": "bf16[1,1,4096,64]"},
		methods: []ir.Method{
			{Name: "get_max_seq_len", Values: []any{int64(4096)}}, {Name: "get_vocab_size", Values: []any{int64(960)}},
			{Name: "get_n_layers", Values: []any{int64(6)}},
			{Name: "get_max_prefill_chunk", Values: []any{int64(64)}}, {Name: "use_kv_cache", Values: []any{true}},
			{Name: "use_sdpa_with_kv_cache", Values: []any{false}},
			{Name: "enable_dynamic_shape", Values: []any{true}}, {Name: "use_sampling", Values: []any{false}},
			{Name: "get_bos_id", Values: []any{int64(2)}},
			{Name: "get_eos_ids", Values: []any{int64(5), int64(1)}},
		},
		logits: "f32",
	},
}

// TestModule checks what is built of the trained checkpoints: operations, state, metadata, inputs, outputs.
func TestModule(t *testing.T) {
	for _, test := range chats {
		t.Run(test.name, func(t *testing.T) {
			c := openCheckpoint(t, chatCheckpoint(test.name))
			require.Equal(t, test.family, c.Family())
			m := build(t, c, test.options)
			require.NoError(t, ir.Verify(m))

			counts := map[string]int{}
			m.Entry.Body.Walk(func(op *ir.Op) { counts[op.Def.Name]++ })
			for name, n := range test.counts {
				require.Equal(t, n, counts[name], name)
			}
			for name, want := range test.buffers {
				i := slices.IndexFunc(m.Buffers, func(b *ir.Buffer) bool { return b.Name == name })
				require.GreaterOrEqual(t, i, 0, name)
				require.Equal(t, want, m.Buffers[i].Type.String())
			}
			require.Equal(t, test.methods, m.Metadata)

			require.Equal(t, "i64[1]", m.Entry.Outputs[0].String())
			last := m.Entry.Params[len(m.Entry.Params)-1]
			require.Equal(t, "temperature f32[1]", last.Param+" "+last.Type.String())
			for i, axis := range []int{1, 0} {
				lo, hi := m.Entry.Params[i].Type.Shape[axis].Bounds()
				chunk := test.methods[3].Values[0].(int64)
				require.Equal(t, []int64{1, chunk}, []int64{lo, hi}, "requirement: S and P go up to the prefill chunk")
			}

			written := text(t, m)
			parsed, err := ir.Parse(written)
			require.NoError(t, err)
			require.Equal(t, written, text(t, parsed))
		})
	}
}

// TestSamplerIsLast takes the sampler off a module: what remains must be the module that never had one
// (requirement E3), and its logits have the authors' dtype (requirement E1).
func TestSamplerIsLast(t *testing.T) {
	for _, test := range chats {
		t.Run(test.name, func(t *testing.T) {
			c := openCheckpoint(t, chatCheckpoint(test.name))
			without := build(t, c, Options{NoSampler: true})
			require.Len(t, without.Entry.Params, 2)
			require.Equal(t, test.logits, without.Entry.Outputs[0].DType.String())
			require.Equal(t, without.Entry.Params[0].Type.Shape[1], without.Entry.Outputs[0].Shape[1])

			m := build(t, c, Options{})
			body := m.Entry.Body
			n := len(body.Ops)
			require.Equal(t, []string{"take", "sample"}, []string{body.Ops[n-2].Def.Name, body.Ops[n-1].Def.Name})
			logits := body.Ops[n-2].Input("x")
			body.Ops, body.Results = body.Ops[:n-2], []*ir.Value{logits}
			m.Entry.Params, m.Entry.Outputs = m.Entry.Params[:2], []ir.Type{logits.Type}
			require.Equal(t, text(t, without), text(t, m))
		})
	}
}

// TestFidelity compares logits with those of transformers in float32 (testdata/*.logits.safetensors): after
// a short prompt and one that is longer than chunks and windows, and after more tokens one by one. The
// bound is the error of transformers' own bf16 run, which the files record; the aim is 1e-3.
func TestFidelity(t *testing.T) {
	const most = 1e-5
	for _, test := range chats {
		t.Run(test.name, func(t *testing.T) {
			recorded, err := safetensors.Open("testdata/" + test.name + ".logits.safetensors")
			require.NoError(t, err)
			defer recorded.Close()
			c := openCheckpoint(t, chatCheckpoint(test.name))
			for _, chunk := range []int{17, 64} {
				m := build(t, c, Options{MaxSeqLen: 512, MaxPrefillChunk: chunk, NoSampler: true})
				s := newSession(t, m)
				for _, prompt := range []string{"prompt0", "prompt9"} {
					ids, greedy := readInts(t, recorded, prompt+".ids"), readInts(t, recorded, prompt+".greedy_ids")
					logits := s.feed(ids, 0, chunk)
					logits = append(logits, s.feed(greedy[:len(greedy)-1], len(ids), 1)...)
					for i, id := range greedy {
						require.EqualValues(t, id, argmax(logits[len(ids)-1+i]), "greedy token %d", i)
					}
					tensor, _ := recorded.Tensor(prompt + ".logits")
					want, mean := readFloats(t, tensor), 0.0
					for i, w := range want {
						row := logits[len(ids)-1]
						if i >= len(row) {
							row = logits[len(logits)-1]
						}
						mean += math.Abs(float64(w-row[i%len(row)])) / float64(len(want))
					}
					bf16, err := strconv.ParseFloat(recorded.Metadata()[prompt+".bf16_error"], 64)
					require.NoError(t, err)
					require.Less(t, mean, min(most, bf16))
				}
			}
		})
	}
}

func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

// TestFiles checks that a checkpoint gives its text files as they are, and its special tokens.
func TestFiles(t *testing.T) {
	for _, test := range chats {
		dir := chatCheckpoint(test.name)
		c := openCheckpoint(t, dir)
		for name, have := range map[string][]byte{
			huggingface.ConfigFile:           c.Model.Files.Config,
			huggingface.GenerationConfigFile: c.Model.Files.GenerationConfig,
			huggingface.TokenizerFile:        c.Model.Files.Tokenizer,
			huggingface.TokenizerConfigFile:  c.Model.Files.TokenizerConfig,
		} {
			want, err := os.ReadFile(dir + "/" + name)
			require.NoError(t, err)
			require.Equal(t, want, have, name)
		}
		require.Contains(t, c.Model.ChatTemplate, "add_generation_prompt")
	}
	qwen, gemma := openCheckpoint(t, chatCheckpoint("qwen35moe-chat")), openCheckpoint(t, chatCheckpoint("gemma4-chat"))
	require.Equal(t, "Qwen3_5MoeForCausalLM", qwen.Architecture())
	_, ok := qwen.BOS()
	require.False(t, ok)
	id, ok := gemma.BOS()
	require.True(t, ok)
	require.Equal(t, 2, id)
	require.Equal(t, []int{762, 760}, qwen.EOS())
}

// besides are tensors of modules beside the language model.
func besides(names ...string) func([]stored) []stored {
	return func(list []stored) []stored {
		for _, name := range names {
			list = append(list, stored{name, safetensors.BF16, []int{1}, []byte{0, 0}})
		}
		return list
	}
}

// TestSources checks which tensors are used and which are skipped, and that nothing depends on the place
// of the checkpoint.
func TestSources(t *testing.T) {
	dir := generate(t, smallQwen(nil))
	other := rewrite(t, dir, besides("model.visual.a", "visual.b", "model.vision_tower.c",
		"model.embed_vision.d", "model.audio_tower.e",
		"mtp.fc.weight", "model.mtp_layers.f", "model.language_model.mtp.g"), nil)
	plain, extended := openCheckpoint(t, dir), openCheckpoint(t, other)
	require.Empty(t, plain.Skipped())
	require.Equal(t, map[string]int{builder.Vision: 4, builder.Audio: 1, builder.MultiToken: 3}, extended.Skipped())

	byName := map[string]Source{}
	for _, s := range plain.Sources() {
		byName[s.Name] = s
	}
	files, err := safetensors.OpenCheckpoint(dir)
	require.NoError(t, err)
	defer files.Close()
	require.Len(t, byName, len(files.Tensors()))
	require.Len(t, extended.Sources(), len(byName))
	for _, s := range extended.Sources() {
		p := byName[s.Name]
		require.Equal(t, []any{p.DType, p.Shape, p.Size, safetensors.SingleFileName},
			[]any{s.DType, s.Shape, s.Size, s.File})
		a, err := io.ReadAll(p.Reader())
		require.NoError(t, err)
		b, err := io.ReadAll(s.Reader())
		require.NoError(t, err)
		require.EqualValues(t, s.Size, len(a))
		require.Equal(t, a, b)
	}

	a, b := build(t, plain, Options{}), build(t, extended, Options{})
	require.Equal(t, text(t, a), text(t, b))
	seen := map[string]string{}
	for i, constant := range a.Constants {
		provenance := constant.Data.Provenance()
		require.Equal(t, provenance, b.Constants[i].Data.Provenance())
		require.NotContains(t, provenance, dir)
		require.Empty(t, seen[provenance], "constants of one provenance: %s", constant.Name)
		seen[provenance] = constant.Name
	}
	require.Equal(t, "layers.0.linear_attn.dt_bias",
		seen["f32(tensor(model.language_model.layers.0.linear_attn.dt_bias,bf16[4]))"])
	require.Equal(t, "layers.0.linear_attn.norm.weight",
		seen["tensor(model.language_model.layers.0.linear_attn.norm.weight,f32[8])"])
}

// TestOpenRefuses: everything that does not fit is in one error.
func TestOpenRefuses(t *testing.T) {
	drop := func(names ...string) func([]stored) []stored {
		return func(list []stored) []stored {
			return slices.DeleteFunc(list, func(s stored) bool { return slices.Contains(names, s.name) })
		}
	}
	change := func(name string, f func(*stored)) func([]stored) []stored {
		return func(list []stored) []stored {
			for i := range list {
				if list[i].name == name {
					f(&list[i])
				}
			}
			return list
		}
	}
	reshape := func(shape ...int) func(*stored) { return func(s *stored) { s.shape = shape } }
	prefix := "model.language_model."
	qwen, gemma := generate(t, smallQwen(nil)), generate(t, smallGemma(nil))
	var many []string // found in time in proportion to them
	for i := range 30000 {
		many = append(many, fmt.Sprint("other.", i))
	}
	tests := []struct {
		name     string
		dir      string
		tensors  func([]stored) []stored
		config   func(map[string]any)
		messages []string
	}{
		{"missing", qwen, drop(prefix+"norm.weight", prefix+"layers.1.self_attn.q_proj.weight", "lm_head.weight"), nil,
			[]string{
				": 3 tensors do not fit config.json, which describes a Qwen3_5MoeForConditionalGeneration; use the config.json that belongs to the weights, and complete files:",
				"\n\tmodel.language_model.layers.1.self_attn.q_proj.weight: expected BF16, F16 or F32 [128,32], found none",
				"\n\tmodel.language_model.norm.weight: expected BF16, F16 or F32 [32], found none",
				"\n\tlm_head.weight: expected BF16, F16 or F32 [48,32], found none"}},
		{"missing, plain names", gemma, chain(plainNames, drop("model.layers.0.layer_scalar")), flatten, []string{
			": 1 tensor does not fit config.json, which describes a Gemma4ForCausalLM",
			"\n\tmodel.layers.0.layer_scalar: expected BF16, F16 or F32 [1], found none"}},
		{"missing expert", qwen, chain(splitExperts, drop(prefix+"layers.2.mlp.experts.5.up_proj.weight")), nil,
			[]string{
				": 1 tensor does", "\n\tmodel.language_model.layers.2.mlp.experts.5.up_proj.weight: expected BF16, F16 or F32 [24,32], found none"}},
		{"unknown", gemma, besides(prefix+"layers.0.self_attn.q_proj.bias", "other"), nil, []string{
			": 2 tensors do", "\n\tmodel.language_model.layers.0.self_attn.q_proj.bias: expected no such tensor, found BF16 [1]", "\n\tother: expected no such tensor, found BF16 [1]"}},
		{"unknown by the thousand", gemma, besides(many...), nil, []string{": 30000 tensors do", "\n\tand 29900 more"}},
		{"value projection in a full layer", gemma, besides(prefix + "layers.2.self_attn.v_proj.weight"), nil, []string{
			"\n\tmodel.language_model.layers.2.self_attn.v_proj.weight: expected no such tensor, found BF16 [1]"}},
		{"shape", qwen, change(prefix+"layers.0.linear_attn.conv1d.weight", reshape(64, 4, 1)), nil, []string{
			": 1 tensor does", "\n\tmodel.language_model.layers.0.linear_attn.conv1d.weight: expected BF16, F16 or F32 [64,1,4], found BF16 [64,4,1]"}},
		{"dtype", qwen, change(prefix+"layers.0.linear_attn.A_log", func(s *stored) { s.dtype = safetensors.I32 }), nil,
			[]string{
				"\n\tmodel.language_model.layers.0.linear_attn.A_log: expected BF16, F16 or F32 [4], found I32 [4]"}},
		{"dtype that graphs lack", qwen,
			change(prefix+"norm.weight", func(s *stored) { s.dtype, s.shape = safetensors.F8E4M3, []int{64} }), nil,
			[]string{
				"\n\tmodel.language_model.norm.weight: expected BF16, F16 or F32 [32], found F8_E4M3 [64]"}},
		{"dtypes of experts", qwen, chain(splitExperts,
			change(prefix+"layers.0.mlp.experts.3.down_proj.weight", func(s *stored) { *s = s.as(safetensors.F32) })),
			nil, []string{
				": 1 tensor does", "\n\tmodel.language_model.layers.0.mlp.experts.3.down_proj.weight: expected the dtype of the first, bf16, found f32"}},
		{"twice", gemma, besides("model.norm.weight"), nil, []string{
			": 1 tensor does", "\n\tmodel.norm.weight: expected one tensor of this name in the language model, found it beside model.language_model.norm.weight"}},
		{"other sizes", gemma, nil, func(
			root map[string]any) {
			root["text_config"].(map[string]any)["intermediate_size"] = 44.0
		}, []string{
			": 15 tensors do", "\n\tmodel.language_model.layers.4.mlp.down_proj.weight: expected BF16, F16 or F32 [32,44], found BF16 [32,40]"}},
		{"other architecture", qwen, nil,
			func(root map[string]any) { root["architectures"] = []string{"LlamaForCausalLM"} }, []string{
				`LlamaForCausalLM`, strings.Join(Architectures(), ", ")}},
		{"quantized", qwen, nil, func(root map[string]any) { root["quantization_config"] = map[string]any{"quant_method": "gptq"} }, []string{
			`config.json: expected weights in bf16, f16, f32, fp8 or MX formats, or those of mlx-lm, found the quantization {"quant_method":"gptq"}; use the original checkpoint`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := rewrite(t, test.dir, test.tensors, test.config)
			_, err := Open(dir)
			require.Error(t, err)
			require.True(t, strings.HasPrefix(err.Error(), dir), err.Error())
			for _, message := range test.messages {
				require.ErrorContains(t, err, message)
			}
		})
	}
	_, err := Open(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestHeadBesideTied: a head that is there is used, though the configuration ties it to the embedding.
func TestHeadBesideTied(t *testing.T) {
	dir := generate(t, smallQwen(nil))
	tied := rewrite(t, dir, nil, func(root map[string]any) { root["tie_word_embeddings"] = true })
	m := build(t, openCheckpoint(t, tied), Options{})
	require.Equal(t, text(t, build(t, openCheckpoint(t, dir), Options{})), text(t, m))
}

// TestBuildRefuses: options out of range name the option, what it may be and the checkpoint.
func TestBuildRefuses(t *testing.T) {
	dir := generate(t, smallGemma(nil))
	c := openCheckpoint(t, dir)
	_, err := c.Build(Options{MaxSeqLen: 65})
	require.EqualError(t, err, dir+": max_seq_len: expected 2 to 64, the positions that the model was made for, found 65")
	_, err = c.Build(Options{MaxPrefillChunk: 6})
	require.EqualError(t, err, dir+": max_prefill_chunk: expected 1 to 5, the window of the sliding layers, whose cache a longer chunk would overrun, found 6")
}

// TestFullSize builds the published models without their weights: caches, and as many operations for
// every period of layers.
func TestFullSize(t *testing.T) {
	tests := []struct {
		name           string
		arch           architecture
		config         func(layers int) huggingface.Config
		layers, period int
		buffers        map[string]string
		chunk          int64
		bytes          int64 // of all buffers
	}{
		{"qwen", architectures[0], func(n int) huggingface.Config { return synthetic.Qwen35MoE35B(n) },
			40, 4, map[string]string{
				"layers.38.linear_attn.conv_state":      "bf16[1,4,8192]",
				"layers.38.linear_attn.recurrent_state": "f32[1,32,128,128]",
				"layers.39.self_attn.v_cache":           "bf16[1,2,4096,256]",
			}, 1024, 30*(4*8192*2+32*128*128*4) + 10*2*2*4096*256*2},
		{"gemma", architectures[1], func(n int) huggingface.Config { return synthetic.Gemma431B(n) },
			60, 6, map[string]string{
				"layers.58.self_attn.k_cache": "bf16[1,16,1279,256]",
				"layers.59.self_attn.k_cache": "bf16[1,4,4096,512]",
			}, 256, 50*2*16*1279*256*2 + 10*2*4*4096*512*2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			module := func(layers int) *ir.Module {
				m, err := test.arch.open(test.config(layers), huggingface.Tokens{BOS: huggingface.NoToken},
					builder.NewTensors(nil)).Build(Options{})
				require.NoError(t, err)
				return m
			}
			m := module(test.layers)
			operations := func(layers int) int { return len(module(layers).Entry.Body.Ops) }
			require.Equal(t, operations(2*test.period)-operations(test.period),
				len(m.Entry.Body.Ops)-operations(test.layers-test.period))
			total := int64(0)
			for _, b := range m.Buffers {
				dims, _ := b.Type.Static()
				total += ir.Elements(dims) * int64(b.Type.DType.Size())
				if want, ok := test.buffers[b.Name]; ok {
					require.Equal(t, want, b.Type.String())
				}
			}
			require.Equal(t, test.bytes, total)
			require.Equal(t, test.chunk, m.Metadata[3].Values[0])
		})
	}
}
