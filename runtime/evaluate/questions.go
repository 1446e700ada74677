package evaluate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Question is a question with its exact answer.
type Question struct {
	// Number is the place of the question in its file, from 0.
	Number int `json:"-"`
	// Text is the question.
	Text string `json:"q"`
	// Prompt holds the tokens of the whole prompt; nil where the chat template makes them of Text.
	Prompt []int `json:"prompt_ids"`
	// Expect is the text of the answer, nil where only the tokens count.
	Expect *string `json:"expect"`
	// Answer holds the tokens of the answer; nil where only the text counts.
	Answer []int `json:"ids"`
}

// ParseQuestions reads a JSON array of questions, objects of "q" or "prompt_ids" and of "expect" or "ids";
// other keys are ignored. name is for errors.
func ParseQuestions(name string, p []byte) ([]Question, error) {
	d := json.NewDecoder(bytes.NewReader(p))
	var questions []Question
	if err := d.Decode(&questions); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%s: the JSON ends at byte %d, want an array of questions", name, len(p))
		}
		return nil, fmt.Errorf("%s: want an array of questions: %w", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more follows the array of questions at byte %d", name, d.InputOffset())
	}
	if len(questions) == 0 {
		return nil, fmt.Errorf("%s: no questions", name)
	}
	for i, q := range questions {
		questions[i].Number = i
		switch {
		case q.Text == "" && len(q.Prompt) == 0:
			return nil, fmt.Errorf(`%s: question %d has neither "q" nor "prompt_ids"`, name, i)
		case q.Expect == nil && len(q.Answer) == 0:
			return nil, fmt.Errorf(`%s: question %d has neither "expect" nor "ids", so no answer is right`, name, i)
		}
		if at := slices.IndexFunc(slices.Concat(q.Prompt, q.Answer), func(id int) bool { return id < 0 }); at >= 0 {
			return nil, fmt.Errorf("%s: question %d has a negative token", name, i)
		}
	}
	return questions, nil
}

// Choose takes every n-th question, the first one first, and at most limit of them; limit 0 means all.
func Choose(questions []Question, every, limit int) []Question {
	var out []Question
	for i := 0; i < len(questions); i += every {
		if limit > 0 && len(out) == limit {
			break
		}
		out = append(out, questions[i])
	}
	return out
}
