package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/passes/quantize"
)

// TestDefaultRecipe: which weights get which bits. The router and the shared expert's gate keep 8 (finding
// N4 of the requirements); E14: groups of 32 and of 64.
func TestDefaultRecipe(t *testing.T) {
	for _, group := range []int{32, 64, 128} {
		r := DefaultRecipe(minMax(4, group), minMax(8, group))
		require.NoError(t, r.check())
		for _, test := range []struct {
			kind WeightKind
			name string
			bits int
		}{
			{LinearWeight, "layers.0.mlp.gate.weight", 8},
			{LinearWeight, "layers.47.mlp.gate.weight", 8},
			{LinearWeight, "layers.0.mlp.shared_expert_gate.weight", 8},
			{LinearWeight, "layers.0.mlp.gate_proj.weight", 4},
			{LinearWeight, "layers.0.mlp.experts.gate_proj", 4},
			{LinearWeight, "layers.0.mlp.shared_expert.gate_up_proj.weight", 4},
			{LinearWeight, "layers.0.self_attn.qkv_proj.weight", 4},
			{LinearWeight, "lm_head.weight", 4},
			{LinearWeight, "embed_tokens.weight", 4}, // a tied lm_head
			{EmbeddingWeight, "embed_tokens.weight", 8},
			{EmbeddingWeight, "layers.0.mlp.gate.weight", 8},
		} {
			s := r.match(test.kind, test.name)
			require.NotNil(t, s, test.name)
			require.Equal(t, quantize.Scheme{Method: quantize.MinMax, Bits: test.bits, GroupSize: group}, *s, test.name)
		}
	}
	more := DefaultRecipe(minMax(4, 32), nil, "*.router.proj.weight", "per_layer_model_projection.weight")
	for name, bits := range map[string]int{"layers.3.router.proj.weight": 8, "per_layer_model_projection.weight": 8,
		"layers.3.mlp.gate.weight": 8, "layers.3.mlp.gate_proj.weight": 4} {
		require.Equal(t, bits, more.match(LinearWeight, name).Bits, name)
	}
	allocated := AllocationRecipe(minMax(8, 32), nil, "*.router.proj.weight")
	require.Equal(t, 8, allocated.match(LinearWeight, "layers.3.router.proj.weight").Bits)
	require.Nil(t, allocated.match(LinearWeight, "layers.3.mlp.gate_proj.weight"), "not decided")
	require.Nil(t, DefaultRecipe(minMax(4, 32), nil).match(EmbeddingWeight, "embed_tokens.weight"))
	require.Nil(t, DefaultRecipe(nil, minMax(8, 32)).match(LinearWeight, "layers.0.mlp.gate.weight"))
	require.Empty(t, DefaultRecipe(nil, nil).Rules)
	require.False(t, DefaultRecipe(minMax(4, 32), nil).RoundConstants, "small constants stay exact")
}

// TestExecuTorchRecipe: every linear, the router too, as ExecuTorch's exporter has it for each family.
func TestExecuTorchRecipe(t *testing.T) {
	hqq, err := ExecuTorchRecipe(ScaleOnly, minMax(4, 32), &quantize.Scheme{Bits: 8})
	require.NoError(t, err)
	require.True(t, hqq.RoundConstants)
	require.Equal(t, quantize.Scheme{Method: quantize.HQQ, Bits: 4, GroupSize: 32},
		*hqq.match(LinearWeight, "layers.0.mlp.gate.weight"))
	require.Equal(t, quantize.Scheme{Method: quantize.HQQ, Bits: 8}, *hqq.match(EmbeddingWeight, "embed_tokens.weight"))

	minmax, err := ExecuTorchRecipe(MinMax, minMax(4, 64), nil)
	require.NoError(t, err)
	require.Equal(t, quantize.Scheme{Method: quantize.TorchAOAsymmetric, Bits: 4, GroupSize: 64},
		*minmax.match(LinearWeight, "lm_head.weight"))
	require.Equal(t, quantize.Scheme{Method: quantize.TorchAOSymmetric, Bits: 8},
		*minmax.match(EmbeddingWeight, "embed_tokens.weight"))

	for _, style := range []ExecuTorchStyle{ScaleOnly, MinMax} {
		none, err := ExecuTorchRecipe(style, nil, nil)
		require.NoError(t, err)
		require.Empty(t, none.Rules)
		require.True(t, none.RoundConstants)
	}
	_, err = ExecuTorchRecipe(MinMax, minMax(8, 64), nil)
	require.EqualError(t, err, "recipe executorch: 8-bit linears; ExecuTorch's exporter has 4 bits for this architecture")
}

func TestRecipeRules(t *testing.T) {
	four, eight := minMax(4, 32), minMax(8, 32)
	r := Recipe{Name: "mine", Rules: []Rule{{Pattern: "layers.0.*"}, {Pattern: "*.down_proj.weight", Scheme: eight},
		{Scheme: four}}}
	require.NoError(t, r.check())
	require.Nil(t, r.match(LinearWeight, "layers.0.mlp.down_proj.weight"), "the first rule that matches decides")
	require.Same(t, eight, r.match(LinearWeight, "layers.1.mlp.down_proj.weight"))
	require.Same(t, four, r.match(LinearWeight, "layers.1.mlp.up_proj.weight"))
	require.Nil(t, r.match(EmbeddingWeight, "embed_tokens.weight"))
	require.ErrorContains(t, Recipe{Name: "mine", Rules: []Rule{{Pattern: "a["}}}.check(),
		`recipe mine: pattern "a[": `)
}
