package evaluate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/evaluate"
	"github.com/etc-ml/etc/runtime/session"
)

const (
	stop       = 1
	vocabulary = 10
)

// countdown answers n with n-1, n-2, …, 2 and the stop token 1; 9 answers 9 for ever.
func countdown(context []int) []float32 {
	last := context[len(context)-1]
	if last == 9 {
		return oneHot(vocabulary, 9)
	}
	return oneHot(vocabulary, max(last-1, stop))
}

func TestQA(t *testing.T) {
	decode := func(tokens []int) string { return fmt.Sprint(tokens) }
	for _, test := range []struct {
		name     string
		question evaluate.Question
		options  evaluate.QAOptions
		right    bool
		got      []int
		reason   session.StopReason
	}{
		{"tokens and text", evaluate.Question{Prompt: []int{7, 4}, Answer: []int{3, 2}, Expect: ptr("[3 2]")},
			evaluate.QAOptions{Decode: decode}, true, []int{3, 2}, session.StopEOS},
		{"tokens with the stop token and what follows it",
			evaluate.Question{Prompt: []int{4}, Answer: []int{3, 2, stop, 8}}, evaluate.QAOptions{}, true,
			[]int{3, 2}, session.StopEOS},
		{"tokens alone, no tokenizer", evaluate.Question{Prompt: []int{4}, Answer: []int{3, 2}, Expect: ptr("other")},
			evaluate.QAOptions{}, true, []int{3, 2}, session.StopEOS},
		{"text alone", evaluate.Question{Prompt: []int{4}, Expect: ptr("[3 2]")}, evaluate.QAOptions{Decode: decode},
			true, []int{3, 2}, session.StopEOS},
		{"empty answer", evaluate.Question{Prompt: []int{2}, Answer: []int{stop}, Expect: ptr("[]")},
			evaluate.QAOptions{Decode: decode}, true, []int{}, session.StopEOS},
		{"question through the template", evaluate.Question{Text: "4", Answer: []int{3, 2}},
			evaluate.QAOptions{Encode: func(string) ([]int, error) { return []int{8, 4}, nil }}, true,
			[]int{3, 2}, session.StopEOS},
		{"tokens before the template", evaluate.Question{Text: "9", Prompt: []int{3}, Answer: []int{2}},
			evaluate.QAOptions{Encode: func(string) ([]int, error) { return nil, errors.New("not called") }}, true,
			[]int{2}, session.StopEOS},
		{"another token", evaluate.Question{Prompt: []int{4}, Answer: []int{3, 3}}, evaluate.QAOptions{}, false,
			[]int{3, 2}, session.StopEOS},
		{"too short", evaluate.Question{Prompt: []int{4}, Answer: []int{3, 2, 2}}, evaluate.QAOptions{}, false,
			[]int{3, 2}, session.StopEOS},
		{"too long", evaluate.Question{Prompt: []int{4}, Answer: []int{3}}, evaluate.QAOptions{}, false,
			[]int{3, 2}, session.StopEOS},
		{"another text", evaluate.Question{Prompt: []int{4}, Answer: []int{3, 2}, Expect: ptr("[3  2]")},
			evaluate.QAOptions{Decode: decode}, false, []int{3, 2}, session.StopEOS},
		{"no end", evaluate.Question{Prompt: []int{9}, Answer: []int{9, 9}}, evaluate.QAOptions{}, false,
			slices.Repeat([]int{9}, 18), session.StopLength},
		{"the right text, but no end", evaluate.Question{Prompt: []int{9}, Expect: ptr("same")},
			evaluate.QAOptions{Decode: func([]int) string { return "same" }}, false,
			slices.Repeat([]int{9}, 20), session.StopLength},
		{"no end before the context is full", evaluate.Question{Prompt: slices.Repeat([]int{9}, contextLen-1),
			Answer: []int{9}}, evaluate.QAOptions{}, false, []int{9, 9}, session.StopLength},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, _ := load(t, vocabulary, countdown)
			test.options.Stop = []int{0, stop}
			var done []evaluate.QAAnswer
			test.options.Done = func(a evaluate.QAAnswer) { done = append(done, a) }
			// The question between two others: it depends on neither, and they do not on it.
			other := evaluate.Question{Number: 1, Prompt: []int{5}, Answer: []int{4, 3, 2}}
			test.question.Number = 2
			r, err := evaluate.QA(t.Context(), m, []evaluate.Question{other, test.question, other}, test.options)
			require.NoError(t, err)
			require.Len(t, done, 3)
			require.True(t, done[0].Right && done[2].Right)
			a := done[1]
			require.Equal(t, test.right, a.Right)
			require.Equal(t, test.got, a.Tokens)
			require.Equal(t, test.reason, a.Stop)
			require.Equal(t, 2, a.Number)
			require.Equal(t, 3, r.Questions)
			if test.right {
				require.Equal(t, 3, r.Right)
				require.Empty(t, r.Misses)
				return
			}
			require.Equal(t, 2, r.Right)
			require.Empty(t, cmp.Diff([]evaluate.QAAnswer{a}, r.Misses))
		})
	}
}

// A question that cannot be asked is an error that names it, before any question is asked.
func TestQARefused(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	refuse := func(string) ([]int, error) { return nil, errors.New("the template is broken") }
	for _, test := range []struct {
		name     string
		ctx      context.Context
		question evaluate.Question
		options  evaluate.QAOptions
		want     string
	}{
		{"no template", t.Context(), evaluate.Question{Text: "a", Answer: []int{2}}, evaluate.QAOptions{},
			`question 5: it has no "prompt_ids", and there is no chat template`},
		{"broken template", t.Context(), evaluate.Question{Text: "a", Answer: []int{2}},
			evaluate.QAOptions{Encode: refuse}, "question 5: the template is broken"},
		{"empty prompt", t.Context(), evaluate.Question{Text: "a", Answer: []int{2}},
			evaluate.QAOptions{Encode: func(string) ([]int, error) { return nil, nil }},
			"question 5: its prompt is empty"},
		{"text, no tokenizer", t.Context(), evaluate.Question{Prompt: []int{2}, Expect: ptr("a")}, evaluate.QAOptions{},
			`question 5: it has no "ids", and there is no tokenizer`},
		{"context", t.Context(), evaluate.Question{Prompt: make([]int, contextLen), Answer: []int{2}},
			evaluate.QAOptions{}, "question 5: a prompt of 32 tokens and an answer of 1 do not fit the context of 32 tokens"},
		{"vocabulary", t.Context(), evaluate.Question{Prompt: []int{2}, Answer: []int{vocabulary}},
			evaluate.QAOptions{}, "question 5: token 10 is not in the vocabulary of 10 tokens"},
		{"cancelled", cancelled, evaluate.Question{Prompt: []int{2}, Answer: []int{2}},
			evaluate.QAOptions{}, "context canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, e := load(t, vocabulary, countdown)
			test.question.Number = 5
			_, err := evaluate.QA(test.ctx, m, []evaluate.Question{{Prompt: []int{3}, Answer: []int{2}}, test.question},
				test.options)
			require.ErrorContains(t, err, test.want)
			require.Empty(t, e.contexts)
			var q *evaluate.QuestionError
			require.Equal(t, test.name != "cancelled", errors.As(err, &q))
		})
	}
}
