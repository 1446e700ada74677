package command

import (
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc"
)

// constraintFlags hold an answer to a form.
type constraintFlags struct {
	jsonSchema, grammar, regex string
}

// constraintNames are the flags that restrict the form of an answer. Only one of them may be given.
var constraintNames = []string{"json-schema", "grammar", "regex"}

// maxConstraint bounds the file of a constraint, in bytes.
const maxConstraint = 1 << 20

func (f *constraintFlags) addConstraints(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.jsonSchema, "json-schema", "",
		"`FILE` with a JSON schema (draft 2020-12) that the answer is held to; docs/constraints.md says "+
			"what it may use")
	fl.StringVar(&f.grammar, "grammar", "",
		"`FILE` with a grammar in llama.cpp's notation (GBNF) that the answer is held to")
	fl.StringVar(&f.regex, "regex", "", "`PATTERN` in RE2's syntax that the whole answer matches")
}

// constrain sets what the answer is held to.
func (f *constraintFlags) constrain(cmd *cobra.Command, p *etc.Parameters) error {
	given := ""
	for _, x := range []struct {
		flag, value string
		to          *string
	}{{"json-schema", f.jsonSchema, &p.JSONSchema}, {"grammar", f.grammar, &p.Grammar}, {"regex", f.regex, &p.Regex}} {
		if !cmd.Flags().Changed(x.flag) {
			continue
		}
		if given != "" {
			return usagef("--%s with --%s: give one of them", given, x.flag)
		}
		given, *x.to = x.flag, x.value
		if x.flag != "regex" {
			b, err := readAtMost(nil, x.value, maxConstraint)
			if err != nil {
				return err
			}
			*x.to = string(b)
		}
		if *x.to == "" { // the library takes it for none; this says the same in more characters
			*x.to = map[string]string{"regex": "(?:)", "json-schema": " ", "grammar": " "}[x.flag]
		}
	}
	return nil
}
