package command

import (
	"io"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/program"
)

// text is what turns text into a program's tokens and back.
type text = prompt.Text

// openText reads the tokenizer and the defaults of a file.
var openText = prompt.Open

// openTemplate parses the template of a file, or the one at path; nil where the file has none.
func openTemplate(p *program.Program, path string) (*prompt.Template, error) {
	if path == "" {
		return prompt.OpenTemplate(p.File)
	}
	b, err := readAtMost(nil, path, maxTemplateFile)
	if err != nil {
		return nil, err
	}
	return prompt.UseTemplate(p.File, path, string(b))
}

// logTo writes notes for people to w, a line each.
func logTo(w io.Writer) func(note string) {
	return func(note string) { logf(w, "etc: %s", note) }
}
