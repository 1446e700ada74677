package prompt

import (
	"io"
	"os"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/runtime/program"
)

// Source says where the tokenizer and the chat template of a program come from. The zero value takes the file's own.
type Source struct {
	// Tokenizer is the path of a tokenizer.json in the place of the file's.
	Tokenizer string
	// TemplateFile is the path of a chat template in the place of the file's, and Template the text of one, which has
	// the name TemplateName in errors.
	TemplateFile, Template, TemplateName string
	// NoTemplate goes without a chat template, and reads none.
	NoTemplate bool
	// IDs takes a program without a tokenizer, for those who have token ids.
	IDs bool
}

// MostTemplate bounds a file with a chat template, in bytes. A tokenizer_config.json lists all special tokens.
const MostTemplate = 64 << 20

// Open reads tokenizer, defaults, stop tokens and chat template of a program. A template that is not the file's own
// adds the token with which it ends a turn to the stop tokens; so does the file's own where the file names no stop
// token.
func (s Source) Open(p *program.Program) (*Text, error) {
	t, err := Open(p, s.Tokenizer, s.IDs)
	if err != nil || s.NoTemplate {
		return t, err
	}
	given := true
	switch {
	case s.TemplateFile != "":
		var text []byte
		if text, err = ReadAtMost(s.TemplateFile, MostTemplate); err == nil {
			t.Template, err = UseTemplate(p.File, s.TemplateFile, string(text))
		}
	case s.Template != "":
		t.Template, err = UseTemplate(p.File, s.TemplateName, s.Template)
	default:
		given = false
		t.Template, err = OpenTemplate(p.File)
	}
	if err != nil {
		return nil, err
	}
	if t.Template != nil && (given || len(t.Stop) == 0) {
		t.AddTurnEnd()
	}
	return t, nil
}

// ReadAtMost reads a file that has no more than limit bytes. One that has more is invalid.
func ReadAtMost(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = kind.Invalidf("%s has more than %d bytes", path, limit)
	}
	return data, err
}
