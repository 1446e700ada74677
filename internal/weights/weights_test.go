package weights_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/internal/weights"
	"github.com/etc-ml/etc/loaders"
)

var names = weights.Names{Linear: "LINEAR", Embedding: "EMBEDDING", Method: "METHOD", Recipe: "RECIPE",
	TargetBits: "BITS", Calibrate: "TEXT"}

// What the record says follows from what is asked for, and what is left open from the form.
func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		choice weights.Choice
		want   record.Options
	}{
		"nothing": {weights.Choice{},
			record.Options{Linear: "none", Embedding: "none", GroupSize: 64, EmbeddingGroupSize: 64, Method: "best"}},
		"given": {weights.Choice{Linear: "4w", Group: 32, Embedding: "8w", EmbeddingGroup: 128, Method: "hqq"},
			record.Options{Linear: "4w", Embedding: "8w", GroupSize: 32, EmbeddingGroupSize: 128, Method: "hqq"}},
		"by a text": {weights.Choice{Linear: "4w", Text: true},
			record.Options{Linear: "4w", Embedding: "none", GroupSize: 64, EmbeddingGroupSize: 64, Method: "auto"}},
		"block floats": {weights.Choice{Linear: "nvfp4", Embedding: "mxfp4"},
			record.Options{Linear: "nvfp4", Embedding: "mxfp4", GroupSize: 16, EmbeddingGroupSize: 32, Method: "minmax"}},
		"an affine embedding": {weights.Choice{Linear: "mxfp4", Embedding: "4w"},
			record.Options{Linear: "mxfp4", Embedding: "4w", GroupSize: 32, EmbeddingGroupSize: 64, Method: "best"}},
		"the exporter's": {weights.Choice{Linear: "4w", Embedding: "8w", Recipe: weights.ExecuTorch},
			record.Options{Linear: "4w", Embedding: "8w", GroupSize: 64, EmbeddingGroupSize: 0, Method: "best"}},
	} {
		require.Equal(t, c.want, c.choice.Options(), name)
	}
}

// Recipes have a rule for each kind of weight that is asked for, and errors name the options.
func TestMakeRecipe(t *testing.T) {
	c, err := loaders.Open(filepath.Join("..", "..", "testdata", "checkpoints", "qwen3-tiny"))
	require.NoError(t, err)
	defer c.Close()
	r, err := weights.Choice{Linear: "4w", Group: 32, Embedding: "8w", Names: names}.MakeRecipe(c)
	require.NoError(t, err)
	text := strings.Join(r.Lines(), "\n")
	require.Regexp(t, `(?m)^linear +\* +4w +group=32`, text)
	require.Regexp(t, `(?m)^embedding +\* +8w +group=64`, text)
	_, a, err := weights.Choice{Group: 64, Names: names}.Allocate(c, 6)
	require.NoError(t, err)
	require.InDelta(t, 6, a.BitsPerWeight, 0)
	require.Len(t, a.Schemes, 2, "4 and 8 bits in groups of this size")
	for want, choice := range map[string]weights.Choice{
		`LINEAR "3w", want none, 4w`:                          {Linear: "3w"},
		`EMBEDDING "nvfp4", want none, 4w`:                    {Embedding: "nvfp4"},
		`LINEAR mxfp4 with groups of 64: its groups are of`:   {Linear: "mxfp4", Group: 64},
		`LINEAR mxfp4 with METHOD hqq, which has scales`:      {Linear: "mxfp4", Method: "hqq"},
		`METHOD "x", want best`:                               {Linear: "4w", Method: "x"},
		`METHOD best with RECIPE executorch`:                  {Recipe: weights.ExecuTorch, Linear: "4w", Method: "best"},
		`mxfp4 with RECIPE executorch: ExecuTorch's exporter`: {Recipe: weights.ExecuTorch, Linear: "mxfp4"},
	} {
		choice.Names = names
		_, err := choice.MakeRecipe(c)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, kind.ErrUsage)
	}
	for want, choice := range map[string]weights.Choice{
		"BITS with METHOD hqq, which looks at whole matrices":  {Method: "hqq"},
		"BITS with METHOD gptq, which looks at whole matrices": {Method: "gptq"},
	} {
		choice.Names = names
		_, _, err := choice.Allocate(c, 6)
		require.ErrorContains(t, err, want)
	}
	_, _, err = weights.Choice{Names: names}.Allocate(c, 4)
	require.ErrorContains(t, err, "BITS 4, want 4.25 to 32")
}
