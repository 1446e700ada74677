package loaders

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

func smallQwen(change func(*huggingface.Qwen)) *huggingface.Qwen {
	c := &huggingface.Qwen{
		VocabSize: 48, HiddenSize: 32, Layers: []huggingface.LayerKind{huggingface.LinearAttention, huggingface.FullAttention, huggingface.LinearAttention},
		Heads: 4, KVHeads: 2, HeadDim: 16, RotaryDim: 4, RopeTheta: 1e4,
		LinearKeyHeads: 2, LinearValueHeads: 4, LinearKeyHeadDim: 8, LinearValueHeadDim: 8, ConvKernel: 4,
		Experts: 6, ExpertsPerToken: 2, ExpertIntermediate: 24, SharedExpertIntermediate: 16,
		RMSNormEps: 1e-6, MaxPositions: 64,
	}
	if change != nil {
		change(c)
	}
	return c
}

func smallGemma(change func(*huggingface.Gemma4)) *huggingface.Gemma4 {
	s, f := huggingface.SlidingAttention, huggingface.FullAttention
	c := &huggingface.Gemma4{
		VocabSize: 48, HiddenSize: 32, IntermediateSize: 40, Layers: []huggingface.LayerKind{s, s, f, s, f},
		Sliding:       huggingface.AttentionGeometry{Heads: 4, KVHeads: 2, HeadDim: 8, RotaryDim: 8, RopeTheta: 1e4},
		Full:          huggingface.AttentionGeometry{Heads: 4, KVHeads: 1, HeadDim: 16, RotaryDim: 4, RopeTheta: 1e6},
		SlidingWindow: 5, RMSNormEps: 1e-6, FinalLogitSoftcap: 3, TieWordEmbeddings: true, MaxPositions: 64,
	}
	if change != nil {
		change(c)
	}
	return c
}

// dense makes a model with MLPs of one with experts; plain one without gates, delta nets and centred norms.
func dense(c *huggingface.Qwen) {
	c.Experts, c.ExpertsPerToken, c.ExpertIntermediate, c.SharedExpertIntermediate, c.Intermediate = 0, 0, 0, 0, 40
}

func plain(c *huggingface.Qwen) {
	full := huggingface.FullAttention
	c.Layers, c.PlainNorms, c.NoGate, c.RotaryDim = []huggingface.LayerKind{full, full}, true, true, c.HeadDim
	c.LinearKeyHeads, c.LinearValueHeads, c.LinearKeyHeadDim, c.LinearValueHeadDim, c.ConvKernel = 0, 0, 0, 0, 0
	c.SharedExpertIntermediate = 0
}

func changes(steps ...func(*huggingface.Qwen)) func(*huggingface.Qwen) {
	return func(c *huggingface.Qwen) {
		for _, f := range steps {
			f(c)
		}
	}
}

// yarn changes the frequencies of all pairs but the first, of a text of 64 positions.
var yarn = &huggingface.RopeScaling{Type: "yarn", Factor: 4, Positions: 64, BetaFast: 8, BetaSlow: 1, Truncate: true}

// splitExperts gives every expert tensors of its own.
func splitExperts(list []stored) []stored {
	var out []stored
	for _, s := range list {
		prefix, fused := strings.CutSuffix(s.name, "gate_up_proj")
		if !fused {
			if prefix, fused = strings.CutSuffix(s.name, "down_proj"); !fused || !strings.HasSuffix(prefix, "experts.") {
				out = append(out, s)
				continue
			}
		}
		names := []string{"gate_proj", "up_proj"}
		if strings.HasSuffix(s.name, "down_proj") {
			names = []string{"down_proj"}
		}
		rows := s.shape[1] / len(names)
		size := len(s.data) / s.shape[0] / len(names)
		for i := range s.shape[0] * len(names) {
			out = append(out, stored{fmt.Sprintf("%s%d.%s.weight", prefix, i/len(names), names[i%len(names)]), s.dtype, []int{rows, s.shape[2]}, s.data[i*size : (i+1)*size]})
		}
	}
	return out
}

func convert(d safetensors.DType) func([]stored) []stored {
	return func(list []stored) []stored {
		for i := range list {
			list[i] = list[i].as(d)
		}
		return list
	}
}

func chain(steps ...func([]stored) []stored) func([]stored) []stored {
	return func(list []stored) []stored {
		for _, f := range steps {
			list = f(list)
		}
		return list
	}
}

// TestVariants runs checkpoints of many configurations and forms against the reference forwards: in
// chunks, in other chunks, and again after another text, which must leave no trace.
func TestVariants(t *testing.T) {
	linear, full := huggingface.LinearAttention, huggingface.FullAttention
	tests := []struct {
		name    string
		config  huggingface.Config
		tensors func([]stored) []stored
		json    func(map[string]any)
		dtype   ir.DType // of the caches
	}{
		{"qwen", smallQwen(nil), nil, nil, ir.BF16},
		{"qwen flat, plain names, single experts", smallQwen(nil), chain(plainNames, splitExperts), flatten, ir.BF16},
		{"qwen conv kernel 3", smallQwen(func(c *huggingface.Qwen) { c.ConvKernel = 3 }), nil, nil, ir.BF16},
		{"qwen conv kernel 1", smallQwen(func(c *huggingface.Qwen) { c.ConvKernel = 1 }), nil, nil, ir.BF16},
		{"qwen as many key as value heads", smallQwen(func(c *huggingface.Qwen) { c.LinearKeyHeads = 4 }), nil, nil, ir.BF16},
		{"qwen three value heads a key head", smallQwen(func(c *huggingface.Qwen) { c.LinearValueHeads = 6 }), nil, nil, ir.BF16},
		{"qwen values wider than keys", smallQwen(func(c *huggingface.Qwen) { c.LinearValueHeadDim = 12 }), nil, nil, ir.BF16},
		{"qwen keys wider than values", smallQwen(func(c *huggingface.Qwen) { c.LinearKeyHeadDim = 12 }), nil, nil, ir.BF16},
		{"qwen tied head", smallQwen(func(c *huggingface.Qwen) { c.TieWordEmbeddings = true }), nil, nil, ir.BF16},
		{"qwen whole heads rotated", smallQwen(func(c *huggingface.Qwen) { c.RotaryDim = 16 }), nil, nil, ir.BF16},
		{"qwen one key-value head", smallQwen(func(c *huggingface.Qwen) { c.KVHeads = 1 }), nil, nil, ir.BF16},
		{"qwen all experts", smallQwen(func(c *huggingface.Qwen) { c.ExpertsPerToken = 6 }), nil, nil, ir.BF16},
		{"qwen large eps", smallQwen(func(c *huggingface.Qwen) { c.RMSNormEps = 1e-2 }), nil, nil, ir.BF16},
		{"qwen full layers only", smallQwen(func(c *huggingface.Qwen) { c.Layers = []huggingface.LayerKind{full, full} }), nil, nil, ir.BF16},
		{"qwen linear layers only", smallQwen(func(c *huggingface.Qwen) { c.Layers = []huggingface.LayerKind{linear, linear} }), nil, nil, ir.BF16},
		{"qwen float32", smallQwen(nil), convert(safetensors.F32), nil, ir.F32},
		{"qwen float16", smallQwen(nil), chain(convert(safetensors.F16), splitExperts), nil, ir.F32},
		{"qwen dense", smallQwen(dense), nil, nil, ir.BF16},
		{"qwen joint projections", smallQwen(func(c *huggingface.Qwen) { c.JointProjections = true }), nil, nil, ir.BF16},
		{"qwen joint projections, three value heads a key head", smallQwen(func(c *huggingface.Qwen) { c.JointProjections, c.LinearValueHeads = true, 6 }), nil, nil, ir.BF16},
		{"qwen absolute scores, a dense layer", smallQwen(func(c *huggingface.Qwen) {
			c.JointProjections, c.AbsoluteScores, c.DenseLayers, c.Intermediate = true, true, []int{1}, 40
		}), nil, nil, ir.BF16},
		{"qwen plain", smallQwen(changes(plain, dense)), nil, nil, ir.BF16},
		{"qwen plain, experts", smallQwen(func(c *huggingface.Qwen) { plain(c); c.SharedExpertIntermediate = 0 }), nil, nil, ir.BF16},
		{"qwen linear scaling", smallQwen(func(c *huggingface.Qwen) { c.RopeScaling = &huggingface.RopeScaling{Type: "linear", Factor: 4} }), nil, nil, ir.BF16},
		{"qwen yarn", smallQwen(func(c *huggingface.Qwen) { c.RotaryDim, c.RopeScaling = 8, yarn; c.MaxPositions *= 4 }), nil, nil, ir.BF16},
		{"qwen plain, yarn", smallQwen(func(c *huggingface.Qwen) { plain(c); dense(c); c.RopeScaling = yarn; c.MaxPositions *= 4 }), nil, nil, ir.BF16},
		{"gemma", smallGemma(nil), nil, nil, ir.BF16},
		{"gemma flat, plain names", smallGemma(nil), plainNames, flatten, ir.BF16},
		{"gemma own head", smallGemma(func(c *huggingface.Gemma4) { c.TieWordEmbeddings = false }), nil, nil, ir.BF16},
		{"gemma no cap", smallGemma(func(c *huggingface.Gemma4) { c.FinalLogitSoftcap = 0 }), nil, nil, ir.BF16},
		{"gemma window 1", smallGemma(func(c *huggingface.Gemma4) { c.SlidingWindow = 1 }), nil, nil, ir.BF16},
		{"gemma window 2", smallGemma(func(c *huggingface.Gemma4) { c.SlidingWindow = 2 }), nil, nil, ir.BF16},
		{"gemma window beyond the text", smallGemma(func(c *huggingface.Gemma4) { c.SlidingWindow = 100 }), nil, nil, ir.BF16},
		{"gemma whole full heads rotated", smallGemma(func(c *huggingface.Gemma4) { c.Full.RotaryDim = 16 }), nil, nil, ir.BF16},
		{"gemma kinds of one shape", smallGemma(func(c *huggingface.Gemma4) {
			c.Full = huggingface.AttentionGeometry{Heads: 4, KVHeads: 2, HeadDim: 8, RotaryDim: 2, RopeTheta: 1e4}
		}), nil, nil, ir.BF16},
		{"gemma full layers only", smallGemma(func(c *huggingface.Gemma4) { c.Layers = []huggingface.LayerKind{full, full} }), nil, nil, ir.BF16},
		{"gemma values in full layers", smallGemma(func(c *huggingface.Gemma4) { c.FullValues, c.Full.KVHeads = true, 2 }), nil, nil, ir.BF16},
		{"gemma experts", smallGemma(func(c *huggingface.Gemma4) { c.Experts, c.ExpertsPerToken, c.ExpertIntermediate = 5, 2, 24 }), nil, nil, ir.BF16},
		{"gemma single experts", smallGemma(func(c *huggingface.Gemma4) { c.Experts, c.ExpertsPerToken, c.ExpertIntermediate = 5, 3, 24 }), splitExperts, nil, ir.BF16},
		{"gemma embeddings of layers", smallGemma(func(c *huggingface.Gemma4) { c.PerLayerInput = 6 }), nil, nil, ir.BF16},
		{"gemma shared keys and values", smallGemma(func(c *huggingface.Gemma4) { c.SharedKVLayers = 2 }), nil, nil, ir.BF16},
		{"gemma all of it", smallGemma(func(c *huggingface.Gemma4) {
			c.FullValues, c.Full.KVHeads, c.SharedKVLayers, c.DoubleWideMLP, c.PerLayerInput = true, 2, 2, true, 6
			c.Experts, c.ExpertsPerToken, c.ExpertIntermediate = 5, 2, 24
		}), nil, nil, ir.BF16},
		{"gemma float32", smallGemma(nil), convert(safetensors.F32), nil, ir.F32},
		{"gemma float16", smallGemma(nil), convert(safetensors.F16), nil, ir.F32},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := generate(t, test.config)
			if test.tensors != nil || test.json != nil {
				dir = rewrite(t, dir, test.tensors, test.json)
			}
			c := openCheckpoint(t, dir)
			require.Equal(t, test.config, c.Model.Config)
			reference := openReference(t, dir)
			forward := func(ids []int64) [][]float64 { return reference.gemma(test.config.(*huggingface.Gemma4), ids) }
			if q, ok := test.config.(*huggingface.Qwen); ok {
				forward = func(ids []int64) [][]float64 { return reference.qwen(q, ids) }
			}
			ids, others := someTokens(29, 1), someTokens(9, 2)
			want := forward(ids)

			for _, o := range []Options{{NoSampler: true}, {NoSampler: true, MaxSeqLen: 30, MaxPrefillChunk: 1}} {
				m := build(t, c, o)
				require.NotContains(t, text(t, m), "fuse=\"\"")
				for _, b := range m.Buffers {
					if !strings.HasSuffix(b.Name, ".recurrent_state") {
						require.Equal(t, test.dtype, b.Type.DType, b.Name)
					}
				}
				s, chunk := newSession(t, m), int(m.Metadata[3].Values[0].(int64))
				requireClose(t, want, s.feed(ids, 0, chunk))
				requireClose(t, forward(others), s.feed(others, 0, chunk))
				// As users chat: a prompt, single tokens, another prompt.
				logits := s.feed(ids[:min(7, chunk)], 0, chunk)
				logits = append(logits, s.feed(ids[len(logits):len(logits)+3], len(logits), 1)...)
				logits = append(logits, s.feed(ids[len(logits):], len(logits), min(3, chunk))...)
				requireClose(t, want, logits)
			}
		})
	}
}

func someTokens(n, seed int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64((i*i*7 + i*seed*5 + seed) % 48)
	}
	return ids
}

// requireClose compares logits in units of the largest one.
func requireClose(t *testing.T, want [][]float64, got [][]float32) {
	t.Helper()
	require.Len(t, got, len(want))
	largest, worst := 0.0, 0.0
	for i := range want {
		require.Len(t, got[i], len(want[i]))
		for j, w := range want[i] {
			largest = max(largest, math.Abs(w))
			worst = max(worst, math.Abs(w-float64(got[i][j])))
		}
	}
	require.Greater(t, largest, 0.01)
	require.Less(t, worst, 2e-5*largest)
}
