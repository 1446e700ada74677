package session_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/session"
)

// A prompt is cut into chunks of the largest size; a tail below the smallest chunk is fed token by token (C2).
func TestPrefillChunks(t *testing.T) {
	for _, test := range []struct {
		name          string
		max, min      int64
		prompt        int
		want          []int
		positionAfter int
	}{
		{"one token", 8, 1, 1, []int{1}, 1},
		{"a whole chunk", 8, 1, 8, []int{8}, 8},
		{"chunks and a tail", 8, 1, 19, []int{8, 8, 3}, 19},
		{"chunks of 1", 1, 1, 4, []int{1, 1, 1, 1}, 4},
		{"tail below the minimum", 8, 4, 19, []int{8, 8, 1, 1, 1}, 19},
		{"tail of the minimum", 8, 4, 20, []int{8, 8, 4}, 20},
		{"prompt below the minimum", 8, 4, 3, []int{1, 1, 1}, 3},
		{"minimum above the maximum", 4, 6, 9, []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, 9},
		{"the whole context", 24, 1, testContext, []int{24}, testContext},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &scripted{answer: count}
			_, s := start(t, samplerModule(method("get_max_prefill_chunk", test.max),
				method("get_min_prefill_chunk", test.min)), e)
			prompt := sequence(3, test.prompt)
			step, err := s.Prefill(context.Background(), prompt, session.Greedy)
			require.NoError(t, err)
			require.Equal(t, test.want, e.lengths())
			require.Equal(t, prompt, e.fed(t))
			require.Equal(t, (prompt[len(prompt)-1]+1)%testVocab, step.Token)
			require.Equal(t, test.positionAfter, s.Position())
		})
	}
}

// Every chunk of the prompt draws with the seed, the i-th decoded token with seed+i (B9, B10, B11, C14), and
// the token of the last chunk is the one that is kept (B11).
func TestSeedSchedule(t *testing.T) {
	for _, seed := range []int64{0, 7, -1, 1 << 40, math.MaxInt64} {
		e := &scripted{answer: count}
		_, s := start(t, samplerModule(method("get_max_prefill_chunk", int64(4))), e)
		a, err := s.Generate(context.Background(), session.Request{Prompt: sequence(0, 10), MaxNewTokens: 4,
			Sampling: session.Sampling{Temperature: 1, TopP: 1, Seed: seed}})
		require.NoError(t, err)
		require.Equal(t, []int{4, 4, 2, 1, 1, 1}, e.lengths())
		require.Equal(t, []int64{seed, seed, seed, seed + 1, seed + 2, seed + 3}, e.seeds())
		var temperatures []float32
		for _, c := range e.calls {
			temperatures = append(temperatures, c.scalars[0].Tensor.F[0])
		}
		require.Equal(t, []float32{0, 0, 1, 1, 1, 1}, temperatures,
			"the sampler does not run where its token is dropped (C10)")
		require.Equal(t, sequence(10, 4), a.Tokens)
		require.Equal(t, append(sequence(0, 10), sequence(10, 3)...), e.fed(t))
	}
}

// Temperature, top_k, top_p and seed are fed in prefill and decode, in the order of the ABI (B6, B8), as
// scalars of no dims (B5); top_k of 0 or less keeps all (B18).
func TestScalars(t *testing.T) {
	for _, test := range []struct {
		topK, want int64
	}{{5, 5}, {0, math.MaxInt64}, {-3, math.MaxInt64}, {1 << 40, 1 << 40}} {
		e := &scripted{answer: count}
		_, s := start(t, samplerModule(), e)
		p := session.Sampling{Temperature: 0.75, TopK: test.topK, TopP: 0.5, Seed: 11}
		_, err := s.Prefill(context.Background(), sequence(0, 3), p)
		require.NoError(t, err)
		_, err = s.Decode(t.Context(), 3, p)
		require.NoError(t, err)
		require.Len(t, e.calls, 2)
		for _, c := range e.calls {
			require.Equal(t, []eval.Value{
				{Tensor: eval.Floats(ir.F32, nil, []float32{0.75})},
				{Tensor: eval.Ints(ir.I64, nil, []int64{test.want})},
				{Tensor: eval.Floats(ir.F32, nil, []float32{0.5})}, {Tensor: eval.Ints(ir.I64, nil, []int64{11})},
			}, c.scalars)
		}
	}
}

// The authors' sampler gets the temperature alone, in the shape that it declares (B4).
func TestAuthorsSampler(t *testing.T) {
	for _, shape := range [][]int64{{}, {1}} {
		e := &scripted{answer: count}
		_, s := start(t, signature(ir.StaticType(ir.I64, 1), metadata(), ir.StaticType(ir.F32, shape...)), e)
		step, err := s.Prefill(context.Background(), []int{2}, session.Sampling{Temperature: 0.5, TopP: 1})
		require.NoError(t, err)
		require.Equal(t, 3, step.Token)
		require.Len(t, e.calls[0].scalars, 1)
		require.Len(t, e.calls[0].scalars[0].Tensor.Shape, len(shape))
		require.Equal(t, []float32{0.5}, e.calls[0].scalars[0].Tensor.F)
	}
}

// The token is read from [1] and [1,1] (A11), logits from 2 and 3 dims, of which the last position counts
// (A8, A10); another dtype or another number of elements is an error (C11).
func TestOutputs(t *testing.T) {
	row := func(best int) []float32 {
		out := make([]float32, testVocab)
		out[best] = 1
		return out
	}
	floats := func(d ir.DType, shape []int, v []float32) *eval.Tensor { return eval.Floats(d, shape, v) }
	for _, test := range []struct {
		name   string
		m      *ir.Module
		out    *eval.Tensor
		want   int
		logits []float32
		err    string
	}{
		{name: "token [1]", m: samplerModule(), out: eval.Ints(ir.I64, []int{1}, []int64{6}), want: 6},
		{name: "token [1,1]", m: samplerModule(), out: eval.Ints(ir.I64, []int{1, 1}, []int64{6}), want: 6},
		{name: "token 0", m: samplerModule(), out: eval.Ints(ir.I64, []int{1}, []int64{0}), want: 0},
		{name: "logits [1,V]", m: logitsModule(), out: floats(ir.F32, []int{1, testVocab}, row(9)),
			want: 9, logits: row(9)},
		{name: "logits [1,3,V]", m: logitsModule(),
			out:  floats(ir.BF16, []int{1, 3, testVocab}, append(append(row(1), row(2)...), row(9)...)),
			want: 9, logits: row(9)},
		{name: "equal logits", m: logitsModule(), out: floats(ir.F32, []int{1, testVocab}, make([]float32, testVocab)),
			want: 0, logits: make([]float32, testVocab)},
		{name: "i32 token (C11)", m: samplerModule(), out: eval.Ints(ir.I32, []int{1}, []int64{6}),
			err: "gave i32[1], want one i64 token"},
		{name: "float token (C11)", m: samplerModule(), out: floats(ir.F32, []int{1}, []float32{6}),
			err: "gave f32[1], want one i64 token"},
		{name: "two tokens", m: samplerModule(), out: eval.Ints(ir.I64, []int{2}, []int64{6, 7}),
			err: "gave i64[2], want one i64 token"},
		{name: "token out of the vocabulary", m: samplerModule(), out: eval.Ints(ir.I64, []int{1}, []int64{testVocab}),
			err: "gave token 16, which is not in the vocabulary of 16"},
		{name: "negative token", m: samplerModule(), out: eval.Ints(ir.I64, []int{1}, []int64{-1}),
			err: "gave token -1"},
		{name: "integer logits (C11)", m: logitsModule(),
			out: eval.Ints(ir.I64, []int{1, testVocab}, make([]int64, testVocab)), err: "gave i64[1 16], want logits"},
		{name: "no logits", m: logitsModule(), out: floats(ir.F32, []int{1, 0}, nil), err: "want logits"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, s := start(t, test.m, &scripted{answer: func(call) (*eval.Tensor, error) { return test.out, nil }})
			step, err := s.Prefill(context.Background(), []int{1, 2, 3}, session.Greedy)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, step.Token)
			require.Equal(t, test.logits, step.Logits)
		})
	}
}

// Parameters are checked where they come in, in prefill and in decode (B19, B20, C5, C12), and what a
// program has no use for is refused with one message (B17, C3).
func TestSamplingChecks(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, p := range []session.Sampling{
		{TopP: 0}, {TopP: -0.5}, {TopP: 1.0001}, {TopP: nan}, {TopP: inf}, {},
		{TopP: 1, Temperature: -1}, {TopP: 1, Temperature: nan}, {TopP: 1, Temperature: inf},
		{TopP: 1, Temperature: -inf},
	} {
		require.Error(t, p.Check(), "%+v", p)
		for _, m := range []*ir.Module{samplerModule(), logitsModule()} {
			e := &scripted{answer: count}
			_, s := start(t, m, e)
			_, err := s.Prefill(context.Background(), []int{1}, p)
			require.Error(t, err, "prefill %+v", p)
			_, err = s.Decode(t.Context(), 1, p)
			require.Error(t, err, "decode %+v", p)
			require.Empty(t, e.calls)
			require.Zero(t, s.Position())
		}
	}
	for _, p := range []session.Sampling{{TopP: 1}, {TopP: 1e-30}, {TopP: 0.5, Temperature: 1e30, TopK: -1, Seed: -1}} {
		require.NoError(t, p.Check(), "%+v", p)
	}
	for _, form := range []session.Form{session.Logits, session.AuthorsSampler} {
		for _, flag := range []string{"--top-k", "--top-p", "--seed"} {
			require.EqualError(t, session.Sampling{TopP: 1}.CheckFor(form, []string{flag}),
				flag+" needs a program with a sampling head (etc export --sample) or Options.Sampler runtime; this one "+
					"supports temperature only")
		}
		require.NoError(t, session.Sampling{TopP: 1}.CheckFor(form, nil))
	}
	require.NoError(t, session.Sampling{TopP: 1}.CheckFor(session.Sampler, []string{"--top-k", "--top-p", "--seed"}))
}

// What does not fit the context or the vocabulary is refused before anything is fed.
func TestRoom(t *testing.T) {
	for _, test := range []struct {
		name   string
		before int
		feed   []int
		want   string
	}{
		{"empty prompt", 0, nil, "an empty prompt"},
		{"longer than the context", 0, sequence(0, testContext+1),
			"25 tokens at position 0 do not fit the context of 24 tokens"},
		{"no room left", testContext, []int{1}, "1 tokens at position 24 do not fit"},
		{"token out of the vocabulary", 2, []int{testVocab}, "token 16 is not in the vocabulary of 16 tokens"},
		{"negative token", 0, []int{-1}, "token -1 is not in the vocabulary"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &scripted{answer: count}
			_, s := start(t, samplerModule(), e)
			if test.before > 0 {
				_, err := s.Prefill(context.Background(), sequence(0, test.before), session.Greedy)
				require.NoError(t, err)
			}
			calls := len(e.calls)
			_, err := s.Prefill(context.Background(), test.feed, session.Greedy)
			require.ErrorContains(t, err, test.want)
			if len(test.feed) == 1 {
				_, err = s.Decode(t.Context(), test.feed[0], session.Greedy)
				require.ErrorContains(t, err, test.want)
			}
			require.Len(t, e.calls, calls)
			require.Equal(t, test.before, s.Position())
		})
	}
}

// An error of the engine is the caller's, and the position stays where it was.
func TestEngineError(t *testing.T) {
	broken := errors.New("out of memory")
	e := &scripted{answer: func(c call) (*eval.Tensor, error) {
		if c.positions[0] >= 8 {
			return nil, broken
		}
		return count(c)
	}}
	_, s := start(t, samplerModule(method("get_max_prefill_chunk", int64(4))), e)
	_, err := s.Generate(context.Background(), session.Request{Prompt: sequence(0, 12), Sampling: session.Greedy})
	require.ErrorIs(t, err, broken)
	require.Equal(t, 8, s.Position())
	require.NoError(t, s.Reset())
	require.Equal(t, 1, e.resets)
	require.Zero(t, s.Position())
}
