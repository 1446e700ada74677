package huggingface

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func readTiny(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "checkpoints", name, ConfigFile))
	require.NoError(t, err)
	return text
}

var (
	qwen3Tiny = Qwen{
		VocabSize: 256, HiddenSize: 128, Layers: kinds("FFFF"), PlainNorms: true, NoGate: true,
		Heads: 4, KVHeads: 2, HeadDim: 64, RotaryDim: 64, RopeTheta: 1e6, Intermediate: 256,
		RMSNormEps: 1e-6, TieWordEmbeddings: true, MaxPositions: 4096,
	}
	qwen3MoETiny = Qwen{
		VocabSize: 256, HiddenSize: 128, Layers: kinds("FFFF"), PlainNorms: true, NoGate: true,
		Heads: 8, KVHeads: 2, HeadDim: 32, RotaryDim: 32, RopeTheta: 1e6,
		Experts: 8, ExpertsPerToken: 2, ExpertIntermediate: 48, RMSNormEps: 1e-6, MaxPositions: 4096,
	}
	qwen3NextTiny = Qwen{
		VocabSize: 256, HiddenSize: 128, Layers: kinds("LLLF"), JointProjections: true,
		Heads: 4, KVHeads: 2, HeadDim: 32, RotaryDim: 8, RopeTheta: 1e7,
		LinearKeyHeads: 2, LinearValueHeads: 4, LinearKeyHeadDim: 32, LinearValueHeadDim: 32, ConvKernel: 4,
		Experts: 8, ExpertsPerToken: 2, ExpertIntermediate: 32, SharedExpertIntermediate: 32,
		RMSNormEps: 1e-6, MaxPositions: 4096,
	}
	qwen35Tiny = Qwen{
		VocabSize: 256, HiddenSize: 128, Layers: kinds("LLLF"),
		Heads: 6, KVHeads: 2, HeadDim: 32, RotaryDim: 8, RopeTheta: 1e7,
		LinearKeyHeads: 2, LinearValueHeads: 6, LinearKeyHeadDim: 32, LinearValueHeadDim: 32, ConvKernel: 4,
		Intermediate: 192, RMSNormEps: 1e-6, MaxPositions: 4096,
	}
	gemmaSliding = AttentionGeometry{Heads: 4, KVHeads: 2, HeadDim: 32, RotaryDim: 32, RopeTheta: 1e4}
	gemmaFull1   = AttentionGeometry{Heads: 4, KVHeads: 1, HeadDim: 64, RotaryDim: 16, RopeTheta: 1e6}
	gemmaMoETiny = Gemma4{
		VocabSize: 256, HiddenSize: 128, IntermediateSize: 96, Layers: kinds("SSSSSF"),
		Sliding: gemmaSliding, Full: gemmaFull1,
		Experts: 8, ExpertsPerToken: 2, ExpertIntermediate: 32,
		SlidingWindow: 16, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 4096,
	}
	gemmaETiny = Gemma4{
		VocabSize: 256, HiddenSize: 128, IntermediateSize: 96, Layers: kinds("SSFSSF"),
		Sliding: AttentionGeometry{Heads: 4, KVHeads: 1, HeadDim: 32, RotaryDim: 32, RopeTheta: 1e4}, Full: gemmaFull1,
		FullValues: true, SharedKVLayers: 3, DoubleWideMLP: true, PerLayerInput: 16,
		SlidingWindow: 16, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 4096,
	}
	gemmaUnifiedTiny = Gemma4{
		VocabSize: 256, HiddenSize: 128, IntermediateSize: 192, Layers: kinds("SSSSF"),
		Sliding: gemmaSliding, Full: gemmaFull1,
		SlidingWindow: 16, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 4096,
	}
	museTiny = MuseGlimmer{
		VocabSize: 256, HiddenSize: 128, Intermediate: 256, Layers: kinds("FSSSF"),
		Unrotated: []bool{true, false, false, false, true}, SlidingWindow: 16,
		Heads: 8, KVHeads: 1, HeadDim: 32, RopeTheta: 5e5, QKScale: 3.87,
		RMSNormEps: 1e-5, PostNormEps: 1e-8, OutputMultiplier: 0.7071067811865476,
		FinalLogitSoftcap: 20, MaxPositions: 4096,
	}
)

// TestFamilies reads configurations of all families, in the forms that are published.
func TestFamilies(t *testing.T) {
	yarn := func(change func(*RopeScaling)) *RopeScaling {
		s := &RopeScaling{Type: "yarn", Factor: 4, Positions: 2048, BetaFast: 32, BetaSlow: 1, Truncate: true}
		if change != nil {
			change(s)
		}
		return s
	}
	tests := []struct {
		name, file, family string
		edits              []edit
		want               Config
	}{
		{"qwen3", "qwen3-tiny", "qwen3", nil, &qwen3Tiny},
		{"qwen3, rope_parameters", "qwen3-tiny", "qwen3",
			[]edit{{"rope_theta", remove},
				{"rope_parameters", map[string]any{"rope_type": "default", "rope_theta": 1e6}}}, &qwen3Tiny},
		{"qwen3, yarn", "qwen3-tiny", "qwen3",
			[]edit{{"rope_scaling", map[string]any{"rope_type": "yarn", "factor": 4,
				"original_max_position_embeddings": 2048}}},
			qwen(qwen3Tiny, func(c *Qwen) { c.RopeScaling, c.MaxPositions = yarn(nil), 8192 })},
		{"qwen3, yarn of an older file", "qwen3-tiny", "qwen3",
			[]edit{{"rope_scaling", map[string]any{"type": "yarn", "factor": 4}}},
			qwen(qwen3Tiny, func(c *Qwen) {
				c.RopeScaling, c.MaxPositions = yarn(func(s *RopeScaling) { s.Positions = 4096 }), 16384
			})},
		{"qwen3, all keys of yarn", "qwen3-tiny", "qwen3",
			[]edit{{"rope_parameters", map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4,
				"original_max_position_embeddings": 1024,
				"beta_fast":                        16, "beta_slow": 2, "truncate": false,
				"attention_factor": 1.5, "mscale": 0.5,
				"mscale_all_dim": 0.25}}},
			qwen(qwen3Tiny, func(c *Qwen) {
				c.RopeScaling = &RopeScaling{"yarn", 4, 1024, 16, 2, false, 1.5, 0.5, 0.25}
			})},
		{"qwen3, linear", "qwen3-tiny", "qwen3",
			[]edit{{"rope_scaling", map[string]any{"type": "linear", "factor": 2}}},
			qwen(qwen3Tiny, func(c *Qwen) { c.RopeScaling = &RopeScaling{Type: "linear", Factor: 2} })},
		{"qwen3, dynamic", "qwen3-tiny", "qwen3",
			[]edit{{"rope_scaling", map[string]any{"rope_type": "dynamic", "factor": 2}}}, &qwen3Tiny},
		{"qwen3 moe", "qwen3moe-tiny", "qwen3moe", nil, &qwen3MoETiny},
		{"qwen3 moe, dense layers", "qwen3moe-tiny", "qwen3moe",
			[]edit{{"mlp_only_layers", []any{0}}, {"decoder_sparse_step", 2}},
			qwen(qwen3MoETiny, func(c *Qwen) { c.DenseLayers, c.Intermediate = []int{0, 2}, 256 })},
		{"qwen3 moe, absolute scores", "qwen3moe-tiny", "qwen3moe", []edit{{"norm_topk_prob", false}},
			qwen(qwen3MoETiny, func(c *Qwen) { c.AbsoluteScores = true })},
		{"qwen3 next", "qwen3next-tiny", "qwen3next", nil, &qwen3NextTiny},
		{"qwen3.5", "qwen35-tiny", "qwen35", nil, &qwen35Tiny},
		{"gemma with experts", "gemma4moe-tiny", "gemma4", nil, &gemmaMoETiny},
		{"gemma with experts, earlier name", "gemma4moe-tiny", "gemma4",
			[]edit{{"text_config.moe_intermediate_size", remove}, {"text_config.expert_intermediate_size", 32}},
			&gemmaMoETiny},
		{"gemma e", "gemma4e-tiny", "gemma4", nil, &gemmaETiny},
		{"gemma unified", "gemma4unified-tiny", "gemma4unified", nil, &gemmaUnifiedTiny},
		{"muse glimmer", "museglimmer-tiny", "museglimmer", nil, &museTiny},
		{"muse glimmer without a cap", "museglimmer-tiny", "museglimmer",
			[]edit{{"text_config.final_logit_softcapping", nil}},
			func() Config { c := museTiny; c.FinalLogitSoftcap = 0; return &c }()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := Parse("config", Files{Config: apply(t, readTiny(t, test.file), test.edits...)})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(test.want, m.Config))
			require.Equal(t, test.family, m.Family)
			f, ok := FamilyNamed(m.Family)
			require.True(t, ok)
			require.Contains(t, f.Classes, m.Architecture)
		})
	}
}

func TestFamiliesRefuse(t *testing.T) {
	scaling := func(values map[string]any) []edit { return []edit{{"rope_scaling", values}} }
	text := func(key string, value any) []edit { return []edit{{"text_config." + key, value}} }
	tests := []struct {
		name, file string
		edits      []edit
		message    string
	}{
		{"longrope", "qwen3-tiny", scaling(map[string]any{"type": "longrope"}),
			`rope_scaling.type: expected "default", "linear", "dynamic" or "yarn", the values that etc supports, found "longrope"`},
		{"llama3", "qwen3-tiny", scaling(map[string]any{"rope_type": "llama3"}),
			`rope_scaling.rope_type: expected "default", "linear", "dynamic" or "yarn"`},
		{"factor", "qwen3-tiny", scaling(map[string]any{"rope_type": "yarn", "factor": -1}),
			`rope_scaling.factor: expected a number > 0, found -1`},
		{"turns", "qwen3-tiny", scaling(map[string]any{"rope_type": "yarn", "factor": 2, "beta_fast": 1,
			"beta_slow": 2}), `rope_scaling.beta_fast: expected at least beta_slow (2), found 1`},
		{"sliding window", "qwen3-tiny", []edit{{"use_sliding_window", true}},
			`use_sliding_window: expected false, the only value that etc supports, found true`},
		{"scores", "qwen3moe-tiny", []edit{{"norm_topk_prob", remove}},
			`norm_topk_prob: expected true or false, found no such key`},
		{"dense layer", "qwen3moe-tiny", []edit{{"mlp_only_layers", []any{4}}},
			`mlp_only_layers[0]: expected a layer from 0 to 3, found 4`},
		{"experts of a token", "gemma4moe-tiny", text("top_k_experts", 9),
			`text_config.top_k_experts: expected at most num_experts (8), found 9`},
		{"nothing to share", "gemma4e-tiny", text("num_kv_shared_layers", 4),
			`text_config.num_kv_shared_layers: expected a layer of full_attention before the layers that share its keys and values, found 4`},
		{"vocabulary of layers", "gemma4e-tiny", text("vocab_size_per_layer_input", 255),
			`text_config.vocab_size_per_layer_input: expected vocab_size (256), the only value that etc supports, found 255`},
		{"thetas", "museglimmer-tiny", text("layer_rope_theta", []any{1}),
			`text_config.layer_rope_theta: expected an array with a number for each of the 5 layers, found [1]`},
		{"no thetas", "museglimmer-tiny", text("layer_rope_theta", nil),
			`text_config.layer_rope_theta: expected an array with a number for each of the 5 layers, found null`},
		{"theta", "museglimmer-tiny", text("layer_rope_theta", []any{1, 2, -3, 4, 5}),
			`text_config.layer_rope_theta[2]: expected a number ≥ 0, found -3`},
		{"scaled rope", "museglimmer-tiny",
			text("rope_parameters", map[string]any{"rope_type": "linear", "factor": 2, "rope_theta": 1e4}),
			`text_config.rope_parameters: expected RoPE of whole heads without scaling`},
		{"activation", "museglimmer-tiny", text("hidden_activation", "gelu"),
			`text_config.hidden_activation: expected "silu"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, config, err := ParseConfig("c", apply(t, readTiny(t, test.file), test.edits...))
			require.ErrorContains(t, err, test.message)
			require.Nil(t, config)
		})
	}
}
