package passes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// TestParseRecipe reads the text form; its print reads as the same recipe.
func TestParseRecipe(t *testing.T) {
	text := `
# the router and the first layers are sensitive
linear    *.mlp.gate.weight  8w             # group=64 method=best
linear    *.down_proj*       8w   group=32  layers=0-1,39
linear    lm_head.weight     none
linear    *.up_proj.weight   mxfp4
linear    *.v_proj.weight    mxfp8 method=best group=32
linear    *.q_proj.weight    nvfp4 group=16
linear    *                  4w   method=minmax group=128
embedding *                  8w   method=hqq group=row
constants bf16
`
	r, err := ParseRecipe("mine", text)
	require.NoError(t, err)
	require.True(t, r.RoundConstants)
	for _, test := range []struct {
		kind WeightKind
		name string
		want *quantize.Scheme
	}{
		{LinearWeight, "layers.7.mlp.gate.weight", &quantize.Scheme{Method: quantize.Best, Bits: 8, GroupSize: 64}},
		{LinearWeight, "layers.0.mlp.down_proj.weight",
			&quantize.Scheme{Method: quantize.Best, Bits: 8, GroupSize: 32}},
		{LinearWeight, "layers.1.mlp.experts.down_proj",
			&quantize.Scheme{Method: quantize.Best, Bits: 8, GroupSize: 32}},
		{LinearWeight, "layers.2.mlp.down_proj.weight", minMax(4, 128)},
		{LinearWeight, "layers.39.mlp.down_proj.weight",
			&quantize.Scheme{Method: quantize.Best, Bits: 8, GroupSize: 32}},
		{LinearWeight, "layers.139.mlp.down_proj.weight", minMax(4, 128)},
		{LinearWeight, "lm_head.weight", nil},
		{LinearWeight, "layers.0.mlp.up_proj.weight",
			&quantize.Scheme{Method: quantize.MinMax, Mode: ir.MXFP4, Bits: 4, GroupSize: 32}},
		{LinearWeight, "layers.0.self_attn.v_proj.weight",
			&quantize.Scheme{Method: quantize.Best, Mode: ir.MXFP8, Bits: 8, GroupSize: 32}},
		{LinearWeight, "embed_tokens.weight", minMax(4, 128)},
		{EmbeddingWeight, "embed_tokens.weight", &quantize.Scheme{Method: quantize.HQQ, Bits: 8}},
	} {
		require.Equal(t, test.want, r.match(test.kind, test.name), test.name)
	}
	again, err := ParseRecipe("mine", r.String())
	require.NoError(t, err)
	require.Equal(t, r, again)
	for _, builtin := range []Recipe{DefaultRecipe(minMax(4, 64), minMax(8, 32)), DefaultRecipe(nil, minMax(8, 32))} {
		again, err := ParseRecipe("default", builtin.String())
		require.NoError(t, err)
		require.Equal(t, builtin, again)
	}
}

// TestParseRecipeErrors: each names the recipe, the line and what was expected.
func TestParseRecipeErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", `recipe x: no rules`},
		{"# nothing", `recipe x: no rules`},
		{"\nlinears * 4w", `recipe x, line 2: a line begins with "linears", want linear, embedding, draft or constants`},
		{"linear *", `recipe x, line 1: 2 fields, want a kind, a pattern, and none, 4w, 8w, mxfp4, mxfp8 or nvfp4`},
		{"linear * 5w", `recipe x, line 1: weights "5w", want none, 4w, 8w, mxfp4, mxfp8 or nvfp4`},
		{"linear a[ 4w", `recipe x, line 1: pattern "a[": syntax error in pattern`},
		{"linear * 4w group", `recipe x, line 1: option "group", want each of`},
		{"linear * 4w group=32 group=64", `recipe x, line 1: option "group=64", want each of`},
		{"linear * 4w group=48", `recipe x, line 1: group=48, want 32, 64, 128 or row`},
		{"linear * 4w group=row", `recipe x, line 1: group=row with method best; only hqq has one group a row`},
		{"linear * 4w method=awq", `recipe x, line 1: method=awq, want best, minmax or hqq`},
		{"linear * mxfp4 group=64", `recipe x, line 1: mxfp4 with group=64 method=minmax, want groups of 32 and minmax or best`},
		{"linear * mxfp8 method=hqq", `recipe x, line 1: mxfp8 with group=32 method=hqq, want groups of 32 and minmax or best`},
		{"linear * nvfp4 group=32", `recipe x, line 1: nvfp4 with group=32 method=minmax, want groups of 16 and minmax or best`},
		{"linear * 4w group=16", `recipe x, line 1: group=16 of affine, want 32, 64, 128 or row`},
		{"embedding * nvfp4", `recipe x, line 1: nvfp4 of an embedding, want none`},
		{"linear * mxfp4 group=row", `recipe x, line 1: mxfp4 with group=0 method=minmax, want groups of 32`},
		{"linear * 4w bits=4", `recipe x, line 1: option bits=4, want group, method or layers`},
		{"linear * none group=64", `recipe x, line 1: option group=64 of weights that are not quantized`},
		{"linear * 4w layers=", `recipe x, line 1: layers=: "", want numbers and ranges`},
		{"linear * 4w layers=3-1", `recipe x, line 1: layers=3-1: "3-1", want numbers and ranges`},
		{"linear * 4w layers=-1", `recipe x, line 1: layers=-1: "-1", want numbers and ranges`},
		{"constants f32", `recipe x, line 1: "constants f32", want "constants bf16"`},
		{strings.Repeat("#", maxRecipeBytes+1), `recipe x: 1048577 bytes, want at most 1048576`},
	} {
		_, err := ParseRecipe("x", test.text)
		require.ErrorContains(t, err, test.want, test.text)
	}
}

// FuzzParseRecipe: no text makes the parser panic, and what it accepts prints as the same recipe.
func FuzzParseRecipe(f *testing.F) {
	f.Add("linear * 4w group=64 method=best layers=0-3,7\nembedding a.*.b 8w # c\nconstants bf16")
	f.Add("linear [a-z]* none")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRecipe("x", text)
		if err != nil {
			return
		}
		again, err := ParseRecipe("x", r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
