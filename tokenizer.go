package etc

import (
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Tokenizer turns text into token ids and back, as the tokenizers library of Hugging Face does. It is safe for
// concurrent use.
type Tokenizer struct{ t *tokenizer.Tokenizer }

// LoadTokenizer reads a tokenizer.json.
func LoadTokenizer(path string) (*Tokenizer, error) {
	t, err := tokenizer.Load(path)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// Tokenizer returns the model's tokenizer, or nil where its file has none.
func (m *Model) Tokenizer() *Tokenizer {
	if m.text.Tokenizer == nil {
		return nil
	}
	return &Tokenizer{m.text.Tokenizer}
}

// tokenizer returns the model's tokenizer, or an error where it has none.
func (m *Model) tokenizer() (*Tokenizer, error) {
	if t := m.Tokenizer(); t != nil {
		return t, nil
	}
	return nil, kind.Usagef("%s holds no tokenizer: set Options.Tokenizer, or go by token ids", m.text.File)
}

// EncodeOptions say what special tokens a text is encoded with. The zero value has none: all of it is text.
type EncodeOptions struct {
	// Special adds the tokens that the tokenizer puts around a text, as <bos>.
	Special bool
	// ParseSpecial takes the names of special tokens in the text for these tokens. Leave it out for what users write.
	ParseSpecial bool
}

// Encode returns the tokens of a text.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int {
	return t.t.Encode(text, tokenizer.EncodeOptions{AddSpecial: o.Special, ParseSpecial: o.ParseSpecial})
}

// Decode returns the text of tokens, without special ones. Ids that are no token are left out.
func (t *Tokenizer) Decode(ids []int) string { return t.t.Decode(ids, true) }

// Token returns the name of a token as in tokenizer.json, or false where there is no such token.
func (t *Tokenizer) Token(id int) (name string, ok bool) { return t.t.IDToToken(id) }

// ID finds a token by its name, as <|im_end|>.
func (t *Tokenizer) ID(name string) (id int, ok bool) { return t.t.TokenToID(name) }

// Size is the number of tokens.
func (t *Tokenizer) Size() int { return t.t.VocabSize() }
