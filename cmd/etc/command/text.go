package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/statefile"
	"github.com/etc-ml/etc/runtime/program"
)

// text is what turns text into a program's tokens and back, and what session files say of the run.
type text struct {
	*prompt.Text
	program   *program.Program
	precision string // of the run
}

// owner returns what session files say of the program and the run.
func (t *text) owner() statefile.Owner {
	return statefile.Owner{File: t.File, Program: statefile.Identify(t.program), Precision: t.precision}
}

// openText is [prompt.Open]; path names a tokenizer.json in the place of the file's.
func openText(p *program.Program, path string, idsOnly bool) (*text, error) {
	t, err := prompt.Open(p, path, idsOnly)
	if err != nil {
		return nil, err
	}
	return &text{Text: t, program: p}, nil
}

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

// given tells which parameters the user has set.
func given(cmd *cobra.Command) prompt.Given {
	return func(names ...string) bool { return anyChanged(cmd, names...) }
}

// setArguments sets the variables of --template-arg. A variable that the template never reads is refused, and
// so are --think and --no-think then.
func (t *text) setArguments(cmd *cobra.Command, args []string) error {
	arguments, err := templateArguments(args)
	if err != nil || t.Template == nil {
		return err
	}
	for _, flag := range []string{"think", "no-think"} {
		if cmd.Flags().Changed(flag) && !t.Template.Reads(prompt.EnableThinking) {
			return usagef("--%s: the chat template of %s does not know of thinking: it has no variable %s", flag,
				t.File, prompt.EnableThinking)
		}
	}
	for _, name := range arguments.Keys() {
		if !t.Template.Reads(name) {
			return usagef("--template-arg %s: the chat template of %s has no such variable", name, t.File)
		}
	}
	t.Template.Arguments = arguments
	return nil
}

// logTo writes notes for people to w, a line each.
func logTo(w io.Writer) func(note string) {
	return func(note string) { logf(w, "etc: %s", note) }
}
