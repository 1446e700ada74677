package etc

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Tokenizer turns text into token ids and back, as the tokenizers library of Hugging Face does. It is safe for
// concurrent use.
type Tokenizer struct{ t *tokenizer.Tokenizer }

// LoadTokenizer reads a tokenizer.json, or the tokenizer that a program (.pte) holds.
func LoadTokenizer(path string) (*Tokenizer, error) {
	isProgram, err := looksLikeProgram(path)
	if err != nil {
		return nil, err
	}
	if isProgram {
		return programTokenizer(path)
	}
	t, err := tokenizer.Load(path)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// programTokenizer reads the tokenizer of a program.
func programTokenizer(path string) (*Tokenizer, error) {
	p, err := program.Open(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	b, ok := p.File.Lookup(prompt.KeyTokenizer)
	if !ok {
		return nil, kind.Usagef("%s holds no tokenizer: name a tokenizer.json", path)
	}
	t, err := tokenizer.Parse(b, path+": "+prompt.KeyTokenizer)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// looksLikeProgram tells a program by its name or its identifier.
func looksLikeProgram(path string) (bool, error) {
	if strings.HasSuffix(path, ".pte") {
		return true, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 8)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return n == len(head) && bytes.Equal(head[4:], []byte("ET12")), nil
}

// Tokenizer returns the model's tokenizer, or nil where its file has none.
func (m *Model) Tokenizer() *Tokenizer {
	return tokenizerOf(m.text)
}

// tokenizerOf returns the tokenizer of a file, or nil where it has none.
func tokenizerOf(t *prompt.Text) *Tokenizer {
	if t.Tokenizer == nil {
		return nil
	}
	return &Tokenizer{t.Tokenizer}
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

// EncodeReader encodes a text as it comes, in little memory, however long it is, and gives the tokens piece by piece.
// It cuts the text where that changes no token; a text that has no such place in 64 MiB is an [ErrInvalid]. An error of
// give ends it.
func (t *Tokenizer) EncodeReader(text io.Reader, o EncodeOptions, give func(ids []int) error) error {
	err := t.t.EncodeReader(text, tokenizer.EncodeOptions{AddSpecial: o.Special, ParseSpecial: o.ParseSpecial}, give)
	if long := (*tokenizer.LengthError)(nil); errors.As(err, &long) {
		return kind.Of(kind.ErrInvalid, err)
	}
	return err
}

// Decode returns the text of tokens, without special ones. Ids that are no token are left out.
func (t *Tokenizer) Decode(ids []int) string { return t.t.Decode(ids, true) }

// DecodeSpecial is Decode with the names of special tokens.
func (t *Tokenizer) DecodeSpecial(ids []int) string { return t.t.Decode(ids, false) }

// Token returns the name of a token as in tokenizer.json, or false where there is no such token.
func (t *Tokenizer) Token(id int) (name string, ok bool) { return t.t.IDToToken(id) }

// ID finds a token by its name, as <|im_end|>.
func (t *Tokenizer) ID(name string) (id int, ok bool) { return t.t.TokenToID(name) }

// Size is the number of tokens.
func (t *Tokenizer) Size() int { return t.t.VocabSize() }
