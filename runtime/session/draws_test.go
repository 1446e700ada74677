package session_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// table is a program whose logits are a row of a table: that of the last token.
func table(t *testing.T, rows [][]float32) *ir.Module {
	t.Helper()
	n := int64(len(rows))
	m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}},
		Metadata: metadata(method("get_vocab_size", n))}
	var values []float32
	for _, r := range rows {
		require.Len(t, r, int(n))
		values = append(values, r...)
	}
	f := m.Entry
	tokens := f.NewParam("tokens", tokensType(8))
	f.NewParam("input_pos", positionsType(8))
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		weight := m.NewConstant("table", ir.StaticType(ir.F32, n, n), ir.Float32s([]int64{n, n}, values...))
		logits := b.Value("take", nil, weight, tokens)
		f.Body.Results, f.Outputs = []*ir.Value{logits}, []ir.Type{logits.Type}
	}))
	require.NoError(t, ir.Verify(m))
	return m
}

// drawing loads a program with the runtime's sampler and makes a session.
func drawing(t *testing.T, m *ir.Module, e engine.Engine, d session.Draws) *session.Session {
	t.Helper()
	model, err := session.LoadDraws(m, e, engine.Options{}, d)
	require.NoError(t, err)
	s, err := model.NewSession()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, model.Close())
	})
	return s
}

// generate gives an answer from the beginning.
func generate(t *testing.T, s *session.Session, p session.Sampling, n int, prompt ...int) session.Answer {
	t.Helper()
	require.NoError(t, s.Reset())
	a, err := s.Generate(t.Context(), session.Request{Prompt: prompt, Sampling: p, MaxNewTokens: n})
	require.NoError(t, err)
	require.Len(t, a.Tokens, n)
	return a
}

// TestDrawsAreTheHeads: on every engine the runtime's sampler gives the tokens of a program's own head, with all that
// it can do attached, on graphs of ours and of ExecuTorch's exporter, for prompts in chunks too.
func TestDrawsAreTheHeads(t *testing.T) {
	everything := session.Draws{MinP: true, Biases: 2, Window: 8, Mask: true, Logprobs: true, Top: 3, Logits: true}
	compared := 0
	for _, name := range fusetest.Names() {
		if !strings.Contains(name, "sample") || testing.Short() && !strings.HasPrefix(name, "etc-") {
			continue
		}
		for _, e := range []engine.Engine{cpu.Engine{}, reference.Engine{}} {
			t.Run(name+" "+e.Name(), func(t *testing.T) {
				m := fusetest.Load(t, name)
				_, head := start(t, m, e)
				plain, full := drawing(t, m, e, session.Draws{}), drawing(t, m, e, everything)
				require.Equal(t, session.Drawn, plain.Model().Form)
				require.Equal(t, everything, full.Model().Draws())
				for i, p := range []session.Sampling{session.Greedy, {Temperature: 0.9, TopP: 1, Seed: -3},
					{Temperature: 1.5, TopK: 9, TopP: 0.8, Seed: 1 << 33}} {
					prompt := []int{5, 9, 3, 8, 1, 4, 4}[:3+2*i]
					want := generate(t, head, p, 6, prompt...).Tokens
					require.Equal(t, want, generate(t, plain, p, 6, prompt...).Tokens, "%+v", p)
					require.Equal(t, want, generate(t, full, p, 6, prompt...).Tokens, "%+v", p)
					compared++
				}
			})
		}
	}
	require.GreaterOrEqual(t, compared, 12)
}

// TestLoadTokens: a program that gives logits draws on the device where the engine can. Greedy tokens are those of the
// logits; others differ from answer to answer and between positions. Parameters are those of a program with logits.
func TestLoadTokens(t *testing.T) {
	for _, e := range []engine.Engine{cpu.Engine{}, reference.Engine{}} {
		m := fusetest.Load(t, "etc-qwen35moe-chat-portable")
		model, err := session.LoadTokens(m, e, engine.Options{})
		require.NoError(t, err)
		_, draws := e.(engine.Drawing)
		require.Equal(t, session.Logits, model.Form)
		require.Equal(t, !draws, model.GivesLogits(), e.Name())
		s, err := model.NewSession()
		require.NoError(t, err)
		_, given := start(t, m, e)
		require.True(t, given.Model().GivesLogits())
		want := generate(t, given, session.Greedy, 8, 5, 9, 3)
		require.Equal(t, want.Tokens, generate(t, s, session.Greedy, 8, 5, 9, 3).Tokens, e.Name())
		_, err = s.Decode(t.Context(), 1, session.Sampling{TopP: 1, MinP: 0.5})
		require.ErrorContains(t, err, "min-p needs the runtime's own sampler")
		require.NoError(t, errors.Join(s.Close(), model.Close()))
	}
	even := make([][]float32, 64) // all tokens are as likely
	for i := range even {
		even[i] = make([]float32, len(even))
	}
	model, err := session.LoadTokens(table(t, even), cpu.Engine{}, engine.Options{})
	require.NoError(t, err)
	s, err := model.NewSession()
	require.NoError(t, err)
	p := session.Sampling{Temperature: 1, TopP: 1e-3, TopK: 1} // filters that the program has no use for
	first, second := generate(t, s, p, 5, 3).Tokens, generate(t, s, p, 5, 3).Tokens
	require.NotEqual(t, first, second)
	require.NotEqual(t, slices.Repeat(first[:1], 5), first)
	_, err = s.Rows(t.Context(), []int{1, 2}, 0)
	require.ErrorContains(t, err, "logits of a program that gives tokens")
	before, err := s.Snapshot()
	require.NoError(t, err)
	drawn := map[int]bool{}
	for range 6 { // one token in 64^5 answers the same six times
		require.NoError(t, s.Restore(before))
		step, err := s.Decode(t.Context(), 1, p)
		require.NoError(t, err)
		drawn[step.Token] = true
	}
	require.Greater(t, len(drawn), 1)
	require.NoError(t, errors.Join(s.Close(), model.Close()))
}

// TestDrawParameters: what changes the logits, in the order of the calls.
func TestDrawParameters(t *testing.T) {
	m := table(t, [][]float32{{0, 3, 2, -1}, {0, 3, 2, -1}, {0, 3, 2, -1}, {0, 3, 2, -1}})
	minusInf := float32(math.Inf(-1))
	for name, c := range map[string]struct {
		p    session.Sampling
		want []int
	}{
		"nothing":                {session.Sampling{TopP: 1}, []int{1, 1, 1}},
		"a bias":                 {session.Sampling{TopP: 1, Bias: map[int]float32{3: 5, 1: -0.5}}, []int{3, 3, 3}},
		"a ban":                  {session.Sampling{TopP: 1, Bias: map[int]float32{1: minusInf}}, []int{2, 2, 2}},
		"presence, answer alone": {session.Sampling{TopP: 1, PresencePenalty: 2.5}, []int{1, 2, 1}},
		"frequency":              {session.Sampling{TopP: 1, FrequencyPenalty: 0.75}, []int{1, 1, 2}},
		"repeat, the prompt too": {session.Sampling{TopP: 1, RepeatPenalty: 2}, []int{2, 1, 1}},
		"repeat, of two tokens":  {session.Sampling{TopP: 1, RepeatPenalty: 2, LastN: 2}, []int{2, 1, 1}},
		"repeat, of one token":   {session.Sampling{TopP: 1, RepeatPenalty: 2, LastN: 1}, []int{2, 1, 2}},
		"a bias before penalties": {session.Sampling{TopP: 1, RepeatPenalty: 2, Bias: map[int]float32{1: 2}},
			[]int{1, 1, 1}},
		"min-p at a high temperture": {session.Sampling{TopP: 1, Temperature: 100, MinP: 0.995}, []int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range []engine.Engine{cpu.Engine{}, reference.Engine{}} {
				s := drawing(t, m, e, session.DrawsOf(c.p))
				require.Equal(t, c.want, generate(t, s, c.p, 3, 0, 1).Tokens, e.Name())
				// Another answer of the same session has a prompt that begins with all of it.
				a, err := s.Generate(t.Context(), session.Request{Prompt: []int{1}, Sampling: c.p, MaxNewTokens: 1})
				require.NoError(t, err)
				if c.p.PresencePenalty > 0 {
					require.Equal(t, []int{1}, a.Tokens, "what was an answer is a prompt now")
				}
			}
		})
	}
}

// TestDrawLogprobs: with and without adjustments they are of the program's logits; Step is told of them.
func TestDrawLogprobs(t *testing.T) {
	m := table(t, [][]float32{{0, 3, 2, -1}, {0, 3, 2, -1}, {0, 3, 2, -1}, {0, 3, 2, -1}})
	sum := math.Log(math.Exp(0) + math.Exp(3) + math.Exp(2) + math.Exp(-1))
	p := session.Sampling{TopP: 1, Bias: map[int]float32{2: 9}, Logprobs: true, TopLogprobs: 2}
	s := drawing(t, m, cpu.Engine{}, session.Draws{Biases: 3, Logprobs: true, Top: 4, Logits: true})
	steps := 0
	var rows []float32
	a, err := s.Generate(t.Context(), session.Request{Prompt: []int{0}, Sampling: p, MaxNewTokens: 2, FeedLast: true,
		Step:   func(step session.Step) { steps++; require.Equal(t, 2, step.Token) },
		Logits: func(row []float32) error { rows = append(rows, row...); return nil }})
	require.NoError(t, err)
	require.Equal(t, 2, steps)
	require.Equal(t, []float32{0, 3, 2, -1, 0, 3, 2, -1, 0, 3, 2, -1}, rows)
	require.Len(t, a.Logprobs, 2)
	for _, l := range a.Logprobs {
		require.Equal(t, 2, l.Token)
		require.InDelta(t, 2-sum, l.Logprob.Logprob, 1e-5)
		require.Len(t, l.Top, 2)
		require.Equal(t, []int{1, 2}, []int{l.Top[0].Token, l.Top[1].Token})
		require.InDelta(t, 3-sum, l.Top[0].Logprob, 1e-5)
	}
	p.Logprobs, p.TopLogprobs = false, 0
	require.Empty(t, generate(t, s, p, 2, 0).Logprobs)
}

// TestDrawMask: the mask of a draw is asked for once, for draws that count alone, and its error is that of the call.
func TestDrawMask(t *testing.T) {
	m := table(t, [][]float32{{0, 3, 2, -1}, {0, 3, 2, -1}, {0, 3, 2, -1}, {0, 3, 2, -1}})
	for _, e := range []engine.Engine{cpu.Engine{}, reference.Engine{}} {
		s := drawing(t, m, e, session.Draws{Mask: true})
		asked := 0
		failed := errors.New("no token is allowed")
		p := session.Sampling{TopP: 1, Mask: func(mask []uint64) (bool, error) {
			require.Equal(t, []uint64{0}, mask)
			asked++
			switch asked {
			case 1:
				mask[0] = 1<<3 | 1<<0
			case 2:
				return false, nil
			case 3:
				mask[0] = 1 << 3
			default:
				return false, failed
			}
			return true, nil
		}}
		// A prompt in chunks of 8 tokens: the first two draw nothing that counts.
		require.Equal(t, []int{0, 1, 3}, generate(t, s, p, 3, make([]int, 19)...).Tokens, e.Name())
		require.Equal(t, 3, asked)
		_, err := s.Decode(t.Context(), 1, p)
		require.ErrorIs(t, err, failed)
		require.ErrorContains(t, err, "the token mask: ")
	}
}

// TestDrawRefusals: what a program was not loaded for, or cannot do, is an error before anything runs.
func TestDrawRefusals(t *testing.T) {
	m := table(t, [][]float32{{0, 1}, {1, 0}})
	s := drawing(t, m, reference.Engine{}, session.Draws{Biases: 1, Window: 4})
	_, head := start(t, m, reference.Engine{})
	for want, p := range map[string]session.Sampling{
		"not loaded for min-p":                     {TopP: 1, MinP: 0.1},
		"min-p 2, want at least 0":                 {TopP: 1, MinP: 2},
		"repeat penalty -1, want":                  {TopP: 1, RepeatPenalty: -1},
		"presence penalty +Inf, want":              {TopP: 1, PresencePenalty: float32(math.Inf(1))},
		"last -1 tokens":                           {TopP: 1, LastN: -1},
		"2 tokens have a bias":                     {TopP: 1, Bias: map[int]float32{0: 1, 1: 1}},
		"the bias of token 2: it is not in":        {TopP: 1, Bias: map[int]float32{2: 1}},
		"the bias of token 1 is +Inf, want":        {TopP: 1, Bias: map[int]float32{1: float32(math.Inf(1))}},
		"count the last 64 tokens":                 {TopP: 1, FrequencyPenalty: 1},
		"not loaded for token masks":               {TopP: 1, Mask: func([]uint64) (bool, error) { return true, nil }},
		"of 0 tokens beside the drawn one":         {TopP: 1, Logprobs: true},
		"log-probabilities of -1 tokens":           {TopP: 1, TopLogprobs: -1},
		"log-probabilities of 3 tokens, of a voca": {TopP: 1, Logprobs: true, TopLogprobs: 3},
	} {
		_, err := s.Prefill(t.Context(), []int{1}, p)
		require.ErrorContains(t, err, want)
		require.Zero(t, s.Position())
		if p.NeedsRuntime() != "" {
			_, err = head.Prefill(t.Context(), []int{1}, p)
			require.Error(t, err, want)
		}
	}
	_, err := session.LoadDraws(samplerModule(), reference.Engine{}, engine.Options{}, session.Draws{})
	require.ErrorContains(t, err, "no sampling head that is known")
}
