package execfuzz

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/synthetic"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// tinyModels are configurations of the families, as small as their kernels allow.
var tinyModels = []struct {
	name   string
	config huggingface.Config
}{
	{"qwen35moe", &huggingface.Qwen{
		VocabSize: 32, HiddenSize: 32,
		Layers: []huggingface.LayerKind{huggingface.LinearAttention, huggingface.FullAttention},
		Heads:  2, KVHeads: 1, HeadDim: 32, RotaryDim: 16, RopeTheta: 1e4,
		LinearKeyHeads: 1, LinearValueHeads: 2, LinearKeyHeadDim: 32, LinearValueHeadDim: 32, ConvKernel: 4,
		Experts: 4, ExpertsPerToken: 2, ExpertIntermediate: 32, SharedExpertIntermediate: 32,
		RMSNormEps: 1e-6, MaxPositions: 64,
	}},
	{"gemma4", &huggingface.Gemma4{
		VocabSize: 32, HiddenSize: 32, IntermediateSize: 64,
		Layers:        []huggingface.LayerKind{huggingface.SlidingAttention, huggingface.FullAttention},
		Sliding:       huggingface.AttentionGeometry{Heads: 2, KVHeads: 1, HeadDim: 32, RotaryDim: 32, RopeTheta: 1e4},
		Full:          huggingface.AttentionGeometry{Heads: 2, KVHeads: 1, HeadDim: 64, RotaryDim: 16, RopeTheta: 1e6},
		SlidingWindow: 6, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 64,
	}},
}

// models writes programs of tiny models: plain, portable, quantized, with the sampling head.
func models(t testing.TB) []Seed {
	t.Helper()
	four := &quantize.Scheme{Bits: 4, GroupSize: 32, Method: quantize.MinMax}
	eight := &quantize.Scheme{Bits: 8, GroupSize: 32, Method: quantize.MinMax}
	var out []Seed
	for _, x := range tinyModels {
		dir := filepath.Join(t.TempDir(), x.name)
		require.NoError(t, synthetic.Generate(dir, synthetic.Spec{Config: x.config, Seed: 1}))
		for _, v := range []struct {
			name    string
			options passes.Options
		}{
			{"plain", passes.Options{}},
			{"portable-4w", passes.Options{Portable: true, Recipe: passes.DefaultRecipe(four, eight)}},
			{"4w-sample", passes.Options{Sample: true, Recipe: passes.DefaultRecipe(four, eight)}},
		} {
			c, err := loaders.Open(dir)
			require.NoError(t, err)
			m, err := c.Build(loaders.Options{MaxSeqLen: 16, MaxPrefillChunk: 6})
			require.NoError(t, err)
			options := v.options
			require.NoError(t, passes.Run(m, &options))
			path := filepath.Join(dir, v.name+".pte")
			require.NoError(t, codegen.Write(context.Background(), path, codegen.File{Module: m, Jobs: 1}))
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			out = append(out, Seed{x.name + "-" + v.name, b})
		}
	}
	return out
}
