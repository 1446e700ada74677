package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/template"
)

// Bounds on what the command reads, in bytes.
const (
	maxTemplateFile = 64 << 20 // a tokenizer_config.json lists all special tokens
	maxContextFile  = 256 << 20
)

type templateFlags struct{ context, now, name string }

func newTemplate() *cobra.Command {
	var f templateFlags
	cmd := &cobra.Command{
		Use:   "template FILE.pte|tokenizer_config.json|chat_template.jinja",
		Short: "Print the prompt that a chat template makes of a conversation",
		Long: `template renders a chat template and prints the prompt, and nothing else.

--context names a JSON object with the template's variables: messages, add_generation_prompt, tools and so on;
- is standard input. The special tokens of a .pte or a tokenizer_config.json, such as bos_token, are variables
too where the context has none of the name.

A template that asks for the time gets --now, else the seconds of SOURCE_DATE_EPOCH in UTC, else the time.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runTemplate(cmd, args[0], f) },
	}
	cmd.Flags().StringVar(&f.context, "context", "", "JSON file with the variables")
	cmd.Flags().StringVar(&f.now, "now", "", "time for the template, as 2006-01-02T15:04:05Z")
	cmd.Flags().StringVar(&f.name, "name", template.DefaultTemplate,
		"which template of a tokenizer_config.json that has several")
	return cmd
}

func runTemplate(cmd *cobra.Command, path string, f templateFlags) error {
	if f.context == "" {
		return usagef("template: --context FILE is missing: it names the JSON object with the template's variables")
	}
	now, err := templateClock(f.now)
	if err != nil {
		return err
	}
	t, tokens, err := openTemplateFile(path, f.name)
	if err != nil {
		return err
	}
	ctx, err := readContext(cmd.InOrStdin(), f.context)
	if err != nil {
		return err
	}
	text, err := t.Render(mergeTokens(ctx, tokens), template.Options{Now: now})
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), visible(cmd.OutOrStdout(), text))
	return err
}

// mergeTokens adds the special tokens that a context does not have.
func mergeTokens(ctx, tokens *template.Dict) *template.Dict {
	if tokens == nil {
		return ctx
	}
	ctx = ctx.Clone()
	for _, name := range tokens.Keys() {
		if _, ok := ctx.Get(name); !ok {
			v, _ := tokens.Get(name)
			ctx.Set(name, v)
		}
	}
	return ctx
}

// templateClock returns the time for a template: a flag, SOURCE_DATE_EPOCH, or the clock.
func templateClock(flag string) (func() time.Time, error) {
	if flag != "" {
		t, err := time.Parse(time.RFC3339, flag)
		if err != nil {
			return nil, usagef("--now %q is not a time as 2006-01-02T15:04:05Z", flag)
		}
		return func() time.Time { return t }, nil
	}
	return prompt.Clock()
}

// readContext reads the variables of a template.
func readContext(stdin io.Reader, path string) (*template.Dict, error) {
	data, err := readAtMost(stdin, path, maxContextFile)
	if err != nil {
		return nil, err
	}
	v, err := template.ParseJSON(data)
	if err != nil {
		return nil, invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	ctx, ok := v.(*template.Dict)
	if !ok {
		return nil, invalidError{fmt.Errorf("%s: a context is a JSON object, found a value of type %s", path,
			v.TypeName())}
	}
	return ctx, nil
}

// readAtMost reads a file, or stdin for "-", that has no more than limit bytes.
func readAtMost(stdin io.Reader, path string, limit int64) ([]byte, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = invalidError{fmt.Errorf("%s has more than %d bytes", path, limit)}
	}
	return data, err
}

// openTemplateFile reads the chat template of a .pte, of a tokenizer_config.json or of a file that is one, and
// the special tokens that come with it.
func openTemplateFile(path, name string) (*template.Template, *template.Dict, error) {
	switch filepath.Ext(path) {
	case ".pte":
		f, err := container.Open(path)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		t, err := prompt.TemplateOf(f)
		if err == nil && t.Parsed == nil {
			err = errors.New("it holds no chat template")
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		return t.Parsed, t.Tokens, nil
	case ".json":
		data, err := readAtMost(nil, path, maxTemplateFile)
		if err != nil {
			return nil, nil, err
		}
		c, err := template.ParseConfig(path, data)
		if err != nil {
			return nil, nil, invalidError{err}
		}
		source, ok := c.Template(name)
		if !ok {
			return nil, nil, fmt.Errorf("%s: there is no chat template %q", path, name)
		}
		t, err := prompt.ParseTemplate(path, source)
		return t, c.Tokens, err
	}
	data, err := readAtMost(nil, path, maxTemplateFile)
	if err != nil {
		return nil, nil, err
	}
	t, err := prompt.ParseTemplate(path, string(data))
	return t, nil, err
}
