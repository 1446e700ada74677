package session_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

const (
	width = 8
	chunk = 7
)

// noise is an f32 constant of small numbers that depend on its name's length and its shape.
func noise(m *ir.Module, name string, shape ...int64) *ir.Value {
	v := make([]float32, ir.Elements(shape))
	numeric.FillUniform(v, numeric.Key(uint64(len(name))))
	for i := range v {
		v[i] = 2*v[i] - 1
	}
	return m.NewConstant(name, ir.StaticType(ir.F32, shape...), ir.Float32s(shape, v...))
}

// attention is a model with what makes chunks matter: a KV cache that attention reads, positions in rope, and
// a running sum as recurrent state. form says what forward gives.
func attention(t *testing.T, form session.Form) *ir.Module {
	t.Helper()
	m := &ir.Module{}
	s := dimension(chunk)
	f := &ir.Func{Name: "forward", Body: &ir.Region{}}
	m.Entry = f
	tokens := f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), s))
	positions := f.NewParam("input_pos", ir.TensorType(ir.I64, s))
	var scalars []*ir.Value
	if form == session.Sampler {
		for i, name := range []string{"temperature", "top_k", "top_p", "seed"} {
			scalars = append(scalars, f.NewParam(name, samplerInputs[i]))
		}
	}
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		keys := m.NewBuffer("keys", ir.StaticType(ir.F32, 1, 1, testContext, width))
		values := m.NewBuffer("values", ir.StaticType(ir.F32, 1, 1, testContext, width))
		sum := m.NewBuffer("sum", ir.StaticType(ir.F32, 1, 1, width))
		x := b.Value("take", nil, noise(m, "embedding", testVocab, width), tokens) // [1,S,width]
		at := b.Value("item_int", nil, b.Value("take", nil, positions, 0))
		n := b.Value("sym_size", &ir.SymSizeAttrs{Dim: 1}, x)
		end := b.Value("add_int", nil, at, n)
		heads := func(weight string) *ir.Value {
			return b.Value("expand_dims", &ir.AxisAttrs{Axis: 1},
				b.Value("linear", nil, x, noise(m, weight, width, width)))
		}
		rope := &ir.RopeAttrs{Dims: width, Base: 100, Scale: 1}
		q, k, v := b.Value("rope", rope, heads("query"), at), b.Value("rope", rope, heads("k"), at), heads("val")
		b.BufferOp("buffer_slice_update", keys, nil, k, 2, at, end)
		b.BufferOp("buffer_slice_update", values, nil, v, 2, at, end)
		seen := func(buffer *ir.Buffer) *ir.Value { return b.Value("slice", nil, b.Load(buffer), 2, 0, end) }
		a := b.Value("sdpa", &ir.SdpaAttrs{Scale: 0.5, Causal: true}, q, seen(keys), seen(values))
		x = b.Value("add", nil, x, b.Value("squeeze", &ir.SqueezeAttrs{Dims: []int{1}}, a))
		// The running sum over the positions, with that of the earlier calls.
		total := b.Value("add", nil, b.Value("cumsum", &ir.CumsumAttrs{Axis: 1, Inclusive: true}, x),
			b.Value("id_copy", nil, b.Load(sum)))
		last := b.Value("slice", nil, total, 1, -1, int64(math.MaxInt64))
		b.BufferOp("store", sum, nil, last)
		logits := b.Value("linear", nil, total, noise(m, "head.weight", testVocab, width)) // [1,S,vocab]
		if form == session.Logits {
			f.Body.Results = []*ir.Value{logits}
			f.Outputs = []ir.Type{logits.Type}
			return
		}
		row := b.Value("squeeze", &ir.SqueezeAttrs{Dims: []int{1}},
			b.Value("slice", nil, logits, 1, -1, int64(math.MaxInt64)))
		token := b.Value("sample", nil, row, scalars[0], scalars[1], scalars[2], scalars[3])
		f.Body.Results = []*ir.Value{token}
		f.Outputs = []ir.Type{ir.StaticType(ir.I64, 1)}
	}))
	m.Metadata = metadata(method("use_sampling", form == session.Sampler))
	require.NoError(t, ir.Verify(m))
	return m
}

// prompt is a sequence of tokens without a pattern.
func prompt(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = (i*i*5 + 3*i + 1) % testVocab
	}
	return out
}

// A prompt in chunks of any size gives what it gives token by token: the logits and what comes after (A12).
func TestChunksDoNotMatter(t *testing.T) {
	const length, answer = 17, 5
	var want [][]float32
	for c := 1; c <= chunk; c++ {
		m := attention(t, session.Logits)
		m.Metadata = append(m.Metadata, method("get_max_prefill_chunk", int64(c)))
		model, s := start(t, m, reference.Engine{})
		require.Equal(t, c, model.MaxChunk)
		var got [][]float32
		_, err := s.Generate(context.Background(),
			session.Request{Prompt: prompt(length), Sampling: session.Greedy, MaxNewTokens: answer,
				Logits: func(row []float32) error { got = append(got, row); return nil }})
		require.NoError(t, err)
		require.Len(t, got, answer)
		if want == nil {
			want = got
			continue
		}
		for i := range got {
			require.InDeltaSlice(t, want[i], got[i], 1e-5, "chunks of %d, row %d", c, i)
			require.Equal(t, argmax(want[i]), argmax(got[i]), "chunks of %d, row %d", c, i)
		}
	}
}

// The same for sampled tokens, which depend on the seed and not on the chunks (A12, B11, B14).
func TestSampledChunksDoNotMatter(t *testing.T) {
	generate := func(c int, seed int64) []int {
		m := attention(t, session.Sampler)
		m.Metadata = append(m.Metadata, method("get_max_prefill_chunk", int64(c)))
		_, s := start(t, m, reference.Engine{})
		a, err := s.Generate(context.Background(), session.Request{Prompt: prompt(13), MaxNewTokens: 10,
			Sampling: session.Sampling{Temperature: 20, TopK: 9, TopP: 0.95, Seed: seed}})
		require.NoError(t, err)
		return a.Tokens
	}
	different := 0
	for seed := range int64(4) {
		want := generate(1, seed)
		for _, c := range []int{2, 5, chunk} {
			require.Equal(t, want, generate(c, seed), "chunks of %d, seed %d", c, seed)
		}
		if !slices.Equal(want, generate(1, seed+100)) {
			different++
		}
	}
	require.Positive(t, different, "other seeds give other tokens (D15)")
}

// Temperature 0 is deterministic whatever the seed (B15, D11).
func TestGreedyIgnoresTheSeed(t *testing.T) {
	var want []int
	for _, seed := range []int64{0, 1, -1, 1 << 33} {
		_, s := start(t, attention(t, session.Sampler), reference.Engine{})
		a, err := s.Generate(context.Background(), session.Request{Prompt: prompt(9), MaxNewTokens: 8,
			Sampling: session.Sampling{TopP: 0.5, TopK: 3, Seed: seed}})
		require.NoError(t, err)
		if want == nil {
			want = a.Tokens
		}
		require.Equal(t, want, a.Tokens)
	}
}

// Sessions of one model that take turns answer as if each were alone.
func TestSessionsDoNotMeet(t *testing.T) {
	model, err := session.Load(attention(t, session.Logits), reference.Engine{}, engine.Options{})
	require.NoError(t, err)
	prompts := [][]int{prompt(11), sequence(5, 6), sequence(2, 3)}
	alone := make([][]int, len(prompts))
	for i, p := range prompts {
		s, err := model.NewSession()
		require.NoError(t, err)
		a, err := s.Generate(context.Background(),
			session.Request{Prompt: p, Sampling: session.Greedy, MaxNewTokens: 6})
		require.NoError(t, err)
		alone[i] = a.Tokens
		require.NoError(t, s.Close())
	}
	require.NotEqual(t, alone[0], alone[1])

	sessions, next, together := make([]*session.Session, len(prompts)), make([]int, len(prompts)),
		make([][]int, len(prompts))
	for i, p := range prompts {
		sessions[i], err = model.NewSession()
		require.NoError(t, err)
		step, err := sessions[i].Prefill(context.Background(), p, session.Greedy)
		require.NoError(t, err)
		next[i] = step.Token
	}
	for range 6 {
		for i := range sessions {
			together[i] = append(together[i], next[i])
			step, err := sessions[i].Decode(t.Context(), next[i], session.Greedy)
			require.NoError(t, err)
			next[i] = step.Token
		}
	}
	require.Equal(t, alone, together)
}

// After a reset a session is as new: nothing of what it has seen is left at any position.
func TestReset(t *testing.T) {
	_, s := start(t, attention(t, session.Logits), reference.Engine{})
	answer := func(p []int) (rows [][]float32) {
		_, err := s.Generate(context.Background(), session.Request{Prompt: p, Sampling: session.Greedy, MaxNewTokens: 4,
			Logits: func(row []float32) error { rows = append(rows, row); return nil }})
		require.NoError(t, err)
		return rows
	}
	want := answer(prompt(5))
	require.NoError(t, s.Reset())
	require.Zero(t, s.Position())
	require.Empty(t, s.Tokens())
	answer(sequence(9, 12))
	require.NoError(t, s.Reset())
	require.Equal(t, want, answer(prompt(5)))
}

// A session put back to a snapshot, and another one that it is put into, go on with the same bits.
func TestSnapshot(t *testing.T) {
	model, s := start(t, attention(t, session.Logits), reference.Engine{})
	_, err := s.Prefill(context.Background(), prompt(6), session.Greedy)
	require.NoError(t, err)
	at, err := s.Snapshot()
	require.NoError(t, err)
	require.Equal(t, prompt(6), at.Tokens)
	run := func(s *session.Session) []float32 {
		step, err := s.Prefill(context.Background(), sequence(4, 5), session.Greedy)
		require.NoError(t, err)
		return step.Logits
	}
	want := run(s)
	require.NoError(t, s.Restore(at))
	require.Equal(t, 6, s.Position())
	require.Equal(t, want, run(s))
	other, err := model.NewSession()
	require.NoError(t, err)
	require.NoError(t, other.Restore(at))
	require.Equal(t, prompt(6), other.Tokens())
	require.Equal(t, want, run(other))

	at.Tokens = make([]int, testContext+1)
	require.ErrorContains(t, s.Restore(at), "does not fit the context of 24")
	at.Tokens = append(prompt(5), testVocab)
	require.ErrorContains(t, s.Restore(at),
		"token 5 of the snapshot is 16, which is not in the vocabulary of 16 tokens")
	at.Tokens[5] = -1
	require.ErrorContains(t, s.Restore(at), "token 5 of the snapshot is -1")
	at.Tokens[5] = 0
	right := at.States[1].Tensor
	for _, wrong := range []*eval.Tensor{nil, eval.Ints(ir.I64, right.Shape, make([]int64, right.Len())),
		eval.Floats(ir.F32, []int{right.Len()}, right.F),
		eval.Floats(ir.BF16, right.Shape, right.F)} {
		at.States[1].Tensor = wrong
		require.ErrorContains(t, s.Restore(at), `buffer 1 of the snapshot is not "values" of type f32[1,1,24,8]`)
		require.Equal(t, append(prompt(6), sequence(4, 5)...), s.Tokens(), "the session is as it was")
	}
	at.States[1].Tensor = right
	at.Tokens, at.States = at.Tokens[:6], at.States[1:]
	require.ErrorContains(t, s.Restore(at), "2 buffers in the snapshot, the program has 3")
	_, plain := start(t, samplerModule(), &scripted{answer: count})
	_, err = plain.Snapshot()
	require.ErrorContains(t, err, "device scripted keeps no snapshots")
	require.ErrorContains(t, plain.Restore(at), "device scripted keeps no snapshots")
}

// The host's own sampler, for programs that give logits: the most likely token at temperature 0, and draws
// whose frequencies are softmax(logits/T) else (D2, D14, D16).
func TestHostSampling(t *testing.T) {
	logits := []float32{1, 3, 0.5, 2, -1, 3, float32(math.Inf(-1)), 2.5}
	m := signature(ir.StaticType(ir.F32, 1, int64(len(logits))), metadata(method("get_vocab_size", int64(len(logits)))))
	answer := func(call) (*eval.Tensor, error) { return eval.Floats(ir.F32, []int{1, len(logits)}, logits), nil }
	draw := func(s *session.Session, temperature float32) int {
		require.NoError(t, s.Reset())
		step, err := s.Prefill(context.Background(), []int{0}, session.Sampling{Temperature: temperature, TopP: 1})
		require.NoError(t, err)
		return step.Token
	}
	_, s := start(t, m, &scripted{answer: answer})
	for range 20 {
		require.Equal(t, 1, draw(s, 0), "the first of the largest")
	}
	for _, temperature := range []float32{0.5, 1, 4} {
		const draws = 20000
		counts := make([]float64, len(logits))
		for range draws {
			counts[draw(s, temperature)]++
		}
		sum := 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l / temperature))
		}
		// Pearson's statistic of 6 degrees of freedom (7 tokens can be drawn) is above 60 once in 10^10 runs.
		statistic := 0.0
		for i, l := range logits {
			want := draws * math.Exp(float64(l/temperature)) / sum
			if want == 0 {
				require.Zero(t, counts[i], "a token of probability 0")
				continue
			}
			statistic += (counts[i] - want) * (counts[i] - want) / want
		}
		require.Less(t, statistic, 60.0, "temperature %g, counts %v", temperature, counts)
	}
}
