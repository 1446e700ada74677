package etc

import (
	"context"
	"iter"
	"slices"

	"github.com/etc-ml/etc/internal/kind"
)

// Sequence is a row of tokens that grows by texts, token ids and answers. Its state lies in the model's cache while
// there is room, so that going on, and branching off by [Sequence.Fork], computes only what is new; what comes of it is
// the same where there is none. A Sequence is not safe for concurrent use, but sequences of a model are beside each
// other. It needs no closing.
type Sequence struct {
	model  *Model
	tokens []int
}

// NewSequence begins a sequence of no tokens.
func (m *Model) NewSequence() *Sequence { return &Sequence{model: m} }

// Append puts a text after the sequence. Names of special tokens in it are parsed. A text at the beginning gets the
// tokens that the tokenizer puts there, as <bos>. Each text is encoded by itself, so a blank between words belongs to
// the later text: "capital of", then " France".
func (s *Sequence) Append(text string) error {
	t, err := s.model.tokenizer()
	if err != nil {
		return err
	}
	s.tokens = append(s.tokens, t.Encode(text, EncodeOptions{Special: len(s.tokens) == 0, ParseSpecial: true})...)
	return nil
}

// AppendTokens puts tokens after the sequence, which [Model.Prompt] and [Tokenizer.Encode] give.
func (s *Sequence) AppendTokens(ids ...int) { s.tokens = append(s.tokens, ids...) }

// Generate goes on with the sequence, as [Model.Generate] does with a prompt. The tokens of the answer become part of
// the sequence when they come; a stop token does not.
func (s *Sequence) Generate(ctx context.Context, p Parameters) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		var err error
		if len(s.tokens) == 0 {
			err = kind.Usagef("a sequence of no tokens, want at least one to go on from")
		}
		q := question{tokens: slices.Clone(s.tokens), answered: func(id int) { s.tokens = append(s.tokens, id) }}
		s.model.answer(ctx, q, err, p, yield)
	}
}

// Fork makes a second sequence of the same tokens.
func (s *Sequence) Fork() *Sequence { return &Sequence{s.model, slices.Clone(s.tokens)} }

// Truncate drops all tokens but the first n, if there are more.
func (s *Sequence) Truncate(n int) { s.tokens = s.tokens[:min(max(n, 0), len(s.tokens))] }

// Tokens returns the tokens of the sequence.
func (s *Sequence) Tokens() []int { return slices.Clone(s.tokens) }

// Len returns the number of tokens.
func (s *Sequence) Len() int { return len(s.tokens) }

// Text returns the text of the sequence, without special tokens; "" where the model has no tokenizer.
func (s *Sequence) Text() string {
	if t := s.model.Tokenizer(); t != nil {
		return t.Decode(s.tokens)
	}
	return ""
}
