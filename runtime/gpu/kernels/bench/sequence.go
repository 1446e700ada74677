package main

import (
	"fmt"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// sequences are the kernels of both models that mix tokens, or prepare and finish that: attention, the delta rule,
// norms, the sampler. Contexts and chunks are divided by small, for a test.
func sequences(small int) []testCase {
	qwen := kernels.Attention{D: 256, Heads: 16, KVHeads: 2, Slots: 32768 / small, Scale: 1. / 16, Cache: kernels.BF16}
	sliding := kernels.Attention{D: 256, Heads: 32, KVHeads: 16, Slots: max(2047/small, 64), Window: 1024 / small, Scale: 1, Cache: kernels.BF16}
	full := kernels.Attention{D: 512, Heads: 32, KVHeads: 4, Slots: 32768 / small, Scale: 1, Cache: kernels.BF16}
	var out []testCase
	for _, context := range []int{128, 512, 4096, 32768} {
		context := max(1, context/small)
		out = append(out, attentionStep("qwen", qwen, 64, context), attentionStep("gemma full", full, 512, context))
		if context <= 2*sliding.Slots {
			out = append(out, attentionStep("gemma sliding", sliding, 256, min(context, sliding.Slots)))
		}
	}
	for _, context := range []int{128, 4096, 32768} {
		context := max(1, context/small)
		out = append(out, attention("qwen attention", qwen, context)...)
		out = append(out, attention("gemma full attention", full, context)...)
	}
	out = append(out, attention("gemma sliding attention", sliding, sliding.Slots)...)
	for _, tokens := range []int{512, 4096} {
		tokens := tokens / small
		out = append(out, chunk("qwen", qwen, tokens), chunk("gemma full", full, tokens))
		out = append(out, delta(tokens)...)
	}
	out = append(out, chunk("gemma sliding", sliding, 256/small), deltaStep())
	return append(append(out, sampler(248320/small)...), norms(small)...)
}

// cache is a cache of keys or values in bf16.
func cache(a kernels.Attention) memory {
	return memory{content: scales, bytes: a.KVHeads * a.Slots * a.D * 2}
}

func attention(name string, a kernels.Attention, context int) []testCase {
	_, merge, blocks, err := a.Launches(1)
	all := []memory{vectors(a.Heads * a.D), cache(a), cache(a), results(a.Heads * blocks * a.D), results(a.Heads * blocks * 2), integers(1, int32(context-1)), results(a.Heads * a.D)}
	seen := context
	if a.Window > 0 {
		seen = min(seen, a.Window)
	}
	return []testCase{{
		name: fmt.Sprintf("%s at %d", name, context), memory: all, result: 3,
		bytes: float64(4 * seen * a.KVHeads * a.D), flops: float64(4 * seen * a.Heads * a.D),
		variants: func(on kernels.Machine) ([]variant, error) {
			var out []variant
			for _, t := range a.Tunings(on.Target, false) {
				tuned := a
				tuned.Tuning = t
				l, _, _, err := tuned.Launches(1)
				if err != nil {
					return nil, err
				}
				out = append(out, variant{label: fmt.Sprintf("%+v", t), launch: l, buffers: []int{0, 1, 2, 3, 4, 5}})
			}
			return out, nil
		},
	}, {
		name: fmt.Sprintf("%s at %d, merge", name, context), memory: all, result: 6,
		variants: func(kernels.Machine) ([]variant, error) {
			return []variant{{label: fmt.Sprintf("%d blocks", blocks), launch: merge, buffers: []int{3, 4, 3, 6, 5}}}, err
		},
	}}
}

// attentionStep is attention of one token with all around it. Caches have the slots that it sees, so that more of them rotate.
func attentionStep(name string, a kernels.Attention, dims, context int) testCase {
	a.Slots = context
	a.Gated = a.Window == 0 && a.D == 256
	s := kernels.AttentionStep{Attention: a, Early: true, Rope: kernels.Rope{D: a.D, Dims: dims, QHeads: a.Heads, KVHeads: a.KVHeads, QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm,
		Eps: 1e-6, Weight: kernels.F32, Cache: a.Cache, Slots: a.Slots, Ring: a.Window > 0}}
	seen := context
	if a.Window > 0 {
		seen = min(seen, a.Window)
	}
	most := 256 // blocks of any variant
	return testCase{
		name: fmt.Sprintf("%s attention step at %d", name, context), result: 7,
		memory: []memory{vectors(a.Heads * a.D), vectors(a.D), vectors(dims), cache(a), cache(a), results(a.Heads * most * a.D), results(a.Heads * most * 2),
			results(a.Heads * a.D), results(a.Heads), integers(1, int32(context-1))},
		bytes: float64(4 * seen * a.KVHeads * a.D), flops: float64(4 * seen * a.Heads * a.D),
		variants: func(on kernels.Machine) ([]variant, error) {
			var out []variant
			for _, t := range s.StepTunings(on.Target) {
				tuned := s
				tuned.Step = t
				l, _, blocks, err := tuned.Launches()
				if err != nil {
					return nil, err
				}
				if blocks <= most {
					out = append(out, variant{label: fmt.Sprintf("%+v", t), launch: l, buffers: []int{0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 0, 7, 8, 9}})
				}
			}
			return out, nil
		},
	}
}

func chunk(name string, a kernels.Attention, tokens int) testCase {
	pairs := 0
	for t := range tokens {
		seen := t + 1
		if a.Window > 0 {
			seen = min(seen, a.Window)
		}
		pairs += seen
	}
	n := tokens * a.Heads * a.D
	return testCase{
		name: fmt.Sprintf("prefill %s attention of %d", name, tokens), memory: []memory{vectors(n), cache(a), cache(a), results(n), step(tokens)}, result: 3,
		flops: float64(4 * pairs * a.Heads * a.D),
		variants: func(on kernels.Machine) ([]variant, error) {
			var out []variant
			for _, t := range a.ChunkTunings(on.Target) {
				l, err := a.ChunkLaunch(tokens, t)
				if err != nil {
					return nil, err
				}
				out = append(out, variant{label: fmt.Sprintf("%+v", t), launch: l, buffers: []int{0, 1, 2, 0, 3, 4}})
			}
			return out, nil
		},
	}
}

// qwenDelta is the gated delta rule of Qwen3.5.
func qwenDelta() kernels.Delta {
	return kernels.Delta{DK: 128, DV: 128, KHeads: 16, Heads: 32, State: kernels.F32}
}

func deltaStep() testCase {
	d := qwenDelta()
	d.Norm, d.Eps, d.Gates = kernels.F32, 1e-6, kernels.F32
	state := d.Heads * d.DV * d.DK
	return testCase{
		name: "qwen delta step", result: 6, bytes: float64(8 * state),
		memory: []memory{vectors(d.KHeads * d.DK), vectors(d.KHeads * d.DK), vectors(d.Heads * d.DV), vectors(d.DK), results(d.Heads), {content: scales, bytes: 4 * state}, results(d.Heads * d.DV), step(1)},
		variants: func(kernels.Machine) ([]variant, error) {
			var out []variant
			for _, rows := range []int{1, 2, 4} {
				for _, early := range []bool{true, false} {
					d.Rows, d.Early = rows, early
					l, err := d.StepLaunch()
					if err != nil {
						return nil, err
					}
					out = append(out, variant{label: fmt.Sprintf("%d rows of lanes, early %v", rows, early), launch: l, buffers: []int{0, 1, 2, 2, 2, 3, 3, 4, 4, 2, 5, 6, 5, 7}})
				}
			}
			return out, nil
		},
	}
}

// delta are the dispatches of the rule for a call of so many tokens. The scan resets its state, which would become infinite over
// many dispatches, and reads what no solve has made: its results by chunks of 32 tokens and of 64 differ.
func delta(tokens int) []testCase {
	d := qwenDelta()
	d.Reset = kernels.ResetFlag
	keys, valuesOf, gates := tokens*d.KHeads*d.DK, tokens*d.Heads*d.DV, tokens*d.Heads
	rotating := func(n int) memory { return memory{content: scales, bytes: 4 * n} }
	ws, ms := tokens*d.Heads*d.DK, (tokens+64)*d.Heads*64
	solveMemory := []memory{vectors(keys), vectors(keys), vectors(valuesOf), results(gates), results(gates), results(gates), results(ws), results(valuesOf), results(ms), step(tokens)}
	scanMemory := []memory{vectors(keys), vectors(keys), results(gates), rotating(ws), rotating(valuesOf), rotating(ms), integers(1), results(d.Heads * d.DV * d.DK), results(valuesOf), step(tokens)}
	return []testCase{{
		name: fmt.Sprintf("qwen delta solve of %d", tokens), memory: solveMemory, result: 8,
		variants: func(kernels.Machine) ([]variant, error) {
			var out []variant
			d := d
			for _, d.Length = range []int{32, 64} {
				solve, _, err := d.Launches(tokens)
				if err != nil {
					return nil, err
				}
				out = append(out, variant{label: fmt.Sprintf("%d tokens", d.Length), launch: solve, buffers: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}})
			}
			return out, nil
		},
	}, {
		name: fmt.Sprintf("qwen delta scan of %d", tokens), memory: scanMemory, result: 8,
		variants: func(kernels.Machine) ([]variant, error) {
			var out []variant
			d := d
			for _, v := range []struct{ length, columns, parts, buffers int }{
				{32, 16, 4, 2}, {32, 16, 4, 1}, {32, 16, 8, 2}, {32, 16, 8, 1}, {32, 32, 4, 1}, {32, 32, 4, 2}, {32, 32, 2, 1},
				{32, 8, 4, 2}, {32, 8, 8, 2}, {32, 8, 8, 1}, {64, 16, 2, 1}, {64, 16, 4, 1}, {64, 8, 2, 1}, {64, 32, 2, 1}, {64, 32, 4, 1},
			} {
				d.Length, d.Columns, d.Parts, d.Buffers = v.length, v.columns, v.parts, v.buffers
				_, scan, err := d.Launches(tokens)
				if err != nil {
					return nil, err
				}
				out = append(out, variant{label: fmt.Sprintf("%+v", v), launch: scan, buffers: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}})
			}
			return out, nil
		},
	}}
}

// sampler are the dispatches of a sampler with top-k 20 and top-p 0.95, 33 candidates for the last, and the argmax.
func sampler(vocab int) []testCase {
	s := kernels.Sample{Vocab: vocab, Filters: true}
	parts, each := s.Parts()
	counts := make([]int32, parts)
	for i := 0; i < parts; i += max(1, parts/33) {
		counts[i] = 1
	}
	const one, most = 0x3f800000, 0x3f733333 // 1 and 0.95
	all := []memory{vectors(vocab), integers(one), integers(20, 0), integers(most), integers(7, 0), vectors(parts), results(parts), vectors(parts * each), results(parts * each), integers(counts...), results(2 * parts), results(1)}
	part, collect, choose, err := s.Launches()
	argmax, _, first, err2 := kernels.Sample{Vocab: vocab, Greedy: true}.Launches()
	if err == nil {
		err = err2
	}
	var out []testCase
	for _, c := range []struct {
		name    string
		launch  kernels.Launch
		result  int
		buffers []int
	}{
		{"part", part, 5, []int{0, 1, 2, 3, 4, 5, 6}}, {"collect", collect, 7, []int{0, 1, 2, 3, 5, 7, 8, 9, 10}},
		{"choose", choose, 11, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11}},
		{"argmax part", argmax, 5, []int{0, 1, 2, 3, 4, 5, 6}}, {"argmax", first, 11, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11}},
	} {
		out = append(out, testCase{name: "sample " + c.name, memory: all, result: c.result,
			variants: func(kernels.Machine) ([]variant, error) {
				return []variant{{label: fmt.Sprintf("%d parts", parts), launch: c.launch, buffers: c.buffers}}, err
			}})
	}
	return out
}

// norms are the norms of both models, the convolution and the rotation of a token.
func norms(small int) []testCase {
	var out []testCase
	for _, n := range []int{2048, 5376} {
		for _, tokens := range []int{1, max(2, 4096/small)} {
			norm := kernels.RMSNorm{N: n, Heads: 1, Pre: kernels.F32, PreEps: 1e-6, Add: true, Sum: true, Weight: kernels.F32, Eps: 1e-6}
			out = append(out, testCase{
				name: fmt.Sprintf("norm of %dx%d", tokens, n), memory: []memory{vectors(tokens * n), vectors(n), vectors(tokens * n), results(tokens * n), results(tokens * n), step(tokens)}, result: 4,
				bytes: float64(16 * tokens * n),
				variants: func(kernels.Machine) ([]variant, error) {
					var out []variant
					for _, simdgroups := range []int{0, 8, 11, 14, 16, 32} {
						norm.Simdgroups = simdgroups
						l, err := norm.Launch(tokens)
						if err != nil {
							return nil, err
						}
						out = append(out, variant{label: fmt.Sprintf("%d simdgroups", simdgroups), launch: l, buffers: []int{0, 1, 2, 1, 1, 1, 3, 4, 5}})
					}
					return out, nil
				},
			})
		}
	}
	conv := kernels.Conv{Channels: 8192, Taps: 4, Token: 8192, SiLU: true, State: kernels.BF16, Weight: kernels.F32}
	rope := kernels.Rope{D: 256, Dims: 64, QHeads: 16, KVHeads: 2, Q: kernels.Rows{Token: 9216, Row: 512}, K: kernels.Rows{Token: 9216, Row: 256}, V: kernels.Rows{Token: 9216, Row: 256},
		QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32, Cache: kernels.BF16, Slots: 64}
	return append(out, testCase{
		name: "qwen conv step", memory: []memory{vectors(8192), vectors(4 * 8192), {content: halves, bytes: 2 * 4 * 8192}, results(8192), step(1)}, result: 3,
		variants: func(kernels.Machine) ([]variant, error) {
			l, err := conv.StepLaunch()
			return []variant{{label: "one thread a channel", launch: l, buffers: []int{0, 1, 4, 2, 3, 2, 4}}}, err
		},
	}, testCase{
		name: "qwen rope", memory: []memory{vectors(9216), vectors(256), vectors(64), results(16 * 256), results(64 * 256), step(1)}, result: 3,
		variants: func(kernels.Machine) ([]variant, error) {
			l, err := rope.Launch(1)
			return []variant{{label: "one simdgroup a head", launch: l, buffers: []int{0, 0, 0, 1, 1, 2, 3, 4, 4, 5}}}, err
		},
	})
}
