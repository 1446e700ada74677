package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/template"
)

// Bounds on what commands read, in bytes.
const (
	maxTemplateFile = 64 << 20
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
	t, err := etc.LoadChatTemplate(path, f.name)
	if err != nil {
		return err
	}
	variables, err := readAtMost(cmd.InOrStdin(), f.context, maxContextFile)
	if err != nil {
		return err
	}
	text, err := t.RenderJSON(variables, now())
	if errors.Is(err, etc.ErrInvalid) {
		err = fmt.Errorf("%s: %w", f.context, err)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), visible(cmd.OutOrStdout(), text))
	return err
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
