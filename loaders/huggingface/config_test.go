package huggingface

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func readTestdata(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return text
}

// kinds turns "LLLF" into layer kinds.
func kinds(letters string) []LayerKind {
	var list []LayerKind
	for _, letter := range letters {
		list = append(list, map[rune]LayerKind{'L': LinearAttention, 'S': SlidingAttention, 'F': FullAttention}[letter])
	}
	return list
}

// edit is a change of a configuration: the value, or its removal, of a key like "text_config.head_dim".
type edit struct {
	key   string
	value any // JSON value; remove takes the key away
}

type removal struct{}

var remove removal

// apply returns the JSON of text after the edits.
func apply(t testing.TB, text []byte, edits ...edit) []byte {
	t.Helper()
	var root map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&root))
	for _, e := range edits {
		path := strings.Split(e.key, ".")
		at := root
		for _, name := range path[:len(path)-1] {
			at = at[name].(map[string]any)
		}
		last := path[len(path)-1]
		if e.value == remove {
			_, ok := at[last]
			require.True(t, ok, "no key %s to remove", e.key)
			delete(at, last)
		} else {
			at[last] = e.value
		}
	}
	text, err := json.Marshal(root)
	require.NoError(t, err)
	return text
}

var (
	qwenTiny = Qwen{
		VocabSize: 256, HiddenSize: 128, Layers: kinds("LFLF"),
		Heads: 4, KVHeads: 2, HeadDim: 64, RotaryDim: 16, RopeTheta: 10000,
		LinearKeyHeads: 2, LinearValueHeads: 4, LinearKeyHeadDim: 64, LinearValueHeadDim: 64, ConvKernel: 4,
		Experts: 8, ExpertsPerToken: 2, ExpertIntermediate: 128, SharedExpertIntermediate: 128,
		RMSNormEps: 1e-6, MaxPositions: 4096,
	}
	qwenChat = Qwen{
		VocabSize: 768, HiddenSize: 128, Layers: kinds("LLLF"),
		Heads: 4, KVHeads: 2, HeadDim: 64, RotaryDim: 16, RopeTheta: 10000,
		LinearKeyHeads: 2, LinearValueHeads: 4, LinearKeyHeadDim: 32, LinearValueHeadDim: 32, ConvKernel: 4,
		Experts: 16, ExpertsPerToken: 4, ExpertIntermediate: 64, SharedExpertIntermediate: 64,
		RMSNormEps: 1e-6, MaxPositions: 4096,
	}
	qwenFull = Qwen{
		VocabSize: 248320, HiddenSize: 2048, Layers: kinds(strings.Repeat("LLLF", 10)),
		Heads: 16, KVHeads: 2, HeadDim: 256, RotaryDim: 64, RopeTheta: 1e7,
		LinearKeyHeads: 16, LinearValueHeads: 32, LinearKeyHeadDim: 128, LinearValueHeadDim: 128, ConvKernel: 4,
		Experts: 256, ExpertsPerToken: 8, ExpertIntermediate: 512, SharedExpertIntermediate: 512,
		RMSNormEps: 1e-6, MaxPositions: 262144,
	}
	gemmaTiny = Gemma4{
		VocabSize: 256, HiddenSize: 256, IntermediateSize: 384, Layers: kinds("SSSSSF"),
		Sliding:       AttentionGeometry{Heads: 4, KVHeads: 2, HeadDim: 64, RotaryDim: 64, RopeTheta: 1e4},
		Full:          AttentionGeometry{Heads: 4, KVHeads: 1, HeadDim: 128, RotaryDim: 32, RopeTheta: 1e6},
		SlidingWindow: 16, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 4096,
	}
	gemmaChat = Gemma4{
		VocabSize: 960, HiddenSize: 128, IntermediateSize: 256, Layers: kinds("SSSSSF"),
		Sliding:       AttentionGeometry{Heads: 4, KVHeads: 2, HeadDim: 32, RotaryDim: 32, RopeTheta: 1e4},
		Full:          AttentionGeometry{Heads: 4, KVHeads: 1, HeadDim: 64, RotaryDim: 16, RopeTheta: 1e6},
		SlidingWindow: 64, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 4096,
	}
	gemmaFull = Gemma4{
		VocabSize: 262144, HiddenSize: 5376, IntermediateSize: 21504, Layers: kinds(strings.Repeat("SSSSSF", 10)),
		Sliding:       AttentionGeometry{Heads: 32, KVHeads: 16, HeadDim: 256, RotaryDim: 256, RopeTheta: 1e4},
		Full:          AttentionGeometry{Heads: 32, KVHeads: 4, HeadDim: 512, RotaryDim: 128, RopeTheta: 1e6},
		SlidingWindow: 1024, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 262144,
	}
)

func qwen(c Qwen, change func(*Qwen)) *Qwen        { change(&c); return &c }
func gemma(c Gemma4, change func(*Gemma4)) *Gemma4 { change(&c); return &c }

func TestParseConfig(t *testing.T) {
	array := func(values ...any) []any { return append([]any{}, values...) }
	tests := []struct {
		name         string
		file         string
		edits        []edit
		architecture string // "" where it is the file's
		want         Config
	}{
		{name: "qwen multimodal", file: "qwen35moe-multimodal.json", want: &qwenTiny},
		{name: "qwen text", file: "qwen35moe.json", want: &qwenChat},
		{name: "qwen full size", file: "qwen3.5-35b-a3b.json", want: &qwenFull},
		{name: "gemma multimodal", file: "gemma4-multimodal.json", want: &gemmaTiny},
		{name: "gemma text, per_layer_config", file: "gemma4-per-layer.json", want: &gemmaChat},
		{name: "gemma text, global_head_dim", file: "gemma4-global.json", want: &gemmaChat},
		{name: "gemma full size", file: "gemma4-31b.json", want: &gemmaFull},

		{name: "qwen without layer_types", file: "qwen35moe.json",
			want:  qwen(qwenChat, func(c *Qwen) { c.Layers = kinds("LFLF") }),
			edits: []edit{{"layer_types", remove}, {"full_attention_interval", 2}}},
		{name: "qwen layer_types null", file: "qwen35moe.json", edits: []edit{{"layer_types", nil}}, want: &qwenChat},
		{name: "qwen layer_types goes before the interval", file: "qwen35moe.json",
			edits: []edit{{"full_attention_interval", 2}}, want: &qwenChat},
		{name: "qwen rope_parameters goes before the root", file: "qwen35moe.json",
			want: qwen(qwenChat, func(c *Qwen) { c.RotaryDim, c.RopeTheta = 32, 5e5 }),
			edits: []edit{{"rope_parameters.partial_rotary_factor", 0.5}, {"rope_parameters.rope_theta", 5e5},
				{"rope_theta", 1}}},
		{name: "qwen factor only in rope_parameters", file: "qwen35moe.json",
			edits: []edit{{"partial_rotary_factor", remove}}, want: &qwenChat},
		{name: "qwen rope only in the root", file: "qwen35moe.json",
			edits: []edit{{"rope_parameters", remove}, {"rope_theta", 10000}}, want: &qwenChat},
		{name: "qwen conv kernel 3, tied", file: "qwen35moe.json",
			want:  qwen(qwenChat, func(c *Qwen) { c.ConvKernel, c.TieWordEmbeddings = 3, true }),
			edits: []edit{{"linear_conv_kernel_dim", 3}, {"tie_word_embeddings", true}}},
		{name: "qwen minimal", file: "qwen35moe.json", want: qwen(qwenChat, func(c *Qwen) { c.MaxPositions = 0 }),
			edits: []edit{{"max_position_embeddings", remove}, {"hidden_act", remove}, {"attention_bias", remove},
				{"tie_word_embeddings", remove}, {"model_type", remove}}},
		{name: "qwen by model_type", file: "qwen35moe.json", edits: []edit{{"architectures", remove}},
			architecture: "Qwen3_5MoeForCausalLM", want: &qwenChat},
		{name: "outer tie_word_embeddings decides", file: "qwen35moe-multimodal.json",
			want:  qwen(qwenTiny, func(c *Qwen) { c.TieWordEmbeddings = true }),
			edits: []edit{{"tie_word_embeddings", true}}},
		{name: "inner tie_word_embeddings without an outer", file: "qwen35moe-multimodal.json",
			want:  qwen(qwenTiny, func(c *Qwen) { c.TieWordEmbeddings = true }),
			edits: []edit{{"tie_word_embeddings", remove}, {"text_config.tie_word_embeddings", true}}},
		{name: "text model with text_config", file: "qwen35moe-multimodal.json",
			edits:        []edit{{"architectures", array("Qwen3_5MoeForCausalLM")}, {"text_config.model_type", remove}},
			architecture: "Qwen3_5MoeForCausalLM", want: &qwenTiny},

		{name: "gemma both forms", file: "gemma4-per-layer.json",
			edits: []edit{{"global_head_dim", 64}, {"num_global_key_value_heads", 1}}, want: &gemmaChat},
		{name: "gemma keys with zeros, sliding layers repeated", file: "gemma4-per-layer.json", want: &gemmaChat,
			edits: []edit{{"per_layer_config",
				map[string]any{"00": map[string]any{"head_dim": 32},
					"05": map[string]any{"head_dim": 64, "num_key_value_heads": 1}}}}},
		{name: "gemma kv heads not overridden", file: "gemma4-per-layer.json",
			want:  gemma(gemmaChat, func(c *Gemma4) { c.Full.KVHeads = 2 }),
			edits: []edit{{"per_layer_config", map[string]any{"5": map[string]any{"head_dim": 64}}}}},
		{name: "gemma nothing overridden", file: "gemma4-per-layer.json",
			want:  gemma(gemmaChat, func(c *Gemma4) { c.Full.KVHeads, c.Full.HeadDim, c.Full.RotaryDim = 2, 32, 8 }),
			edits: []edit{{"per_layer_config", map[string]any{}}}},
		{name: "gemma global kv heads null", file: "gemma4-global.json",
			want:  gemma(gemmaChat, func(c *Gemma4) { c.Full.KVHeads = 2 }),
			edits: []edit{{"num_global_key_value_heads", nil}}},
		{name: "gemma several full layers", file: "gemma4-per-layer.json",
			want: gemma(gemmaChat, func(c *Gemma4) { c.Layers = kinds("SF") }),
			edits: []edit{{"num_hidden_layers", 2}, {"layer_types", array("sliding_attention", "full_attention")},
				{"per_layer_config", map[string]any{"1": map[string]any{"head_dim": 64, "num_key_value_heads": 1}}}}},
		{name: "gemma odd sizes", file: "gemma4-global.json",
			want: gemma(gemmaChat, func(c *Gemma4) {
				c.Full.HeadDim, c.Full.RotaryDim = 96, 24
				c.SlidingWindow, c.FinalLogitSoftcap = 24, 20
			}),
			edits: []edit{{"global_head_dim", 96}, {"sliding_window", 24}, {"final_logit_softcapping", 20}}},
		{name: "gemma rotary dims rounded down", file: "gemma4-global.json",
			want:  gemma(gemmaChat, func(c *Gemma4) { c.Full.RotaryDim = 18 }),
			edits: []edit{{"rope_parameters.full_attention.partial_rotary_factor", 0.3}}},
		{name: "gemma default rope everywhere", file: "gemma4-global.json",
			want: gemma(gemmaChat, func(c *Gemma4) { c.Full.RotaryDim = 64 }),
			edits: []edit{{"rope_parameters.full_attention",
				map[string]any{"rope_type": "default", "rope_theta": 1e6}}}},
		{name: "gemma no softcap", file: "gemma4-global.json",
			want:  gemma(gemmaChat, func(c *Gemma4) { c.FinalLogitSoftcap = 0 }),
			edits: []edit{{"final_logit_softcapping", nil}}},
		{name: "gemma bidirectional for images", file: "gemma4-global.json",
			edits: []edit{{"use_bidirectional_attention", "vision"}}, want: &gemmaChat},
		{name: "gemma untied", file: "gemma4-global.json", edits: []edit{{"tie_word_embeddings", false}},
			want: gemma(gemmaChat, func(c *Gemma4) { c.TieWordEmbeddings = false })},
		{name: "gemma tied by default", file: "gemma4-global.json", edits: []edit{{"tie_word_embeddings", remove}},
			want: &gemmaChat},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := apply(t, readTestdata(t, test.file), test.edits...)
			architecture, config, err := ParseConfig("config.json", text)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(test.want, config))
			if test.architecture == "" {
				var file struct{ Architectures []string }
				require.NoError(t, json.Unmarshal(text, &file))
				test.architecture = file.Architectures[0]
			}
			require.Equal(t, test.architecture, architecture)
			require.Contains(t, Architectures(), architecture)
		})
	}
}

// TestRequiredKeys removes every key that decides a shape or a number of the graph, one at a time.
func TestRequiredKeys(t *testing.T) {
	tests := map[string][]string{
		"qwen35moe.json": {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
			"num_key_value_heads", "head_dim", "linear_num_key_heads",
			"linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
			"num_experts", "num_experts_per_tok",
			"moe_intermediate_size", "shared_expert_intermediate_size", "rms_norm_eps", "rope_theta"},
		"gemma4-global.json": {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
			"num_attention_heads", "num_key_value_heads", "head_dim",
			"global_head_dim", "num_global_key_value_heads", "layer_types", "sliding_window", "rms_norm_eps",
			"final_logit_softcapping", "rope_parameters",
			"rope_parameters.full_attention", "rope_parameters.sliding_attention",
			"rope_parameters.full_attention.rope_type", "rope_parameters.full_attention.rope_theta",
			"rope_parameters.full_attention.partial_rotary_factor", "rope_parameters.sliding_attention.rope_theta",
			"rope_parameters.sliding_attention.rope_type",
			"hidden_size_per_layer_input", "attention_k_eq_v"},
	}
	for file, keys := range tests {
		for _, key := range keys {
			t.Run(file+" "+key, func(t *testing.T) {
				removed := key
				if key == "rope_theta" {
					removed = "rope_parameters.rope_theta"
				}
				_, config, err := ParseConfig("c", apply(t, readTestdata(t, file), edit{removed, remove}))
				require.ErrorContains(t, err, "c: "+key+": expected ")
				require.ErrorContains(t, err, ", found no such key")
				require.Nil(t, config)
			})
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	const q, g, p, m = "qwen35moe.json", "gemma4-global.json", "gemma4-per-layer.json", "qwen35moe-multimodal.json"
	array := func(values ...any) []any { return append([]any{}, values...) }
	override := func(layer string, values map[string]any) []edit {
		return []edit{{"per_layer_config", map[string]any{layer: values}}}
	}
	tests := []struct {
		name, file string
		edits      []edit
		message    string
	}{
		{"other architecture", q, []edit{{"architectures", array("LlamaForCausalLM")}},
			`c: architectures: expected one of ` + strings.Join(Architectures(),
				", ") + `, found ["LlamaForCausalLM"]`},
		{"dense qwen", q, []edit{{"architectures", array("Qwen3_5ForCausalLM")}, {"model_type", "qwen3_5_text"}},
			`c: intermediate_size: expected an integer from 1 to 16777216, found no such key`},
		{"other model_type", q, []edit{{"architectures", remove}, {"model_type", "llama"}},
			`model_type: expected one of "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_text", "qwen3_next", "qwen3_moe", "qwen3", "gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text", "muse_glimmer", "muse_glimmer_text", found "llama"`},
		{"no architecture", q, []edit{{"architectures", remove}, {"model_type", remove}},
			`architectures: expected one of Gemma4ForCausalLM, `},
		{"architectures text", q, []edit{{"architectures", "Gemma4ForCausalLM"}},
			`architectures: expected an array, found "Gemma4ForCausalLM"`},
		{"architectures empty", q, []edit{{"architectures", array()}, {"model_type", remove}},
			`architectures: expected one of Gemma4ForCausalLM, `},
		{"model_type of another", q, []edit{{"model_type", "gemma4"}},
			`model_type: expected "qwen3_5_moe" or "qwen3_5_moe_text", as architectures has Qwen3_5MoeForCausalLM, found "gemma4"`},
		{"model_type number", q, []edit{{"model_type", 3}}, `model_type: expected a string, found 3`},
		{"text_config array", m, []edit{{"text_config", array()}}, `text_config: expected an object, found []`},
		{"text_config of another", m, []edit{{"text_config.model_type", "gemma4_text"}},
			`text_config.model_type: expected "qwen3_5_moe_text", found "gemma4_text"`},
		{"nested key", m, []edit{{"text_config.head_dim", "64"}},
			`text_config.head_dim: expected an integer from 1 to 16777216, found "64"`},

		{"null", q, []edit{{"hidden_size", nil}}, `hidden_size: expected an integer from 1 to 16777216, found null`},
		{"zero", q, []edit{{"hidden_size", 0}}, `, found 0`},
		{"negative", q, []edit{{"hidden_size", -1}}, `, found -1`},
		{"fraction", q, []edit{{"hidden_size", 1.5}}, `, found 1.5`},
		{"true", q, []edit{{"hidden_size", true}}, `, found true`},
		{"huge", q, []edit{{"hidden_size", json.Number("123456789012345678901234567890")}},
			`, found 123456789012345678901234567890`},
		{"too many layers", q, []edit{{"num_hidden_layers", 1 << 30}, {"layer_types", remove}},
			`num_hidden_layers: expected an integer from 1 to 4096, found 1073741824`},
		{"eps zero", q, []edit{{"rms_norm_eps", 0}}, `rms_norm_eps: expected a number > 0, found 0`},
		{"eps text", q, []edit{{"rms_norm_eps", "1e-6"}}, `rms_norm_eps: expected a number > 0, found "1e-6"`},
		{"eps infinite", q, []edit{{"rms_norm_eps", json.Number("1e999")}},
			`rms_norm_eps: expected a number > 0, found 1e999`},
		{"tied text", q, []edit{{"tie_word_embeddings", "no"}},
			`tie_word_embeddings: expected true or false, found "no"`},
		{"positions", q, []edit{{"max_position_embeddings", 0}},
			`max_position_embeddings: expected an integer from 1 to 2147483647, found 0`},

		{"heads", q, []edit{{"num_key_value_heads", 3}},
			`num_attention_heads: expected a multiple of num_key_value_heads (3), found 4`},
		{"linear heads", q, []edit{{"linear_num_key_heads", 3}},
			`linear_num_value_heads: expected a multiple of linear_num_key_heads (3), found 4`},
		{"top-k", q, []edit{{"num_experts_per_tok", 17}},
			`num_experts_per_tok: expected at most num_experts (16), found 17`},
		{"layer_types length", q, []edit{{"num_hidden_layers", 5}},
			`layer_types: expected 5 entries, as num_hidden_layers has it, found 4`},
		{"layer kind", q, []edit{{"layer_types", array("linear_attention", "mamba", "x", "full_attention")}},
			`layer_types[1]: expected "full_attention" or "linear_attention", found "mamba"`},
		{"layer kind of gemma", q, []edit{{"layer_types",
			array("linear_attention", "sliding_attention", "x", "full_attention")}},
			`layer_types[1]: expected "full_attention" or "linear_attention", found "sliding_attention"`},
		{"layer kind number", q, []edit{{"layer_types", array(1, 2, 3, 4)}},
			`layer_types[0]: expected "full_attention" or "linear_attention", found 1`},
		{"layer_types object", q, []edit{{"layer_types", map[string]any{}}},
			`layer_types: expected an array, found {}`},
		{"no layer kinds", q, []edit{{"layer_types", remove}, {"full_attention_interval", remove}},
			`layer_types: expected it, or full_attention_interval, found no such key`},
		{"interval", q, []edit{{"layer_types", remove}, {"full_attention_interval", 0}},
			`full_attention_interval: expected an integer from 1 to 4096, found 0`},
		{"odd rotary dims", q, []edit{{"rope_parameters.partial_rotary_factor", 0.3}},
			`rope_parameters.partial_rotary_factor: expected an even number ≥ 2 of rotary dims, at most head_dim (64), found 19 (0.3 of head_dim)`},
		{"odd rotary dims in the root", q,
			[]edit{{"rope_parameters.partial_rotary_factor", remove}, {"partial_rotary_factor", 0.3}},
			`c: partial_rotary_factor: expected an even number ≥ 2`},
		{"no rotary dims", q, []edit{{"rope_parameters.partial_rotary_factor", 0.01}}, `found 0 (0.01 of head_dim)`},
		{"rotary dims over the head", q, []edit{{"rope_parameters.partial_rotary_factor", 1.5}},
			`found 96 (1.5 of head_dim)`},
		{"no factor", q, []edit{{"rope_parameters.partial_rotary_factor", remove}, {"partial_rotary_factor", remove}},
			`c: partial_rotary_factor: expected a number > 0, found no such key`},
		{"yarn", q, []edit{{"rope_parameters.rope_type", "yarn"}},
			`rope_parameters.factor: expected a number > 0, found no such key`},
		{"old yarn", q, []edit{{"rope_scaling", map[string]any{"type": "yarn"}}},
			`rope_scaling.factor: expected a number > 0, found no such key`},
		{"activation", q, []edit{{"hidden_act", "gelu"}},
			`hidden_act: expected "silu", the only value that etc supports, found "gelu"`},
		{"bias", q, []edit{{"attention_bias", true}},
			`attention_bias: expected false, the only value that etc supports, found true`},
		{"no gate", q, []edit{{"attn_output_gate", false}},
			`attn_output_gate: expected true, the only value that etc supports, found false`},
		{"sparse step", q, []edit{{"decoder_sparse_step", 2}},
			`decoder_sparse_step: expected 1, the only value that etc supports, found 2`},
		{"dense layers", q, []edit{{"mlp_only_layers", array(0)}}, `mlp_only_layers: expected no layers`},

		{"experts", g, []edit{{"enable_moe_block", true}},
			`num_experts: expected an integer from 1 to 65536, found null`},
		{"per-layer embeddings", g, []edit{{"hidden_size_per_layer_input", 256}, {"vocab_size_per_layer_input", 9}},
			`vocab_size_per_layer_input: expected vocab_size (960), the only value that etc supports, found 9`},
		{"shared kv", g, []edit{{"num_kv_shared_layers", 20}},
			`num_kv_shared_layers: expected an integer from 0 to 5, found 20`},
		{"double wide", g, []edit{{"use_double_wide_mlp", 2}}, `use_double_wide_mlp: expected true or false, found 2`},
		{"bidirectional", g, []edit{{"use_bidirectional_attention", "all"}},
			`use_bidirectional_attention: expected null or "vision", the only values that etc supports, found "all"`},
		{"bidirectional true", g, []edit{{"use_bidirectional_attention", true}},
			`use_bidirectional_attention: expected null or "vision", the only values that etc supports, found true`},
		{"value projection", g, []edit{{"attention_k_eq_v", nil}},
			`attention_k_eq_v: expected true or false, found null`},
		{"gemma activation", g, []edit{{"hidden_activation", "silu"}},
			`hidden_activation: expected "gelu_pytorch_tanh", the only value that etc supports, found "silu"`},
		{"last layer sliding", g, []edit{{"num_hidden_layers", 2},
			{"layer_types", array("full_attention", "sliding_attention")}},
			`layer_types[1]: expected "full_attention" in the last layer, found "sliding_attention"`},
		{"linear layer", g, []edit{{"num_hidden_layers", 2},
			{"layer_types", array("linear_attention", "full_attention")}},
			`layer_types[0]: expected "full_attention" or "sliding_attention", found "linear_attention"`},
		{"softcap", g, []edit{{"final_logit_softcapping", -1}},
			`final_logit_softcapping: expected a number > 0, found -1`},
		{"gemma heads", g, []edit{{"num_key_value_heads", 3}},
			`num_attention_heads: expected a multiple of num_key_value_heads (3), found 4`},
		{"gemma global heads", g, []edit{{"num_global_key_value_heads", 3}},
			`num_attention_heads: expected a multiple of num_global_key_value_heads (3), found 4`},
		{"odd head_dim", g, []edit{{"head_dim", 33}}, `head_dim: expected an even head dim, found 33`},
		{"odd global_head_dim", g, []edit{{"global_head_dim", 65}},
			`global_head_dim: expected an even head dim, found 65`},
		{"odd per-layer head_dim", p, override("5", map[string]any{"head_dim": 65}),
			`per_layer_config: expected an even head dim, found 65`},
		{"neither form", p, []edit{{"per_layer_config", remove}},
			`global_head_dim: expected an integer from 1 to 16777216, found no such key`},
		{"forms that differ", p, []edit{{"global_head_dim", 128}, {"num_global_key_value_heads", 1}},
			`per_layer_config: expected what global_head_dim and num_global_key_value_heads say (128, 1), found 64, 1`},
		{"layer out of range", p, override("6", map[string]any{"head_dim": 64}),
			`per_layer_config: expected for keys layers from 0 to 5, each once, found "6"`},
		{"layer negative", p, override("-1", map[string]any{}), `found "-1"`},
		{"layer name", p, override("last", map[string]any{}), `found "last"`},
		{"layer twice", p, []edit{{"per_layer_config", map[string]any{"5": map[string]any{}, "05": map[string]any{}}}},
			`each once, found "5"`},
		{"layer null", p, []edit{{"per_layer_config", map[string]any{"5": nil}}},
			`per_layer_config.5: expected an object, found null`},
		{"layer array", p, []edit{{"per_layer_config", map[string]any{"5": array()}}},
			`per_layer_config.5: expected an object, found []`},
		{"other override", p, override("5", map[string]any{"intermediate_size": 1}),
			`per_layer_config.5.intermediate_size: expected head_dim and num_key_value_heads, the only keys that etc supports here, found 1`},
		{"skipped sublayer", p, override("5", map[string]any{"skip": array("mlp")}),
			`per_layer_config.5.skip: expected head_dim and num_key_value_heads`},
		{"bad override", p, override("5", map[string]any{"head_dim": 0}),
			`per_layer_config.5.head_dim: expected an integer from 1 to 16777216, found 0`},
		{"sliding layer overridden", p, override("2", map[string]any{"head_dim": 64}),
			`per_layer_config.2: expected head_dim 32 and num_key_value_heads 2, as in the other layers of its kind, found 64 and 2`},
		{"full layers that differ", p, []edit{{"num_hidden_layers", 2},
			{"layer_types", array("full_attention", "full_attention")},
			{"per_layer_config", map[string]any{"0": map[string]any{"head_dim": 64}}}},
			`per_layer_config.1: expected head_dim 64 and num_key_value_heads 2, as in the other layers of its kind, found 32 and 2`},
		{"gemma rope type", g, []edit{{"rope_parameters.full_attention.rope_type", "yarn"}},
			`rope_parameters.full_attention.rope_type: expected "proportional" or "default", the only values that etc supports, found "yarn"`},
		{"proportional sliding", g, []edit{{"rope_parameters.sliding_attention.rope_type", "proportional"}},
			`rope_parameters.sliding_attention.rope_type: expected "default", the only value that etc supports, found "proportional"`},
		{"partial sliding", g, []edit{{"rope_parameters.sliding_attention.partial_rotary_factor", 0.5}},
			`rope_parameters.sliding_attention.partial_rotary_factor: expected 1, the only value that etc supports, found 0.5`},
		{"partial default", g, []edit{{"rope_parameters.full_attention.rope_type", "default"}},
			`rope_parameters.full_attention.partial_rotary_factor: expected 1, the only value that etc supports, found 0.25`},
		{"rope factor", g, []edit{{"rope_parameters.full_attention.factor", 8}},
			`rope_parameters.full_attention.factor: expected 1, the only value that etc supports, found 8`},
		{"no gemma rotary dims", g, []edit{{"rope_parameters.full_attention.partial_rotary_factor", 0.01}},
			`rope_parameters.full_attention.partial_rotary_factor: expected a number up to 1 that leaves rotary dims of head_dim 64, found 0.01`},
		{"gemma factor over 1", g, []edit{{"rope_parameters.full_attention.partial_rotary_factor", 2}},
			`that leaves rotary dims of head_dim 64, found 2`},
		{"flat rope", g, []edit{{"rope_parameters", map[string]any{"rope_theta": 1}}},
			`rope_parameters.sliding_attention: expected an object with rope_type and rope_theta, found no such key`},
		{"rope array", g, []edit{{"rope_parameters", array()}}, `rope_parameters: expected an object, found []`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, config, err := ParseConfig("c", apply(t, readTestdata(t, test.file), test.edits...))
			require.ErrorContains(t, err, test.message)
			require.Nil(t, config)
			var fault *ConfigError
			require.ErrorAs(t, err, &fault)
			require.Equal(t, "c", fault.File)
		})
	}
}

func TestParseConfigSyntax(t *testing.T) {
	tests := []struct{ name, text, message string }{
		{"empty", ``, `c: expected JSON, found the end of the text at byte 0`},
		{"cut", `{"a":[1,`, `c: expected JSON, found the end of the text`},
		{"array", `[]`, `c: expected a JSON object, found []`},
		{"text after it", `{} {}`, `text after the end of the object`},
		{"key twice", `{"a":{"b":1,"b":1}}`, `key "b" twice`},
		{"NaN", `{"a":NaN}`, `c: expected JSON, found invalid character 'N'`},
		{"not UTF-8", "{\"\xff\":1}", `c: expected JSON in UTF-8, found other bytes`},
		{"deep", strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100), `more than 64 levels`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := ParseConfig("c", []byte(test.text))
			require.ErrorContains(t, err, test.message)
		})
	}
}

// TestAllFaultsAtOnce: one run tells a user of every wrong key.
func TestAllFaultsAtOnce(t *testing.T) {
	_, _, err := ParseConfig("c", apply(t, readTestdata(t, "qwen35moe.json"), edit{"head_dim", remove},
		edit{"hidden_size", 0}, edit{"hidden_act", "relu"}))
	var joined interface{ Unwrap() []error }
	require.True(t, errors.As(err, &joined))
	var keys []string
	for _, err := range joined.Unwrap() {
		var fault *ConfigError
		require.ErrorAs(t, err, &fault)
		keys = append(keys, fault.Key)
	}
	require.Equal(t, []string{"hidden_size", "head_dim", "hidden_act"}, keys, "and of nothing that follows from them")
}

func TestLayerKindString(t *testing.T) {
	require.Equal(t, "full_attention", FullAttention.String())
	require.Equal(t, "sliding_attention", SlidingAttention.String())
	require.Equal(t, "linear_attention", LinearAttention.String())
	require.Equal(t, "LayerKind(0)", LayerKind(0).String())
}

// FuzzConfig: a configuration is refused or holds what its documentation promises.
func FuzzConfig(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	require.NoError(f, err)
	tinies, err := filepath.Glob(filepath.Join("..", "..", "testdata", "checkpoints", "*", ConfigFile))
	require.NoError(f, err)
	for _, file := range append(files, tinies...) {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		var compact bytes.Buffer
		require.NoError(f, json.Compact(&compact, text))
		f.Add(compact.Bytes())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, config, err := ParseConfig("fuzz", text)
		if err != nil {
			var fault *ConfigError
			require.ErrorAs(t, err, &fault)
			return
		}
		require.Positive(t, config.Vocabulary())
		require.Positive(t, config.Depth())
		switch c := config.(type) {
		case *Qwen:
			require.Zero(t, c.Heads%c.KVHeads)
			if slices.Contains(c.Layers, LinearAttention) {
				require.Zero(t, c.LinearValueHeads%c.LinearKeyHeads)
				require.Positive(t, c.ConvChannels())
			}
			require.Zero(t, c.RotaryDim%2)
			require.True(t, 2 <= c.RotaryDim && c.RotaryDim <= c.HeadDim)
			require.True(t, min(1, c.Experts) <= c.ExpertsPerToken && c.ExpertsPerToken <= c.Experts)
			for i := range c.Layers {
				require.True(t, c.HasExperts(i) || c.Intermediate > 0)
			}
			require.NotContains(t, c.Layers, LayerKind(0))
		case *Gemma4:
			for _, geometry := range []AttentionGeometry{c.Sliding, c.Full} {
				require.Zero(t, geometry.Heads%geometry.KVHeads)
				require.Zero(t, geometry.HeadDim%2)
				require.Zero(t, geometry.RotaryDim%2)
				require.True(t, 2 <= geometry.RotaryDim && geometry.RotaryDim <= geometry.HeadDim)
				require.Positive(t, geometry.RopeTheta)
			}
			require.Equal(t, FullAttention, c.Layers[c.Depth()-1])
			for i, kind := range c.Layers {
				from := c.KVLayer(i)
				require.Equal(t, kind, c.Layers[from])
				require.True(t, from == i || from < len(c.Layers)-c.SharedKVLayers)
			}
		case *MuseGlimmer:
			require.Zero(t, c.Heads%c.KVHeads)
			require.Len(t, c.Unrotated, c.Depth())
			require.NotContains(t, c.Layers, LayerKind(0))
		default:
			t.Fatalf("%T", config)
		}
	})
}
