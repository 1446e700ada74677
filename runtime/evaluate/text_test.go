package evaluate_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/evaluate"
)

// bigram has the logits of the next token by the last one; a row is not normalized.
var bigram = [][]float32{{1, 2, 0}, {0, 0, 0}, {-3, 4, 4}}

func bigramLogits(context []int) []float32 { return bigram[context[len(context)-1]] }

// probability of a token after another in a table of logits.
func probability(table [][]float32, last, token int) float64 {
	sum := 0.0
	for _, v := range table[last] {
		sum += math.Exp(float64(v))
	}
	return math.Exp(float64(table[last][token])) / sum
}

// Perplexity against the closed formula, which for a bigram model does not depend on the windows.
func TestPerplexity(t *testing.T) {
	tokens := []int{0, 1, 2, 2, 0, 0, 1, 1, 2, 0, 2, 1}
	for _, prefix := range [][]int{nil, {1}, {2, 0}} {
		losses := []float64{}
		all := append(append([]int{}, prefix...), tokens...)
		for i := max(1, len(prefix)); i < len(all); i++ {
			losses = append(losses, -math.Log(probability(bigram, all[i-1], all[i])))
		}
		mean, squares := 0.0, 0.0
		for _, v := range losses {
			mean += v / float64(len(losses))
		}
		for _, v := range losses {
			squares += (v - mean) * (v - mean)
		}
		deviation := math.Sqrt(squares / float64(len(losses)-1) / float64(len(losses)))
		for _, o := range []evaluate.TextOptions{{Context: contextLen, Stride: 16}, {Context: 5, Stride: 3},
			{Context: 4, Stride: 1}, {Context: 3, Stride: 1}} {
			if o.Stride >= o.Context-len(prefix) {
				continue // windows begin with the prefix alone, which is another context than the last token
			}
			t.Run(fmt.Sprintf("prefix %v context %d stride %d", prefix, o.Context, o.Stride), func(t *testing.T) {
				o.Prefix = prefix
				m, _ := load(t, 3, bigramLogits)
				r, err := evaluate.Text(t.Context(), m, nil, tokens, o)
				require.NoError(t, err)
				require.Equal(t, len(losses), r.Scored)
				require.Equal(t, len(tokens), r.Tokens)
				require.InDelta(t, mean, r.Loss, 1e-12)
				require.InDelta(t, math.Exp(mean), r.Perplexity.Perplexity, 1e-12)
				require.InDelta(t, math.Exp(mean)*deviation, r.Error, 1e-12)
				require.Nil(t, r.Reference)
				require.Nil(t, r.Divergence)
			})
		}
	}
}

// Windows: every token is scored once, in order, after the prefix and the tokens right before it, at least
// Context-Stride of both where there are so many, at most Context-1.
func TestWindows(t *testing.T) {
	for length := 1; length <= 23; length++ {
		for _, prefix := range [][]int{nil, {90}, {90, 91}} {
			for context := max(1, len(prefix)) + 1; context <= 9; context++ {
				for stride := 1; stride <= context-max(1, len(prefix)); stride++ {
					if length+len(prefix) < 2 {
						continue
					}
					tokens := make([]int, length)
					for i := range tokens {
						tokens[i] = i
					}
					m, e := load(t, 100, func([]int) []float32 { return make([]float32, 100) })
					o := evaluate.TextOptions{Context: context, Stride: stride, Prefix: prefix}
					last, total := 0, 0
					o.Done = func(scored, all int) { last, total = scored, all }
					r, err := evaluate.Text(t.Context(), m, nil, tokens, o)
					require.NoError(t, err)
					name := fmt.Sprintf("%d tokens, %+v", length, o)
					first := 1 - min(1, len(prefix))
					require.Len(t, e.contexts, length-first, name)
					require.Equal(t, []int{length - first, length - first}, []int{last, total}, name)
					require.InDelta(t, 100, r.Perplexity.Perplexity, 1e-9, name)
					windows := 0
					for i, fed := range e.contexts {
						target := first + i
						if i == 0 || len(fed) <= len(e.contexts[i-1]) {
							windows++
						}
						require.Less(t, len(fed), context, name)
						require.GreaterOrEqual(t, len(fed), min(len(prefix)+target, context-stride), name)
						require.Equal(t, prefix, append([]int(nil), fed[:len(prefix)]...), name)
						for k, id := range fed[len(prefix):] {
							require.Equal(t, target-(len(fed)-len(prefix))+k, id, name)
						}
					}
					require.Equal(t, windows, r.Windows, name)
				}
			}
		}
	}
}

// The divergence from a reference and the share of equal choices, against the closed formulas.
func TestDivergence(t *testing.T) {
	table := [][]float32{{1.5, 2, 0}, {0, 1, 0}, {-3, 5, 4}}
	tokens := []int{0, 1, 2, 2, 0, 0, 1, 1, 2, 0, 2, 1}
	divergences := make([]float64, 3) // by the last token
	for last := range table {
		for token := range table {
			p := probability(bigram, last, token)
			divergences[last] += p * math.Log(p/probability(table, last, token))
		}
	}
	mean, most, loss := 0.0, 0.0, 0.0
	agree := 0
	for i, token := range tokens[1:] {
		d := divergences[tokens[i]]
		mean += d / float64(len(tokens)-1)
		most = max(most, d)
		loss -= math.Log(probability(bigram, tokens[i], token)) / float64(len(tokens)-1)
		if tokens[i] != 1 { // after 1 the program chooses 1, the reference the first of three equals, 0
			agree++
		}
	}
	m, _ := load(t, 3, func(context []int) []float32 { return table[context[len(context)-1]] })
	reference, _ := load(t, 3, bigramLogits)
	r, err := evaluate.Text(t.Context(), m, reference, tokens, evaluate.TextOptions{Context: 6, Stride: 2})
	require.NoError(t, err)
	require.InDelta(t, mean, r.Divergence.Mean, 1e-12)
	require.InDelta(t, most, r.Divergence.Max, 1e-12)
	require.LessOrEqual(t, r.Divergence.Median, r.Divergence.P99)
	require.LessOrEqual(t, r.Divergence.P99, r.Divergence.Max)
	require.InDelta(t, float64(agree)/float64(len(tokens)-1), r.Divergence.Top1, 1e-12)
	require.InDelta(t, loss, r.Reference.Loss, 1e-12)
	require.NotEqual(t, r.Reference.Loss, r.Loss)

	r, err = evaluate.Text(t.Context(), m, m, tokens, evaluate.TextOptions{Context: 6, Stride: 2})
	require.NoError(t, err)
	require.Equal(t, &evaluate.Divergence{Top1: 1}, r.Divergence, "a program from itself")
	require.Equal(t, r.Perplexity, *r.Reference)
}

// The 99th percentile of 200 divergences is the largest but two.
func TestPercentile(t *testing.T) {
	table := [][]float32{{1, 2, 0}, {0, 0, 0}, {0, 0, 0}} // differs from the reference after token 2 only
	for _, twos := range []int{2, 3} {
		tokens := make([]int, 201)
		for i := range twos {
			tokens[10+20*i] = 2
		}
		m, _ := load(t, 3, func(context []int) []float32 { return table[context[len(context)-1]] })
		reference, _ := load(t, 3, bigramLogits)
		r, err := evaluate.Text(t.Context(), m, reference, tokens, evaluate.TextOptions{Context: 20, Stride: 10})
		require.NoError(t, err)
		require.Equal(t, 200, r.Scored)
		require.Zero(t, r.Divergence.Median)
		require.Positive(t, r.Divergence.Max)
		if twos == 3 {
			require.Equal(t, r.Divergence.Max, r.Divergence.P99)
		} else {
			require.Zero(t, r.Divergence.P99)
		}
	}
}

// Logits that exclude tokens, and those that no perplexity can be made of.
func TestLogits(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, test := range []struct {
		name               string
		program, reference []float32
		want               string
	}{
		{"both exclude a token", []float32{1, 2, -inf}, []float32{2, 1, -inf}, ""},
		{"the reference excludes a token", []float32{1, 2, 3}, []float32{2, 1, -inf}, ""},
		{"the program excludes a token", []float32{1, 2, -inf}, []float32{2, 1, 0},
			"token number 1 of the text: the divergence is +Inf: the program excludes a token"},
		{"the text has an excluded token", []float32{1, -inf, 0}, []float32{2, 1, 0}, "the loss of token 1 is +Inf"},
		{"NaN", []float32{1, nan, 0}, []float32{2, 1, 0}, "the loss of token 1 is NaN"},
		{"infinite", []float32{1, inf, 0}, []float32{2, 1, 0}, "the loss of token 1 is NaN"},
		{"large", []float32{3e38, 3e38, -3e38}, []float32{2, 1, -inf}, ""},
		{"fewer logits", []float32{1, 2}, []float32{2, 1, 0}, "the program gives 2 logits, the reference 3"},
		{"no logit for the token", []float32{1}, []float32{2, 1, 0}, "1 logits, want one for token 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, _ := load(t, 3, func([]int) []float32 { return test.program })
			reference, _ := load(t, 3, func([]int) []float32 { return test.reference })
			r, err := evaluate.Text(t.Context(), m, reference, []int{0, 1, 0},
				evaluate.TextOptions{Context: 4, Stride: 2})
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.False(t, math.IsNaN(r.Divergence.Mean) || math.IsInf(r.Divergence.Mean, 0) || r.Divergence.Mean < 0)
		})
	}
}

func TestTextRefused(t *testing.T) {
	uniform := func([]int) []float32 { return make([]float32, 3) }
	m, _ := load(t, 3, uniform)
	larger, _ := load(t, 4, uniform)
	sampler := loadForm(t, 3, &predictor{logits: uniform}, ir.StaticType(ir.I64, 1))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	good := evaluate.TextOptions{Context: 8, Stride: 4}
	for _, test := range []struct {
		name string
		run  func() (evaluate.TextResult, error)
		want string
	}{
		{"sampling head", func() (evaluate.TextResult, error) {
			return evaluate.Text(t.Context(), sampler, nil, []int{0, 1}, good)
		},
			"the program gives a token, not logits"},
		{"reference with a sampling head",
			func() (evaluate.TextResult, error) { return evaluate.Text(t.Context(), m, sampler, []int{0, 1}, good) },
			"the reference gives a token, not logits"},
		{"another vocabulary", func() (evaluate.TextResult,
			error) {
			return evaluate.Text(t.Context(), m, larger, []int{0, 1}, good)
		},
			"the program has a vocabulary of 3 tokens, the reference of 4"},
		{"one token", func() (evaluate.TextResult, error) { return evaluate.Text(t.Context(), m, nil, []int{0}, good) },
			"a text of 1 tokens: nothing to predict"},
		{"no token", func() (evaluate.TextResult, error) {
			return evaluate.Text(t.Context(), m, nil, nil,
				evaluate.TextOptions{Context: 8, Stride: 2, Prefix: []int{1, 1}})
		}, "a text of 0 tokens: nothing to predict"},
		{"token", func() (evaluate.TextResult, error) { return evaluate.Text(t.Context(), m, nil, []int{0, 3}, good) },
			"token 3 (number 1) is not in the vocabulary of the program, 3 tokens"},
		{"context", func() (evaluate.TextResult, error) {
			return evaluate.Text(t.Context(), m, nil, []int{0, 1}, evaluate.TextOptions{Context: 33, Stride: 4})
		}, "a context of 33 tokens, want 2 to 32"},
		{"context of the prefix", func() (evaluate.TextResult, error) {
			return evaluate.Text(t.Context(), m, nil, []int{0, 1},
				evaluate.TextOptions{Context: 2, Stride: 1, Prefix: []int{1, 1}})
		}, "a context of 2 tokens, want 3 to 32"},
		{"stride", func() (evaluate.TextResult, error) {
			return evaluate.Text(t.Context(), m, nil, []int{0, 1}, evaluate.TextOptions{Context: 8, Stride: 8})
		}, "a stride of 8 tokens, want 1 to 7 for a context of 8"},
		{"no stride", func() (evaluate.TextResult, error) {
			return evaluate.Text(t.Context(), m, nil, []int{0, 1}, evaluate.TextOptions{Context: 8})
		}, "a stride of 0 tokens"},
		{"cancelled", func() (evaluate.TextResult,
			error) {
			return evaluate.Text(cancelled, m, nil, []int{0, 1, 2}, good)
		},
			"context canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.run()
			require.ErrorContains(t, err, test.want)
		})
	}
}
