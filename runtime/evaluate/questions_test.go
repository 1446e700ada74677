package evaluate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/evaluate"
)

func ptr(s string) *string { return &s }

func TestParseQuestions(t *testing.T) {
	got, err := evaluate.ParseQuestions("qa.json", []byte(`[
		{"q": "What?", "prompt_ids": [3, 4], "expect": "That.", "got": "That.", "ids": [5, 6]},
		{"q": "Why?", "expect": ""},
		{"prompt_ids": [1], "ids": [2]}
	]
	`))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]evaluate.Question{
		{Number: 0, Text: "What?", Prompt: []int{3, 4}, Expect: ptr("That."), Answer: []int{5, 6}},
		{Number: 1, Text: "Why?", Expect: ptr("")},
		{Number: 2, Prompt: []int{1}, Answer: []int{2}},
	}, got))
}

func TestParseQuestionsRefused(t *testing.T) {
	for _, test := range []struct{ name, json, want string }{
		{"empty", "", "the JSON ends at byte 0"},
		{"cut off", `[{"q": "a`, "the JSON ends at byte 9"},
		{"object", `{"q": "a"}`, "want an array of questions"},
		{"no questions", `[]`, "no questions"},
		{"null", `null`, "no questions"},
		{"two documents", `[{"q": "a", "expect": "b"}] []`, "more follows the array of questions at byte 29"},
		{"no question", `[{"expect": "b"}]`, `question 0 has neither "q" nor "prompt_ids"`},
		{"no answer", `[{"q": "a", "expect": "b"}, {"q": "a", "ids": []}]`,
			`question 1 has neither "expect" nor "ids"`},
		{"negative token", `[{"prompt_ids": [-1], "expect": "b"}]`, "question 0 has a negative token"},
		{"negative answer", `[{"prompt_ids": [1], "ids": [2, -7]}]`, "question 0 has a negative token"},
		{"fraction", `[{"prompt_ids": [1.5], "expect": "b"}]`, "1.5"},
		{"text as id", `[{"prompt_ids": ["x"], "expect": "b"}]`, "prompt_ids"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := evaluate.ParseQuestions("qa.json", []byte(test.json))
			require.ErrorContains(t, err, test.want)
			require.True(t, strings.HasPrefix(err.Error(), "qa.json: "), "%v", err)
		})
	}
}

func TestChoose(t *testing.T) {
	questions := make([]evaluate.Question, 7)
	for i := range questions {
		questions[i].Number = i
	}
	for _, test := range []struct {
		every, limit int
		want         []int
	}{
		{1, 0, []int{0, 1, 2, 3, 4, 5, 6}},
		{3, 0, []int{0, 3, 6}},
		{2, 2, []int{0, 2}},
		{9, 5, []int{0}},
		{1, 7, []int{0, 1, 2, 3, 4, 5, 6}},
	} {
		var got []int
		for _, q := range evaluate.Choose(questions, test.every, test.limit) {
			got = append(got, q.Number)
		}
		require.Equal(t, test.want, got, "every %d, limit %d", test.every, test.limit)
	}
}

// Whatever the bytes, questions can be asked or there is an error.
func FuzzParseQuestions(f *testing.F) {
	f.Add([]byte(`[{"q": "What?", "prompt_ids": [3, 4], "expect": "That.", "ids": [5, 6]}]`))
	f.Add([]byte(`[{"q": "", "expect": null}]`))
	f.Add([]byte(`[[]]`))
	f.Fuzz(func(t *testing.T, p []byte) {
		questions, err := evaluate.ParseQuestions("f", p)
		if err != nil {
			require.Nil(t, questions)
			return
		}
		require.NotEmpty(t, questions)
		for i, q := range questions {
			require.Equal(t, i, q.Number)
			require.True(t, q.Text != "" || len(q.Prompt) > 0)
			require.True(t, q.Expect != nil || len(q.Answer) > 0)
		}
	})
}
