package synthetic

import "github.com/etc-ml/etc/loaders/huggingface"

// Qwen35MoE35B returns the configuration of Qwen3.5-35B-A3B with the given number of layers (40 in the published
// model): three gated delta nets, then one full attention, repeated.
func Qwen35MoE35B(layers int) *huggingface.Qwen {
	return &huggingface.Qwen{
		VocabSize: 248320, HiddenSize: 2048, Layers: pattern(layers, 4, huggingface.LinearAttention),
		Heads: 16, KVHeads: 2, HeadDim: 256, RotaryDim: 64, RopeTheta: 1e7,
		LinearKeyHeads: 16, LinearValueHeads: 32, LinearKeyHeadDim: 128, LinearValueHeadDim: 128, ConvKernel: 4,
		Experts: 256, ExpertsPerToken: 8, ExpertIntermediate: 512, SharedExpertIntermediate: 512,
		RMSNormEps: 1e-6, MaxPositions: 262144,
	}
}

// Gemma431B returns the configuration of Gemma4-31B with the given number of layers (60 in the published model): five
// sliding, then one full, repeated; the last one is full, as the architecture asks for.
func Gemma431B(layers int) *huggingface.Gemma4 {
	c := &huggingface.Gemma4{
		VocabSize: 262144, HiddenSize: 5376, IntermediateSize: 21504,
		Layers: pattern(layers, 6, huggingface.SlidingAttention),
		Sliding: huggingface.AttentionGeometry{Heads: 32, KVHeads: 16, HeadDim: 256,
			RotaryDim: 256, RopeTheta: 1e4},
		Full: huggingface.AttentionGeometry{Heads: 32, KVHeads: 4, HeadDim: 512,
			RotaryDim: 128, RopeTheta: 1e6},
		SlidingWindow: 1024, RMSNormEps: 1e-6, FinalLogitSoftcap: 30, TieWordEmbeddings: true, MaxPositions: 262144,
	}
	if layers > 0 {
		c.Layers[layers-1] = huggingface.FullAttention
	}
	return c
}

// Qwen35Dense27B returns the configuration of Qwen3.5-27B with the given number of layers (64 in the published model).
func Qwen35Dense27B(layers int) *huggingface.Qwen {
	return &huggingface.Qwen{
		VocabSize: 248320, HiddenSize: 5120, Layers: pattern(layers, 4, huggingface.LinearAttention),
		Heads: 24, KVHeads: 4, HeadDim: 256, RotaryDim: 64, RopeTheta: 1e7,
		LinearKeyHeads: 16, LinearValueHeads: 48, LinearKeyHeadDim: 128, LinearValueHeadDim: 128, ConvKernel: 4,
		Intermediate: 17408, RMSNormEps: 1e-6, MaxPositions: 262144,
	}
}

// Qwen3Next80B returns the configuration of Qwen3-Next-80B-A3B with the given number of layers (48 in the published
// model).
func Qwen3Next80B(layers int) *huggingface.Qwen {
	return &huggingface.Qwen{
		VocabSize: 151936, HiddenSize: 2048, Layers: pattern(layers, 4, huggingface.LinearAttention),
		JointProjections: true,
		Heads:            16, KVHeads: 2, HeadDim: 256, RotaryDim: 64, RopeTheta: 1e7,
		LinearKeyHeads: 16, LinearValueHeads: 32, LinearKeyHeadDim: 128, LinearValueHeadDim: 128, ConvKernel: 4,
		Experts: 512, ExpertsPerToken: 10, ExpertIntermediate: 512, SharedExpertIntermediate: 512,
		RMSNormEps: 1e-6, MaxPositions: 262144,
	}
}

// Qwen3MoE30B returns the configuration of Qwen3-30B-A3B with the given number of layers (48 in the published model).
func Qwen3MoE30B(layers int) *huggingface.Qwen {
	return &huggingface.Qwen{
		VocabSize: 151936, HiddenSize: 2048, Layers: pattern(layers, 1, 0), PlainNorms: true, NoGate: true,
		Heads: 32, KVHeads: 4, HeadDim: 128, RotaryDim: 128, RopeTheta: 1e6,
		Experts: 128, ExpertsPerToken: 8, ExpertIntermediate: 768, RMSNormEps: 1e-6, MaxPositions: 40960,
	}
}

// Qwen3Dense8B returns the configuration of Qwen3-8B with the given number of layers (36 in the published model).
func Qwen3Dense8B(layers int) *huggingface.Qwen {
	return &huggingface.Qwen{
		VocabSize: 151936, HiddenSize: 4096, Layers: pattern(layers, 1, 0), PlainNorms: true, NoGate: true,
		Heads: 32, KVHeads: 8, HeadDim: 128, RotaryDim: 128, RopeTheta: 1e6,
		Intermediate: 12288, RMSNormEps: 1e-6, MaxPositions: 40960,
	}
}

// Gemma426B returns the configuration of Gemma4-26B-A4B with the given number of layers (30 in the published model).
func Gemma426B(layers int) *huggingface.Gemma4 {
	c := Gemma431B(layers)
	c.HiddenSize, c.IntermediateSize = 2816, 2112
	c.Sliding.Heads, c.Sliding.KVHeads = 16, 8
	c.Full.Heads, c.Full.KVHeads = 16, 2
	c.Experts, c.ExpertsPerToken, c.ExpertIntermediate = 128, 8, 704
	return c
}

// Gemma412B returns the configuration of Gemma4-12B with the given number of layers (48 in the published model),
// which is of the family "gemma4unified".
func Gemma412B(layers int) *huggingface.Gemma4 {
	c := Gemma431B(layers)
	c.HiddenSize, c.IntermediateSize = 3840, 15360
	c.Sliding.Heads, c.Sliding.KVHeads = 16, 8
	c.Full.Heads, c.Full.KVHeads = 16, 1
	return c
}

// Gemma4E4B returns the configuration of Gemma4-E4B with the given number of layers (42 in the published model). The
// last 18 of 42, three sevenths, share keys and values.
func Gemma4E4B(layers int) *huggingface.Gemma4 {
	c := Gemma431B(layers)
	c.HiddenSize, c.IntermediateSize, c.SlidingWindow, c.MaxPositions = 2560, 10240, 512, 131072
	c.Sliding.Heads, c.Sliding.KVHeads = 8, 2
	c.Full.Heads, c.Full.KVHeads = 8, 2
	c.FullValues, c.PerLayerInput = true, 256
	if layers >= 14 { // else a kind of layer might have none to share with
		c.SharedKVLayers = 3 * layers / 7
	}
	return c
}

// MuseGlimmer30B returns the configuration of Muse-Glimmer-30B with the given number of layers (52 in the published
// model): counted from the last one, every fourth layer is full and not rotated.
func MuseGlimmer30B(layers int) *huggingface.MuseGlimmer {
	c := &huggingface.MuseGlimmer{
		VocabSize: 202048, HiddenSize: 6656, Intermediate: 19968, SlidingWindow: 2048,
		Heads: 32, KVHeads: 2, HeadDim: 128, RopeTheta: 5e5, QKScale: 3.87,
		RMSNormEps: 1e-5, PostNormEps: 1e-8, OutputMultiplier: 0.19611613513818404,
		FinalLogitSoftcap: 20, MaxPositions: 131072,
	}
	for i := range layers {
		full := (layers-1-i)%4 == 0
		c.Unrotated = append(c.Unrotated, full)
		kind := huggingface.SlidingAttention
		if full {
			kind = huggingface.FullAttention
		}
		c.Layers = append(c.Layers, kind)
	}
	return c
}

// pattern makes every interval-th layer full, and the others of the given kind.
func pattern(layers, interval int, other huggingface.LayerKind) []huggingface.LayerKind {
	kinds := make([]huggingface.LayerKind, max(layers, 0))
	for i := range kinds {
		kinds[i] = other
		if (i+1)%interval == 0 {
			kinds[i] = huggingface.FullAttention
		}
	}
	return kinds
}
