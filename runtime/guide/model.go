package guide

import (
	"slices"
	"sync"

	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// maxGrammars is how many compiled grammars a model keeps.
const maxGrammars = 64

// Model has what the guides of a model share. It is safe for concurrent use.
type Model struct {
	tokenizer *tokenizer.Tokenizer
	format    *format.Format
	stop      []int
	size      int
	grammars  *constrain.Cache

	once     sync.Once
	vocab    *constrain.Vocab
	newlines []int // tokens of nothing but ends of lines
	err      error

	callOnce  sync.Once
	callVocab *constrain.Vocab // of the bodies of calls
	callErr   error
}

// NewModel describes a model: its tokenizer, how it marks thoughts and calls, the tokens that end an answer, and the
// number of tokens that it gives logits of (0: as many as the tokenizer has).
func NewModel(t *tokenizer.Tokenizer, f *format.Format, stop []int, size int) *Model {
	if size == 0 {
		size = t.VocabSize()
	}
	return &Model{tokenizer: t, format: f, stop: stop, size: size, grammars: constrain.NewCache(maxGrammars)}
}

// Vocab returns the bytes of the model's tokens.
func (m *Model) Vocab() (*constrain.Vocab, error) {
	m.once.Do(func() {
		tokens := m.tokenBytes()
		for id, b := range tokens {
			if string(b) == "\n" || string(b) == "\n\n" {
				m.newlines = append(m.newlines, id)
			}
		}
		m.vocab, m.err = constrain.NewVocab(tokens, m.stop)
	})
	return m.vocab, m.err
}

// CallVocab returns the vocabulary of what stands between the marks of a call, whose end the closing mark is.
func (m *Model) CallVocab() (*constrain.Vocab, error) {
	m.callOnce.Do(func() {
		f, tokens := m.format, m.tokenBytes()
		for _, id := range []int{f.Open, f.Close, f.Tool, f.End} {
			if id >= 0 && id < len(tokens) {
				tokens[id] = nil
			}
		}
		if f.Quote >= 0 && f.Quote < len(tokens) {
			tokens[f.Quote] = []byte(format.QuoteMark)
		}
		m.callVocab, m.callErr = constrain.NewVocab(tokens, []int{f.End})
	})
	return m.callVocab, m.callErr
}

// tokenBytes returns the bytes of the tokens, none of those that end an answer.
func (m *Model) tokenBytes() [][]byte {
	tokens := make([][]byte, m.size)
	for id := range tokens {
		if !slices.Contains(m.stop, id) {
			tokens[id] = m.tokenizer.TokenBytes(id)
		}
	}
	return tokens
}

// Compile compiles a constraint, or returns the grammar that was compiled from it before. Its errors are those of
// [constrain.Compile].
func (m *Model) Compile(src constrain.Source) (*constrain.Grammar, error) {
	return m.grammars.Compile(src)
}
