package batch_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestHostDrawsAsTheHead: for equal logits the host's sampler gives the token of a program's sampling head, which is
// operation sample of the reference implementation.
func TestHostDrawsAsTheHead(t *testing.T) {
	const vocab = 300
	f := &ir.Func{Name: "forward", Body: &ir.Region{}}
	m := &ir.Module{Entry: f}
	require.NoError(t, ir.Build(func() {
		b := &ir.Builder{Module: m, Region: f.Body}
		logits := f.NewParam("logits", ir.StaticType(ir.F32, 1, vocab))
		temperature := f.NewParam("temperature", ir.StaticType(ir.F32))
		topK := f.NewParam("top_k", ir.StaticType(ir.I64))
		topP := f.NewParam("top_p", ir.StaticType(ir.F32))
		seed := f.NewParam("seed", ir.StaticType(ir.I64))
		token := b.Value("sample", nil, logits, temperature, topK, topP, seed)
		f.Body.Results, f.Outputs = []*ir.Value{token}, []ir.Type{token.Type}
	}))
	x, err := engine.Compile(reference.Engine{}, m, engine.Options{})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	row := make([]float32, vocab)
	for seed := range int64(60) {
		for j := range row {
			row[j] = float32(math.Sin(float64(seed*37+int64(j)*11))) * 6
		}
		row[7], row[8] = row[9], float32(math.NaN())
		for _, d := range []batch.Draw{{TopP: 1}, {Temperature: .7, TopP: 1}, {Temperature: 1, TopP: .9},
			{Temperature: 2, TopK: 20, TopP: .8}, {Temperature: 1, TopK: 1, TopP: 1}, {Temperature: 1.5, TopK: 500, TopP: .3}, {Temperature: .01, TopP: 1e-6}} {
			d.Seed = seed - 30
			topK := d.TopK
			if topK <= 0 {
				topK = math.MaxInt64
			}
			out, err := i.Run(t.Context(), []eval.Value{{Tensor: eval.Floats(ir.F32, []int{1, vocab}, row)},
				{Tensor: eval.Floats(ir.F32, nil, []float32{d.Temperature})}, {Tensor: eval.Ints(ir.I64, nil, []int64{topK})},
				{Tensor: eval.Floats(ir.F32, nil, []float32{d.TopP})}, {Tensor: eval.Ints(ir.I64, nil, []int64{d.Seed})}})
			require.NoError(t, err)
			require.EqualValues(t, out[0].Tensor.I[0], batch.Choose(d, row), fmt.Sprint(d))
		}
	}
}

func TestMinP(t *testing.T) {
	row := []float32{2, 1.9, 0, -5}
	seen := map[int]bool{}
	for seed := range int64(300) {
		seen[batch.ChooseAbove(batch.Draw{Temperature: 1, TopP: 1, Seed: seed}, row, .5)] = true
	}
	require.Equal(t, map[int]bool{0: true, 1: true}, seen) // e^-2 is below one half
}

// answerOf runs one request alone.
func answerOf(t *testing.T, change func(*batch.Request)) []batch.Token {
	t.Helper()
	run := start(t, &hasher{}, false, 1, 4)
	q := plain(5, 6, 7)
	q.Stop = nil
	change(&q)
	s, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	var out []batch.Token
	for token, err := range s.Tokens(t.Context()) {
		require.NoError(t, err)
		out = append(out, token)
	}
	return out
}

// context64 are a prompt and an answer as the engine sees them.
func context64(answer []batch.Token) []int64 {
	out := []int64{5, 6, 7}
	for _, a := range answer {
		out = append(out, int64(a.ID))
	}
	return out
}

func TestLogprobs(t *testing.T) {
	for at, token := range answerOf(t, func(q *batch.Request) { q.Logprobs = 3; q.Sampling.Bias = map[int]float32{9: 100} }) {
		require.Equal(t, 9, token.ID)
		before := context64(make([]batch.Token, at))
		for i := 3; i < len(before); i++ {
			before[i] = 9
		}
		row := logitsOf(before)
		sum := 0.0
		for _, v := range row {
			sum += math.Exp(float64(v))
		}
		require.InDelta(t, float64(row[9])-math.Log(sum), float64(token.Logprob), 1e-5, "of raw logits")
		require.Len(t, token.Top, 3)
		for i, top := range token.Top {
			require.InDelta(t, float64(row[top.ID])-math.Log(sum), float64(top.Logprob), 1e-5)
			if i > 0 {
				require.LessOrEqual(t, top.Logprob, token.Top[i-1].Logprob)
			}
		}
	}
}

// TestPenalties compares with the definitions, written out.
func TestPenalties(t *testing.T) {
	greedy := func(row []float32) int {
		best := 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		return best
	}
	for name, change := range map[string]func(*batch.Sampling){
		"presence":  func(p *batch.Sampling) { p.Presence = 3 },
		"frequency": func(p *batch.Sampling) { p.Frequency = 1.5 },
		"repeat":    func(p *batch.Sampling) { p.Repeat, p.RepeatLast = 2, 4 },
		"last":      func(p *batch.Sampling) { p.Presence, p.Frequency, p.RepeatLast = 1, .5, 3 },
		"all":       func(p *batch.Sampling) { p.Repeat, p.RepeatLast, p.Presence, p.Frequency = 1.7, -1, .5, .25 },
	} {
		answer := answerOf(t, func(q *batch.Request) { change(&q.Sampling) })
		require.Len(t, answer, 12)
		p := batch.Sampling{}
		change(&p)
		for i := range answer {
			all := context64(answer[:i])
			row := logitsOf(all)
			window := all
			if p.RepeatLast > 0 && len(all) > p.RepeatLast {
				window = all[len(all)-p.RepeatLast:]
			}
			seen := map[int64]bool{}
			for _, token := range window {
				if p.Repeat != 0 && !seen[token] {
					if row[token] > 0 {
						row[token] /= p.Repeat
					} else {
						row[token] *= p.Repeat
					}
				}
				seen[token] = true
			}
			counts := map[int]int{}
			for j, a := range answer[:i] {
				if p.RepeatLast <= 0 || i-j <= p.RepeatLast {
					counts[a.ID]++
				}
			}
			for token, n := range counts {
				row[token] -= float32(n)*p.Frequency + p.Presence
			}
			require.Equal(t, greedy(row), answer[i].ID, "%s, token %d", name, i)
		}
	}
}

// even allows tokens of even ids and notes what was accepted.
type even struct {
	accepted []int
	limit    int
}

func (e *even) MaskWords() int { return 1 }
func (e *even) Mask(dst []uint64) bool {
	dst[0] = 0x5555555555555555
	if len(e.accepted) == e.limit {
		dst[0] = 0
	}
	return true
}
func (e *even) Accept(token int) error {
	if token%2 != 0 {
		return errors.New("an odd token")
	}
	e.accepted = append(e.accepted, token)
	return nil
}

func TestConstraint(t *testing.T) {
	c := &even{limit: -1}
	answer := answerOf(t, func(q *batch.Request) {
		q.Constraint, q.Sampling.Temperature, q.Sampling.Seed = c, 2, 5
	})
	require.Len(t, answer, 12)
	for i, a := range answer {
		require.Zero(t, a.ID%2)
		require.Equal(t, c.accepted[i], a.ID)
	}
	run := start(t, &hasher{}, false, 1, 4)
	q := plain(5)
	q.Constraint = &even{limit: 2}
	s, err := run.Submit(t.Context(), q)
	require.NoError(t, err)
	n := 0
	for _, err = range s.Tokens(t.Context()) {
		n++
	}
	require.ErrorContains(t, err, "leaves no token")
	require.Equal(t, 3, n)
}

func TestSplit(t *testing.T) {
	seen := map[int64]bool{}
	for j := range 1000 {
		s := batch.Split(42, j)
		require.False(t, seen[s], "choice %d", j)
		seen[s] = true
	}
	require.EqualValues(t, 42, batch.Split(42, 0))
	require.NotEqual(t, batch.Split(42, 1), batch.Split(43, 0))
	require.Equal(t, batch.Split(42, 1), batch.Split(42+1<<32, 1), "seeds count modulo 2^32")
}
