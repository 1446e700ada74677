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

// libraryNames are the names of options and parameters in messages of the library, each before the flag that stands for
// it. Of two that begin alike the longer one comes first.
var libraryNames = []string{
	": set Options.Tokenizer", ": give --tokenizer FILE",
	"Options.Sampler", "--sampler",
	"Options.Speculate is", "--speculate",
	"Options.Speculate", "--speculate",
	"Parameters.TopK", "--top-k",
	"Parameters.TopP", "--top-p",
	"Parameters.Seed", "--seed",
	"Parameters.Bias", "--logit-bias",
	"Parameters.Logits", "--logits",
	"Parameters.Logprobs", "--logprobs",
	"Parameters.Stop", "--stop",
	"Parameters.JSONSchema", "--json-schema",
	"Parameters.Grammar", "--grammar",
	"Parameters.Regex does not compile", "--regex",
	"Parameters.Regex", "--regex",
	"Parameters.Variables", "--template-arg",
	"Parameters.Think", "--think",
	"Parameters: ", "",
}

var flagNames = strings.NewReplacer(libraryNames...)

// namedError is an error of the library in which flags have their names.
type namedError struct {
	error
	text string
}

func (e namedError) Error() string { return e.text }
func (e namedError) Unwrap() error { return e.error }

// withFlagNames returns an error of the library with the names of flags. The library knows constraints by their text:
// what is wrong with one is wrong with the file that a flag names.
func (f *runFlags) withFlagNames(cmd *cobra.Command, err error) error {
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
	return namedError{err, flagNames.Replace(text)}
}
