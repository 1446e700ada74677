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
func cache(a kernels.Attention) *memory {
	return &memory{content: scales, bytes: a.KVHeads * a.Slots * a.D * 2}
}

func attention(name string, a kernels.Attention, context int) []testCase {
	_, merge, blocks, err := a.Launches(1)
	first := kernels.AttentionPartArguments[*memory]{Q: vectors(a.Heads * a.D), Keys: cache(a), Values: cache(a), Part: results(a.Heads * blocks * a.D),
		ML: results(a.Heads * blocks * 2), Step: integers(1, int32(context-1))}
	second := kernels.AttentionMergeArguments[*memory]{Part: first.Part, ML: first.ML, Out: results(a.Heads * a.D), Step: first.Step}
	seen := context
	if a.Window > 0 {
		seen = min(seen, a.Window)
	}
	return []testCase{{
		name: fmt.Sprintf("%s at %d", name, context), arguments: first, result: first.Part,
		bytes: float64(4 * seen * a.KVHeads * a.D), flops: float64(4 * seen * a.Heads * a.D),
		variants: func(on kernels.Machine) ([]variant, error) {
			return ways(a.Tunings(on.Target, false), func(t kernels.AttentionTuning) (kernels.Launch, error) {
				tuned := a
				tuned.Tuning = t
				l, _, _, err := tuned.Launches(1)
				return l, err
			})
		},
	}, {
		name: fmt.Sprintf("%s at %d, merge", name, context), arguments: second, result: second.Out, variants: only(fmt.Sprintf("%d blocks", blocks), merge, err),
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
	x, norm := vectors(a.Heads*a.D), vectors(a.D)
	of := kernels.AttentionStepArguments[*memory]{Q: x, K: x, V: x, QWeight: norm, KWeight: norm, Angles: vectors(dims), Keys: cache(a), Values: cache(a),
		Part: results(a.Heads * most * a.D), ML: results(a.Heads * most * 2), Gate: x, Out: results(a.Heads * a.D), Arrivals: results(a.Heads), Step: integers(1, int32(context-1))}
	return testCase{
		name: fmt.Sprintf("%s attention step at %d", name, context), arguments: of, result: of.Out,
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
					out = append(out, variant{label: fmt.Sprintf("%+v", t), launch: l})
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
	of := kernels.AttentionChunkArguments[*memory]{Q: vectors(n), Keys: cache(a), Values: cache(a), Out: results(n), Step: step(tokens)}
	return testCase{
		name: fmt.Sprintf("prefill %s attention of %d", name, tokens), arguments: of, result: of.Out,
		flops: float64(4 * pairs * a.Heads * a.D),
		variants: func(on kernels.Machine) ([]variant, error) {
			return ways(a.ChunkTunings(on.Target), func(t kernels.ChunkTuning) (kernels.Launch, error) { return a.ChunkLaunch(tokens, t) })
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
	v, norm, gates, held := vectors(d.Heads*d.DV), vectors(d.DK), results(d.Heads), &memory{content: scales, bytes: 4 * state}
	a := kernels.DeltaStepArguments[*memory]{Q: vectors(d.KHeads * d.DK), K: vectors(d.KHeads * d.DK), V: v, G: v, Beta: v, QWeight: norm, KWeight: norm, Bias: gates, Rate: gates,
		State: held, Y: results(d.Heads * d.DV), Next: held, Step: step(1)}
	return testCase{
		name: "qwen delta step", arguments: a, result: a.Y, bytes: float64(8 * state),
		variants: func(kernels.Machine) ([]variant, error) {
			var out []variant
			for _, rows := range []int{1, 2, 4} {
				for _, early := range []bool{true, false} {
					d.Rows, d.Early = rows, early
					l, err := d.StepLaunch()
					if err != nil {
						return nil, err
					}
					out = append(out, variant{label: fmt.Sprintf("%d rows of lanes, early %v", rows, early), launch: l})
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
	rotating := func(n int) *memory { return &memory{content: scales, bytes: 4 * n} }
	ws, ms := tokens*d.Heads*d.DK, (tokens+64)*d.Heads*64
	first := kernels.DeltaSolveArguments[*memory]{Q: vectors(keys), K: vectors(keys), V: vectors(valuesOf), G: results(gates), Beta: results(gates),
		Sums: results(gates), W: results(ws), U: results(valuesOf), M: results(ms), Step: step(tokens)}
	second := kernels.DeltaScanArguments[*memory]{Q: first.Q, K: first.K, Sums: results(gates), W: rotating(ws), U: rotating(valuesOf), M: rotating(ms),
		Reset: integers(1), State: results(d.Heads * d.DV * d.DK), Y: results(valuesOf), Step: step(tokens)}
	return []testCase{{
		name: fmt.Sprintf("qwen delta solve of %d", tokens), arguments: first, result: first.M,
		variants: func(kernels.Machine) ([]variant, error) {
			var out []variant
			d := d
			for _, d.Length = range []int{32, 64} {
				solve, _, err := d.Launches(tokens)
				if err != nil {
					return nil, err
				}
				out = append(out, variant{label: fmt.Sprintf("%d tokens", d.Length), launch: solve})
			}
			return out, nil
		},
	}, {
		name: fmt.Sprintf("qwen delta scan of %d", tokens), arguments: second, result: second.Y,
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
				out = append(out, variant{label: fmt.Sprintf("%+v", v), launch: scan})
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
	token := results(1)
	third := kernels.SampleChooseArguments[*memory]{Logits: vectors(vocab), Temperature: integers(one), TopK: integers(20, 0), TopP: integers(most), Seed: integers(7, 0),
		Tops: vectors(parts), TopsAt: results(parts), Values: vectors(parts * each), Places: results(parts * each), Counts: integers(counts...), Sums: results(2 * parts), Token: token, Next: token}
	first := kernels.SamplePartArguments[*memory]{Logits: third.Logits, Temperature: third.Temperature, TopK: third.TopK, TopP: third.TopP, Seed: third.Seed,
		Tops: third.Tops, Places: third.TopsAt}
	second := kernels.SampleCollectArguments[*memory]{Logits: third.Logits, Temperature: third.Temperature, TopK: third.TopK, TopP: third.TopP, Tops: third.Tops,
		Values: third.Values, Places: third.Places, Counts: third.Counts, Sums: third.Sums}
	part, collect, choose, err := s.Launches()
	argmax, _, greedy, err2 := kernels.Sample{Vocab: vocab, Greedy: true}.Launches()
	if err == nil {
		err = err2
	}
	var out []testCase
	for _, c := range []struct {
		name   string
		launch kernels.Launch
		of     arguments
		result *memory
	}{
		{"part", part, first, first.Tops}, {"collect", collect, second, second.Values}, {"choose", choose, third, token},
		{"argmax part", argmax, first, first.Tops}, {"argmax", greedy, third, token},
	} {
		out = append(out, testCase{name: "sample " + c.name, arguments: c.of, result: c.result, variants: only(fmt.Sprintf("%d parts", parts), c.launch, err)})
	}
	return out
}

// norms are the norms of both models, the convolution and the rotation of a token.
func norms(small int) []testCase {
	var out []testCase
	for _, n := range []int{2048, 5376} {
		for _, tokens := range []int{1, max(2, 4096/small)} {
			norm := kernels.RMSNorm{N: n, Heads: 1, Pre: kernels.F32, PreEps: 1e-6, Add: true, Sum: true, Weight: kernels.F32, Eps: 1e-6}
			weight := vectors(n)
			a := kernels.NormArguments[*memory]{X: vectors(tokens * n), Pre: weight, Residual: vectors(tokens * n), Weight: weight, Sum: results(tokens * n), Out: results(tokens * n), Step: step(tokens)}
			out = append(out, testCase{
				name: fmt.Sprintf("norm of %dx%d", tokens, n), arguments: a, result: a.Out, bytes: float64(16 * tokens * n),
				variants: func(kernels.Machine) ([]variant, error) {
					out, err := ways([]int{0, 8, 11, 14, 16, 32}, func(simdgroups int) (kernels.Launch, error) {
						norm.Simdgroups = simdgroups
						return norm.Launch(tokens)
					})
					for i := range out {
						out[i].label += " simdgroups"
					}
					return out, err
				},
			})
		}
	}
	conv := kernels.Conv{Channels: 8192, Taps: 4, Token: 8192, SiLU: true, State: kernels.BF16, Weight: kernels.F32}
	rope := kernels.Rope{D: 256, Dims: 64, QHeads: 16, KVHeads: 2, Q: kernels.Rows{Token: 9216, Row: 512}, K: kernels.Rows{Token: 9216, Row: 256}, V: kernels.Rows{Token: 9216, Row: 256},
		QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32, Cache: kernels.BF16, Slots: 64}
	state, heads, norm, held := &memory{content: halves, bytes: 2 * 4 * 8192}, vectors(9216), vectors(256), results(64*256)
	convolved := kernels.ConvStepArguments[*memory]{X: vectors(8192), W: vectors(4 * 8192), State: state, Y: results(8192), Next: state, Step: step(1)}
	rotated := kernels.RopeArguments[*memory]{Q: heads, K: heads, V: heads, QWeight: norm, KWeight: norm, Angles: vectors(64), QOut: results(16 * 256), KCache: held, VCache: held, Step: step(1)}
	l, err := conv.StepLaunch()
	l2, err2 := rope.Launch(1)
	return append(out,
		testCase{name: "qwen conv step", arguments: convolved, result: convolved.Y, variants: only("one thread a channel", l, err)},
		testCase{name: "qwen rope", arguments: rotated, result: rotated.QOut, variants: only("one simdgroup a head", l2, err2)})
}
