package evaluate

import (
	"context"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/runtime/session"
)

// slack is how many tokens an answer may be longer than the right one before it is cut off.
const slack = 16

// QAOptions are the options of [QA].
type QAOptions struct {
	// Encode makes the prompt of a question that comes without tokens: its chat template and tokenizer. nil
	// where there is none.
	Encode func(question string) ([]int, error)
	// Decode gives the text of an answer; nil where there is no tokenizer: then only tokens are compared.
	Decode func(tokens []int) string
	// Stop are the tokens that end an answer.
	Stop []int
	// Reference is a program whose predictions along the answers are compared; nil for none. Both must give
	// logits, over the same vocabulary.
	Reference *session.Model
	// Answer returns the answer to a prompt in an empty context. Nil stands for a session of the model; an Answer is
	// set where something else answers, as an executor of shared calls does. It must be nil beside Reference, which
	// compares logits.
	Answer func(ctx context.Context, r session.Request) (session.Answer, error)
	// Done is called after every question; nil for none.
	Done func(a QAAnswer)
}

// QAAnswer is the result for a question.
type QAAnswer struct {
	// Number is the place of the question in its file, from 0.
	Number   int    `json:"number"`
	Question string `json:"q"`
	// Right reports whether tokens and text are as expected, and the answer has ended.
	Right bool `json:"-"`
	// Tokens and Text are the answer, without the stop token; Text is empty without a tokenizer.
	Tokens []int  `json:"tokens"`
	Text   string `json:"text"`
	// WantTokens and WantText are the expected answer.
	WantTokens []int   `json:"want_tokens,omitempty"`
	WantText   *string `json:"want_text,omitempty"`
	// Stop is the reason why the answer ended.
	Stop session.StopReason `json:"stop_reason"`
}

// QAResult is the result of [QA].
type QAResult struct {
	Right     int `json:"right"`
	Questions int `json:"questions"`
	// Misses are the answers that are not right, in the order of the questions.
	Misses []QAAnswer `json:"misses"`
	// Predictions is the number of tokens of the answers, their ends included, that Divergence is of: how far
	// the program's predictions are from the reference's, which is fed the program's answers.
	Predictions int         `json:"predictions,omitempty"`
	Divergence  *Divergence `json:"divergence,omitempty"`
}

// QA asks every question in a context of its own at temperature 0 and compares the answers exactly: the tokens up to
// the stop token, and the text. An answer that does not end is wrong. A question that cannot be asked is a
// [QuestionError], before any is asked. It is long because it is one sequence of steps, each of which needs what those
// before it made.
func QA(ctx context.Context, m *session.Model, questions []Question, o QAOptions) (QAResult, error) {
	r := QAResult{Questions: len(questions), Misses: []QAAnswer{}}
	asked := make([]asked, len(questions))
	for i, q := range questions {
		var err error
		if asked[i], err = prepare(m, q, o); err != nil {
			return r, &QuestionError{q.Number, err}
		}
	}
	if err := checkReference(m, o.Reference); err != nil {
		return r, err
	}
	var sessions []*session.Session
	for _, m := range models(m, o) {
		s, err := m.NewSession()
		if err != nil {
			return r, err
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	answer, score := o.Answer, &scores{loss: make([][]float64, 2)}
	if answer == nil {
		answer = anew(sessions[0])
	}
	for i, q := range asked {
		got, err := answer(ctx, session.Request{Prompt: q.prompt, Sampling: session.Greedy,
			MaxNewTokens: q.limit, Stop: o.Stop})
		if err != nil {
			return r, fmt.Errorf("question %d: %w", questions[i].Number, err)
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if o.Reference != nil {
			answer := slices.Clone(got.Tokens)
			if got.Reason == session.StopEOS {
				answer = append(answer, o.Stop[0]) // which of them does not matter for what is predicted
			}
			if err := score.window(ctx, sessions, q.prompt, answer, 0); err != nil {
				return r, fmt.Errorf("question %d: the answer: %w", questions[i].Number, err)
			}
		}
		a := q.judge(got, o)
		a.Number, a.Question = questions[i].Number, questions[i].Text
		if a.Right {
			r.Right++
		} else {
			r.Misses = append(r.Misses, a)
		}
		if o.Done != nil {
			o.Done(a)
		}
	}
	if o.Reference != nil {
		r.Predictions, r.Divergence = len(score.divergence), score.sumUp()
	}
	return r, nil
}

// anew answers from an empty context.
func anew(s *session.Session) func(context.Context, session.Request) (session.Answer, error) {
	return func(ctx context.Context, r session.Request) (session.Answer, error) {
		if err := s.Reset(); err != nil {
			return session.Answer{}, err
		}
		return s.Generate(ctx, r)
	}
}

// models returns those that sessions are needed of: the one that answers first.
func models(m *session.Model, o QAOptions) (out []*session.Model) {
	if o.Answer == nil {
		out = append(out, m)
	}
	if o.Reference != nil {
		out = append(out, o.Reference)
	}
	return out
}

// checkReference reports why predictions of two programs cannot be compared; reference may be nil.
func checkReference(m, reference *session.Model) error {
	switch {
	case reference == nil:
		return nil
	case m.Form != session.Logits:
		return &ReferenceError{"the program gives a token, not logits, which a comparison needs: export it " +
			"without --sample"}
	case reference.Form != session.Logits:
		return &ReferenceError{"the reference gives a token, not logits, which a comparison needs: export it " +
			"without --sample"}
	case m.Vocab != reference.Vocab:
		return &ReferenceError{fmt.Sprintf(
			"the program has a vocabulary of %d tokens, the reference of %d: their predictions cannot be compared",
			m.Vocab, reference.Vocab)}
	case reference.MaxSeqLen < m.MaxSeqLen:
		return &ReferenceError{fmt.Sprintf("the program has a context of %d tokens, the reference of %d only",
			m.MaxSeqLen, reference.MaxSeqLen)}
	}
	return nil
}

// ReferenceError says why the predictions of two programs cannot be compared.
type ReferenceError struct{ problem string }

func (e *ReferenceError) Error() string { return e.problem }

// QuestionError is an error of a question that cannot be asked of the model.
type QuestionError struct {
	// Number is the place of the question in its file, from 0.
	Number int
	Err    error
}

func (e *QuestionError) Error() string { return fmt.Sprintf("question %d: %v", e.Number, e.Err) }

// Unwrap returns the error without the question.
func (e *QuestionError) Unwrap() error { return e.Err }

// asked is a question as the model gets it.
type asked struct {
	prompt []int
	want   []int // up to the stop token; nil where only the text counts
	text   *string
	limit  int
}

// prepare checks a question against the model.
func prepare(m *session.Model, q Question, o QAOptions) (asked, error) {
	a := asked{prompt: q.Prompt, want: q.Answer, text: q.Expect}
	if len(a.prompt) == 0 {
		if o.Encode == nil {
			return a, fmt.Errorf(`it has no "prompt_ids", and there is no chat template to make them of its text`)
		}
		var err error
		if a.prompt, err = o.Encode(q.Text); err != nil {
			return a, err
		}
		if len(a.prompt) == 0 {
			return a, fmt.Errorf("its prompt is empty")
		}
	}
	if at := slices.IndexFunc(a.want, func(id int) bool { return slices.Contains(o.Stop, id) }); at >= 0 {
		a.want = a.want[:at]
	}
	if o.Decode == nil {
		a.text = nil
	}
	length := len(a.want)
	if q.Answer == nil {
		if a.text == nil {
			return a, fmt.Errorf(`it has no "ids", and there is no tokenizer to compare text with`)
		}
		length = len(*a.text) // no token but a special one has less than a byte
	}
	if len(a.prompt)+len(a.want) > m.MaxSeqLen {
		return a, fmt.Errorf("a prompt of %d tokens and an answer of %d do not fit the context of %d tokens",
			len(a.prompt), len(a.want), m.MaxSeqLen)
	}
	for _, id := range slices.Concat(a.prompt, a.want) {
		if m.Vocab > 0 && id >= m.Vocab {
			return a, fmt.Errorf("token %d is not in the vocabulary of %d tokens", id, m.Vocab)
		}
	}
	// One token more than the context holds can be chosen, none can be fed.
	a.limit = min(length+slack, m.MaxSeqLen-len(a.prompt)+1)
	return a, nil
}

// judge compares an answer with what was expected.
func (q asked) judge(got session.Answer, o QAOptions) QAAnswer {
	a := QAAnswer{Tokens: got.Tokens, WantTokens: q.want, WantText: q.text, Stop: got.Reason}
	if a.Tokens == nil {
		a.Tokens = []int{}
	}
	a.Right = got.Reason == session.StopEOS && (q.want == nil || slices.Equal(a.Tokens, q.want))
	if o.Decode != nil {
		a.Text = o.Decode(a.Tokens)
		a.Right = a.Right && (q.text == nil || a.Text == *q.text)
	}
	return a
}
