package main

import (
	"errors"
	"fmt"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// sequences are the kernels of both models that mix tokens, or prepare and finish that: attention, the delta rule,
// norms, the sampler. Contexts and chunks are divided by small, for a test.
func sequences(small int) []testCase {
	qwen := kernels.Attention{D: 256, Heads: 16, KVHeads: 2, Slots: 32768 / small, Scale: 1. / 16, Cache: kernels.BF16}
	sliding := kernels.Attention{D: 256, Heads: 32, KVHeads: 16, Slots: max(2047/small, 64), Window: 1024 / small,
		Scale: 1, Cache: kernels.BF16}
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
		out = append(out, chunk("qwen", qwen, tokens, 0), chunk("gemma full", full, tokens, 0),
			rowsChunk("qwen", qwen, tokens, 0), rowsChunk("gemma full", full, tokens, 0))
		out = append(out, delta(tokens)...)
	}
	for _, tokens := range []int{256, 2048} {
		tokens, position := tokens/small, 30720/small
		out = append(out, chunk("qwen", qwen, tokens, position), chunk("gemma full", full, tokens, position),
			rowsChunk("qwen", qwen, tokens, position), rowsChunk("gemma full", full, tokens, position),
			rowsChunk("gemma sliding", sliding, tokens, position))
	}
	for _, context := range []int{128, 512, 4096, 30720} {
		for _, rows := range []int{2, 4, kernels.StepRows} {
			context := max(rows, context/small)
			out = append(out, verified("qwen", qwen, 64, rows, context)...)
			out = append(out, verified("gemma full", full, 512, rows, context)...)
			out = append(out, verified("gemma sliding", sliding, 256, rows, context)...)
		}
	}
	for _, streams := range []int{8, 64, 128} {
		for _, context := range []int{160, 512, 4096} {
			out = append(out, streamsAttention("qwen", qwen, streams, context/small)...)
			out = append(out, streamsAttention("gemma full", full, streams, context/small)...)
			out = append(out, streamsAttention("gemma sliding", sliding, streams, context/small)...)
		}
	}
	ring := sliding
	ring.Slots = max(3071/small, 64) // for chunks of 2048
	out = append(out, chunk("gemma sliding", sliding, 256/small, 0), chunk("gemma sliding", ring, 2048/small, 1023/small),
		deltaStep())
	out = append(out, slots(small)...)
	out = append(append(out, sampler(248320/small)...), draws(248320/small)...)
	return append(out, norms(small)...)
}

// at are the sizes of one token that sees so many positions, its own among them.
func at(context int) kernels.Sizes { return kernels.Sizes{Tokens: 1, Position: context - 1} }

// part is the first of several launches, whose case is that of the last.
func part(first, last kernels.Launch) kernels.Launch {
	if first.Case == nil {
		first.Case = last.Case
	}
	return first
}

func attention(name string, a kernels.Attention, context int) []testCase {
	_, merge, blocks, err := a.Launches(1)
	seen := context
	if a.Window > 0 {
		seen = min(seen, a.Window)
	}
	return []testCase{{
		name: fmt.Sprintf("%s at %d", name, context), sizes: at(context), bytes: float64(4 * seen * a.KVHeads * a.D),
		flops: float64(4 * seen * a.Heads * a.D),
		variants: func(on kernels.Machine) ([]variant, error) {
			return variantsOf(a.Tunings(on.Target, false), func(t kernels.AttentionTuning) (kernels.Launch, error) {
				tuned := a
				tuned.Tuning = t
				first, merge, _, err := tuned.Launches(1)
				return part(first, merge), err
			})
		},
	}, {
		name: fmt.Sprintf("%s at %d, merge", name, context), sizes: at(context),
		variants: only(fmt.Sprintf("%d blocks", blocks), merge, err),
	}}
}

// streamsAttention is attention of a row of each of many sequences over blocks, which all see so many positions.
func streamsAttention(name string, of kernels.Attention, streams, context int) []testCase {
	a := kernels.BlockAttention{Blocks: kernels.Blocks{Rows: 64, Columns: max(1, context/64), Cache: of.Cache}, D: of.D,
		Heads: of.Heads, KVHeads: of.KVHeads,
		Window: of.Window, Scale: of.Scale}
	var rows []kernels.BlockRow
	for i := range streams {
		rows = append(rows, kernels.BlockRow{Sequence: int32(i), Position: int32(context - 1)})
	}
	seen := context
	if a.Window > 0 {
		seen = min(seen, a.Window)
	}
	name = fmt.Sprintf("%s attention of %d at %d", name, streams, context)
	sizes := kernels.Sizes{Tokens: streams}
	_, last, parts, err := a.Launches(streams)
	last.Case = func(s kernels.Sizes) *kernels.Case { return a.Case(s, rows) }
	return []testCase{{
		name: name, sizes: sizes,
		bytes: float64(4 * streams * seen * a.KVHeads * a.D), flops: float64(4 * streams * seen * a.Heads * a.D),
		variants: func(kernels.Machine) ([]variant, error) {
			return variantsOf(a.Tunings(streams), func(t kernels.BlockTuning) (kernels.Launch, error) {
				tuned := a
				tuned.Tuning = t
				first, merge, _, err := tuned.Launches(streams)
				merge.Case = func(s kernels.Sizes) *kernels.Case { return tuned.Case(s, rows) }
				return part(first, merge), err
			})
		},
	}, {name: name + ", merge", sizes: sizes, variants: only(fmt.Sprintf("up to %d parts", parts), last, err)}}
}

// verified is attention of the last rows of a sequence, as drafts are verified: by the kernel that rotates and writes
// besides, and by the kernel for many rows.
func verified(name string, of kernels.Attention, dims, rows, context int) []testCase {
	blocks := kernels.Blocks{Rows: 64, Columns: (context + 63) / 64, Cache: of.Cache}
	of.Slots, of.Gated = blocks.Rows*blocks.Columns, of.Window == 0 && of.D == 256
	s := kernels.AttentionStep{Attention: of, Early: true, Rows: rows, Half: true, Lanes: true,
		Rope: kernels.Rope{D: of.D, Dims: dims, QHeads: of.Heads, KVHeads: of.KVHeads, QNorm: kernels.WeightedHeadNorm,
			KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32, Cache: of.Cache, Slots: of.Slots,
			Blocks: blocks}}
	many := kernels.BlockAttention{Blocks: blocks, D: of.D, Heads: of.Heads, KVHeads: of.KVHeads, Window: of.Window,
		Scale: of.Scale, Gated: of.Gated, Half: true, Lanes: true, Last: true}
	var last []kernels.BlockRow
	for i := range rows {
		last = append(last, kernels.BlockRow{Position: int32(context - rows + i)})
	}
	seen := context
	if of.Window > 0 {
		seen = min(seen, of.Window)
	}
	name = fmt.Sprintf("%s attention of the last %d at %d", name, rows, context)
	like := testCase{name: name, sizes: kernels.Sizes{Tokens: rows}, bytes: float64(4 * seen * of.KVHeads * of.D),
		flops: float64(4 * rows * seen * of.Heads * of.D)}
	step := like
	step.name += ", with rotation and writes"
	step.variants = func(on kernels.Machine) ([]variant, error) {
		return variantsOf(s.StepTunings(on.Target), func(t kernels.StepTuning) (kernels.Launch, error) {
			tuned := s
			tuned.Step = t
			one, _, _, err := tuned.Launches()
			one.Case = func(s kernels.Sizes) *kernels.Case { return tuned.Case(s, last...) }
			return one, err
		})
	}
	like.variants = func(kernels.Machine) ([]variant, error) {
		return variantsOf(many.Tunings(rows), func(t kernels.BlockTuning) (kernels.Launch, error) {
			tuned := many
			tuned.Tuning = t
			one, _, _, err := tuned.Launches(rows)
			one.Case = func(s kernels.Sizes) *kernels.Case { return tuned.Case(s, last) }
			return one, err
		})
	}
	if len(s.StepTunings(kernels.CUDA)) == 0 { // so many wide rows do not fit
		return []testCase{like}
	}
	return []testCase{step, like}
}

// attentionStep is attention of one token with all around it. Caches have the slots that it sees, so that more of them
// rotate.
func attentionStep(name string, a kernels.Attention, dims, context int) testCase {
	a.Slots = context
	a.Gated = a.Window == 0 && a.D == 256
	s := kernels.AttentionStep{Attention: a, Early: true,
		Rope: kernels.Rope{D: a.D, Dims: dims, QHeads: a.Heads, KVHeads: a.KVHeads, QNorm: kernels.WeightedHeadNorm,
			KNorm: kernels.WeightedHeadNorm,
			Eps:   1e-6, Weight: kernels.F32, Cache: a.Cache, Slots: a.Slots, Ring: a.Window > 0}}
	out := attention(name+" attention step", a, context)[0]
	out.variants = func(on kernels.Machine) ([]variant, error) {
		return variantsOf(s.StepTunings(on.Target), func(t kernels.StepTuning) (kernels.Launch, error) {
			tuned := s
			tuned.Step = t
			one, merge, _, err := tuned.Launches()
			return part(one, merge), err
		})
	}
	return out
}

// chunk is attention of so many tokens, the first at position.
func chunk(name string, a kernels.Attention, tokens, position int) testCase {
	pairs := 0
	for t := range tokens {
		seen := position + t + 1
		if a.Window > 0 {
			seen = min(seen, a.Window)
		}
		pairs += seen
	}
	name = fmt.Sprintf("prefill %s attention of %d", name, tokens)
	if position > 0 {
		name += fmt.Sprintf(" at %d", position)
	}
	return testCase{
		name: name, sizes: kernels.Sizes{Tokens: tokens, Position: position},
		flops: float64(4 * pairs * a.Heads * a.D),
		variants: func(on kernels.Machine) ([]variant, error) {
			return variantsOf(a.ChunkTunings(on),
				func(t kernels.ChunkTuning) (kernels.Launch, error) { return a.ChunkLaunch(tokens, t) })
		},
	}
}

// rowsChunk is chunk of one sequence over blocks.
func rowsChunk(name string, of kernels.Attention, tokens, position int) testCase {
	out := chunk(name, of, tokens, position)
	a := kernels.BlockAttention{
		Blocks: kernels.Blocks{Rows: 64, Columns: (position + tokens + 63) / 64, Cache: of.Cache},
		D:      of.D, Heads: of.Heads, KVHeads: of.KVHeads,
		Window: of.Window, Scale: of.Scale}
	rows := make([]kernels.BlockRow, tokens)
	for i := range rows {
		rows[i].Position = int32(position + i)
	}
	out.name += " over blocks"
	out.variants = func(on kernels.Machine) ([]variant, error) {
		return variantsOf(a.ChunkTunings(on), func(t kernels.ChunkTuning) (kernels.Launch, error) {
			l, err := a.ChunkLaunch(tokens, t)
			l.Case = func(s kernels.Sizes) *kernels.Case { return a.ChunkCase(s, rows, tokens, t) }
			return l, err
		})
	}
	return out
}

// qwenDelta is the gated delta rule of Qwen3.5.
func qwenDelta() kernels.Delta {
	return kernels.Delta{DK: 128, DV: 128, KHeads: 16, Heads: 32, State: kernels.F32}
}

func deltaStep() testCase {
	d := qwenDelta()
	d.Norm, d.Eps, d.Gates = kernels.F32, 1e-6, kernels.F32
	return testCase{
		name: "qwen delta step", sizes: kernels.Sizes{Tokens: 1}, bytes: float64(8 * d.Heads * d.DV * d.DK),
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

// delta are the dispatches of the rule for a call of so many tokens. The scan resets its state, which would become
// infinite over many dispatches.
func delta(tokens int) []testCase {
	d := qwenDelta()
	d.Reset = kernels.ResetFlag
	sizes := kernels.Sizes{Tokens: tokens, Reset: true}
	return []testCase{{
		name: fmt.Sprintf("qwen delta solve of %d", tokens), sizes: sizes,
		variants: func(kernels.Machine) ([]variant, error) {
			var out []variant
			d := d
			for _, d.Length = range []int{32, 64} {
				solve, scan, err := d.Launches(tokens)
				if err != nil {
					return nil, err
				}
				out = append(out, variant{label: fmt.Sprintf("%d tokens", d.Length), launch: part(solve, scan)})
			}
			return out, nil
		},
	}, {
		name: fmt.Sprintf("qwen delta scan of %d", tokens), sizes: sizes,
		variants: func(kernels.Machine) ([]variant, error) {
			var out []variant
			d := d
			for _, v := range []struct{ length, columns, parts, buffers int }{
				{32, 16, 4, 2}, {32, 16, 4, 1}, {32, 16, 8, 2}, {32, 16, 8, 1}, {32, 32, 4, 1},
				{32, 32, 4, 2}, {32, 32, 2, 1},
				{32, 8, 4, 2}, {32, 8, 8, 2}, {32, 8, 8, 1}, {64, 16, 2, 1}, {64, 16, 4, 1}, {64, 8, 2, 1},
				{64, 32, 2, 1}, {64, 32, 4, 1},
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

// slots are the kernels of recurrent states in calls of several sequences: a row of each, and a chunk of one or two.
// Bytes are those of states, read and written.
func slots(small int) (out []testCase) {
	for _, call := range []struct{ rows, sequences int }{{1, 1}, {8, 8}, {16, 16}, {32, 32}, {128, 128}, {512, 1},
		{512, 2}} {
		sequences := max(1, call.sequences/small)
		rows, chunks := sequences, call.rows > call.sequences
		if chunks {
			rows = max(call.rows/small, 40)
		}
		sizes := kernels.Sizes{Tokens: rows, Sequences: sequences}
		name := func(kernel string) string { return fmt.Sprintf("qwen %s, %d rows of %d", kernel, rows, sequences) }
		conv := kernels.SlotConv{Conv: kernels.Conv{Channels: 8192 / small, Taps: 4, Token: 8192 / small, SiLU: true,
			State: kernels.BF16, Weight: kernels.F32}, Entries: rows}
		l, err := conv.Launch(rows)
		out = append(out, testCase{name: name("slot conv"), sizes: sizes,
			bytes: float64(4 * 4 * conv.Channels * sequences), variants: only("a thread for a channel", l, err)})

		d := kernels.SlotDelta{Delta: qwenDelta(), Entries: rows}
		d.KHeads, d.Heads = d.KHeads/min(small, 8), d.Heads/min(small, 8)
		states := float64(8 * d.Heads * d.DV * d.DK * sequences)
		if chunks {
			d.Most = 8
			solve, scan, err := d.Launches(rows)
			out = append(out, testCase{name: name("slot delta solve"), sizes: sizes,
				variants: only("32 tokens", part(solve, scan), err)},
				testCase{name: name("slot delta scan"), sizes: sizes, bytes: states,
					variants: only("16 columns", scan, err)})
			continue
		}
		if rows > 32 {
			none := d
			none.Most = 8
			solve, scan, err := none.Launches(rows)
			out = append(out, testCase{name: name("slot delta solve"), sizes: sizes,
				variants: only("no chunk", part(solve, scan), err)},
				testCase{name: name("slot delta scan"), sizes: sizes, variants: only("no chunk", scan, err)})
		}
		out = append(out, testCase{name: name("slot delta"), sizes: sizes, bytes: states,
			variants: func(kernels.Machine) ([]variant, error) {
				bare, taken := d, d
				taken.Norm, taken.Eps, taken.Gates = kernels.F32, 1e-6, kernels.F32
				var out []variant
				for _, d := range []kernels.SlotDelta{taken, bare} {
					some, err := variantsOf([]int{0, 1, 2, 4}, func(n int) (kernels.Launch, error) {
						d.Rows = n
						return d.StepLaunch(rows)
					})
					if err != nil {
						return nil, err
					}
					for i := range some {
						some[i].label += fmt.Sprintf(" rows of lanes, norm and gates %v", d.Gates != kernels.None)
					}
					out = append(out, some...)
				}
				return out, nil
			}})
	}
	return out
}

// sampler are the dispatches of a sampler with top-k and top-p, and the argmax.
func sampler(vocab int) []testCase {
	s := kernels.Sample{Vocab: vocab, Filters: true}
	parts, _ := s.Parts()
	first, collect, choose, err := s.Launches()
	argmax, _, greedy, err2 := kernels.Sample{Vocab: vocab, Greedy: true}.Launches()
	var out []testCase
	for _, c := range []struct {
		name   string
		launch kernels.Launch
	}{
		{"part", part(first, choose)}, {"collect", part(collect, choose)}, {"choose", choose},
		{"argmax part", part(argmax, greedy)}, {"argmax", greedy},
	} {
		out = append(out, testCase{name: "sample " + c.name,
			variants: only(fmt.Sprintf("%d parts", parts), c.launch, errors.Join(err, err2))})
	}
	return out
}

// draws are the dispatches of the runtime's own sampler for one row: biases, penalties and a mask, the draw with every
// filter, log-probabilities.
func draws(vocab int) []testCase {
	s := kernels.Sample{Vocab: vocab, Filters: true, Rows: 1, MinP: true}
	parts, _ := s.Parts()
	first, collect, choose, err := s.Launches()
	adjust, err2 := kernels.Adjust{Rows: 1, Vocab: vocab, Listed: 80, Bias: true, Counts: true, Mask: true}.Launch()
	logprobs, likely, err3 := kernels.Logprobs{Rows: 1, Vocab: vocab, Top: 20}.Launches()
	var out []testCase
	for _, c := range []struct {
		name   string
		launch kernels.Launch
	}{
		{"adjust", adjust}, {"part", part(first, choose)}, {"collect", part(collect, choose)}, {"choose", choose},
		{"logprobs part", part(logprobs, likely)}, {"logprobs", likely},
	} {
		out = append(out, testCase{name: "draw " + c.name,
			variants: only(fmt.Sprintf("%d parts", parts), c.launch, errors.Join(err, err2, err3))})
	}
	return out
}

// norms are the norms of both models, the convolution and the rotation of a token.
func norms(small int) []testCase {
	var out []testCase
	for _, n := range []int{2048, 5376} {
		for _, tokens := range []int{1, 2, 8, 64, 128, max(2, 4096/small)} {
			norm := kernels.RMSNorm{N: n, Heads: 1, Pre: kernels.F32, PreEps: 1e-6, Add: true, Sum: true,
				Weight: kernels.F32, Eps: 1e-6}
			out = append(out, testCase{
				name: fmt.Sprintf("norm of %dx%d", tokens, n), sizes: kernels.Sizes{Tokens: tokens},
				bytes: float64(16 * tokens * n),
				variants: func(kernels.Machine) ([]variant, error) {
					out, err := variantsOf([]int{0, 8, 11, 14, 16, 32}, func(simdgroups int) (kernels.Launch, error) {
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
	rope := kernels.Rope{D: 256, Dims: 64, QHeads: 16, KVHeads: 2, Q: kernels.Rows{Token: 9216, Row: 512},
		K: kernels.Rows{Token: 9216, Row: 256}, V: kernels.Rows{Token: 9216, Row: 256},
		QNorm: kernels.WeightedHeadNorm, KNorm: kernels.WeightedHeadNorm, Eps: 1e-6, Weight: kernels.F32,
		Cache: kernels.BF16, Slots: 64}
	l, err := conv.StepLaunch()
	l2, err2 := rope.Launch(1)
	return append(out,
		testCase{name: "qwen conv step", sizes: at(1), variants: only("one thread a channel", l, err)},
		testCase{name: "qwen rope", sizes: at(1), variants: only("one simdgroup a head", l2, err2)})
}
