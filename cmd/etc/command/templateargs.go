package command

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/template"
)

// reservedArguments are the variables that a template gets from the conversation and other flags.
var reservedArguments = map[string]string{
	"messages": "the conversation", "add_generation_prompt": "whether an answer is asked for",
	prompt.EnableThinking: "--think or --no-think",
}

// templateArguments reads --template-arg NAME=JSON.
func templateArguments(args []string) (map[string]json.RawMessage, error) {
	d := map[string]json.RawMessage{}
	for _, a := range args {
		name, text, ok := strings.Cut(a, "=")
		if !ok || !isIdentifier(name) {
			return nil, usagef("--template-arg %q: want NAME=JSON with the name of a variable", a)
		}
		if by, reserved := reservedArguments[name]; reserved {
			return nil, usagef("--template-arg %s: this variable is set by %s", name, by)
		}
		if _, twice := d[name]; twice {
			return nil, usagef("--template-arg %s is given twice", name)
		}
		if _, err := template.ParseJSON([]byte(text)); err != nil {
			return nil, usagef("--template-arg %s: %w; the value is JSON, so a text is written as \"text\"", name, err)
		}
		d[name] = json.RawMessage(text)
	}
	return d, nil
}

// isIdentifier reports whether a template can name a variable so.
func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != ""
}
