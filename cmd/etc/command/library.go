package command

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/runtime/engine"
)

// library returns the flags as options of the library. o are those that runner has made of the same flags.
func (f modelFlags) library(o engine.Options) etc.Options {
	return etc.Options{Device: f.device, Precision: f.precision, Threads: f.threads, Exact: f.exact, NoTune: f.noTune,
		Deterministic: f.deterministic, KVCache: f.storage.caches, State: f.storage.state,
		DisablePasses: f.disablePasses, VerifyIR: f.verifyIR, Observe: o.Observe,
		Warn: func(text string) { logf(os.Stderr, "etc: %s", flagNames.Replace(text)) }}
}

// flagNames puts the names of flags in the place of those of the library's options and parameters, in what is printed.
// Of two that begin alike the longer one comes first.
var flagNames = strings.NewReplacer(
	": set Options.Tokenizer, or go by token ids", ": give --tokenizer FILE, or token ids with --tokens",
	": set Options.Tokenizer", ": give --tokenizer FILE",
	": set Options.ChatTemplate, or use the prompt as it is",
	": give --chat-template FILE, or --raw to use the prompt as it is",
	"Options.KVCache", "--kv-cache",
	"Options.Precision", "--precision",
	"Options.Sampler", "--sampler",
	"Options.Speculate is", "--speculate",
	"Options.Speculate", "--speculate",
	"Options.State", "--state",
	"Parameters.Bias", "--logit-bias",
	"Parameters.Grammar", "--grammar",
	"Parameters.JSONSchema", "--json-schema",
	"Parameters.Logits", "--logits",
	"Parameters.Logprobs", "--logprobs",
	"Parameters.Regex does not compile", "--regex",
	"Parameters.Regex", "--regex",
	"Parameters.Seed", "--seed",
	"Parameters.Stop", "--stop",
	"Parameters.Think", "--think",
	"Parameters.TopK", "--top-k",
	"Parameters.TopP", "--top-p",
	"Parameters.Variables", "--template-arg",
	"Parameters: ", "",
)

// namedError is an error of the library in which what the library knows by its content has the name that flags give it.
type namedError struct {
	error
	text string
}

func (e namedError) Error() string { return e.text }
func (e namedError) Unwrap() error { return e.error }

// withFlags returns an error of the library with what only these flags know. The library has constraints as text: what
// is wrong with one is wrong with the file that a flag names.
func (f *runFlags) withFlags(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for name, flag := range map[string]string{"JSONSchema": "--json-schema " + f.jsonSchema,
		"Grammar": "--grammar " + f.grammar} {
		if rest, ok := strings.CutPrefix(text, "Parameters."+name+" does not compile"); ok {
			return invalidError{errors.New(flag + rest)}
		}
	}
	if cmd.Flags().Changed("no-think") {
		text = strings.ReplaceAll(text, "Parameters.Think", "--no-think")
	}
	return namedError{err, text}
}
