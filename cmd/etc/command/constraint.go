package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
	"github.com/etc-ml/etc/runtime/guide"
	"github.com/etc-ml/etc/runtime/session"
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

// constraint gives what the answer is held to, and the flag that says so; "" for nothing.
func (f *constraintFlags) constraint(cmd *cobra.Command) (src constrain.Source, flag string, err error) {
	for _, x := range []struct {
		flag, value string
		kind        constrain.Kind
	}{{"json-schema", f.jsonSchema, constrain.JSONSchema}, {"grammar", f.grammar, constrain.GBNF},
		{"regex", f.regex, constrain.Regex}} {
		if !cmd.Flags().Changed(x.flag) {
			continue
		}
		if flag != "" {
			return src, "", usagef("--%s with --%s: give one of them", flag, x.flag)
		}
		flag, src = x.flag, constrain.Source{Kind: x.kind, Text: x.value}
	}
	if flag == "json-schema" || flag == "grammar" {
		b, err := readAtMost(nil, src.Text, maxConstraint)
		if err != nil {
			return src, "", err
		}
		src.Text = string(b)
	}
	return src, flag, nil
}

// held holds one answer to a form.
type held struct {
	model   *guide.Model
	grammar *constrain.Grammar
	guide   *guide.Guide
	mask    []uint64
	err     error // of the last token
}

// hold compiles what the answer is held to and makes the request ask for it; nil where there is nothing.
func (f *runFlags) hold(cmd *cobra.Command, t *text, m *ir.Module, r *session.Request) (*held, error) {
	src, flag, err := f.constraint(cmd)
	if err != nil || flag == "" {
		return nil, err
	}
	switch {
	case t.Tokenizer == nil:
		return nil, usagef("--%s: %s holds no tokenizer, so its tokens have no text: give --tokenizer FILE", flag,
			t.File)
	case len(t.Stop) == 0:
		return nil, usagef("--%s: %s has no stop token, by which an answer that is whole could end", flag, t.File)
	}
	d, err := session.Describe(m)
	if err != nil {
		return nil, invalidError{fmt.Errorf("%s: %w", t.File, err)}
	}
	source := ""
	if t.Template != nil {
		source = t.Template.Source
	}
	h := &held{model: guide.NewModel(t.Tokenizer, format.Find(t.Tokenizer, source), t.Stop, d.Vocab)}
	if h.grammar, err = h.model.Compile(src); err != nil {
		if flag == "regex" {
			return nil, usagef("--regex: %w", err)
		}
		return nil, invalidError{fmt.Errorf("--%s %s: %w", flag,
			map[string]string{"json-schema": f.jsonSchema, "grammar": f.grammar}[flag], err)}
	}
	r.Sampling.Mask, r.Step = h.allow, h.accept
	return h, nil
}

// begin begins the answer to a prompt whose end the chat template wrote for it; nil without a template.
func (h *held) begin(t *text, end []int) error {
	thinks := t.Template != nil && t.Template.Reads(prompt.EnableThinking) && (t.Think == nil || *t.Think)
	var err error
	h.guide, err = h.model.New(guide.Options{Text: h.grammar, Parse: end != nil, Prompt: end, Thinks: thinks})
	if err != nil {
		return fmt.Errorf("%s: the tokenizer: %w", t.File, err)
	}
	h.mask = make([]uint64, h.guide.MaskWords())
	return nil
}

// allow is session.Sampling.Mask.
func (h *held) allow(mask []uint64) (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	if !h.guide.Mask(h.mask) {
		return false, nil
	}
	any := false
	for _, w := range h.mask {
		any = any || w != 0
	}
	if !any {
		return false, fmt.Errorf("the vocabulary has no token with which the constraint goes on")
	}
	copy(mask, h.mask)
	return true, nil
}

// accept is session.Request.Step.
func (h *held) accept(s session.Step) {
	if h.err == nil {
		h.err = h.guide.Accept(s.Token)
	}
}
