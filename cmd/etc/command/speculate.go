package command

import (
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
)

// speculateFlags choose what drafts tokens.
type speculateFlags struct {
	speculate, draftLog string
}

func (f *speculateFlags) addSpeculate(cmd *cobra.Command) {
	f.addKind(cmd)
	cmd.Flags().StringVar(&f.draftLog, "draft-log", "", "file to write the rounds of drafts to, as JSON")
}

// addKind adds --speculate alone.
func (f *speculateFlags) addKind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.speculate, "speculate", "off",
		"draft tokens and verify several in one call, which never changes "+
			"the text: `auto|off|mtp|assistant|ngram[:K]`, the file's draft or what stood in the text before; with "+
			":K as many in "+
			"every round, else as many as are worth it")
}

// asked reports whether drafts are asked for.
func (f *speculateFlags) asked() bool { return f.speculate != "off" }

// in is what --speculate asks for of a program.
func (f *speculateFlags) in(cmd *cobra.Command, path string, p *program.Program) (execution.Drafting, error) {
	d, err := execution.ParseDrafts(f.speculate)
	if err != nil {
		return execution.Drafting{}, usagef("--speculate %w", err)
	}
	return d.In(path, p, "--speculate", logTo(cmd.ErrOrStderr()))
}

// openAnswerer compiles a program for one sequence, as etc serve does for many, with the drafts that --speculate asks
// for.
func (f *speculateFlags) openAnswerer(cmd *cobra.Command, path string, p *program.Program, e engine.Engine,
	o engine.Options) (*execution.Answerer, error) {
	d, err := f.in(cmd, path, p)
	if err != nil {
		return nil, err
	}
	m, err := execution.ModuleWith(p, d.Kind)
	if err != nil {
		return nil, err
	}
	if e, err = chosen(e, o.Precision); err != nil {
		return nil, loadError(path, err)
	}
	return execution.OpenAnswerer(path, m, e, o, d)
}

// draftLogTo is where --draft-log writes.
func (f *runFlags) draftLogTo(cmd *cobra.Command) destination {
	inputs := append([]string{f.promptFile, f.tokenizer, f.template}, cmd.Flags().Args()...)
	return destination{path: f.draftLog, kind: outfile.JSON, inputs: inputs}
}

// inSharedCalls reports whether one prompt is answered as a sequence of calls that many may share: for --deterministic,
// and with drafts, which such calls verify.
func (f *runFlags) inSharedCalls(cmd *cobra.Command, args []string) (bool, error) {
	if !f.asked() {
		if f.draftLog != "" {
			return false, usagef("--draft-log goes with --speculate")
		}
		return f.model.deterministic, nil
	}
	if what := f.undrafted(cmd, args); what != "" {
		return false, usagef("--speculate with %s, which goes without drafts", what)
	}
	return true, nil
}

// undrafted names what was asked for that drafts do not go with.
func (f *runFlags) undrafted(cmd *cobra.Command, args []string) string {
	for _, flag := range append([]string{"logits", "force-tokens", "session"}, constraintNames...) {
		if cmd.Flags().Changed(flag) {
			return "--" + flag
		}
	}
	if f.keepsChat(cmd, args) {
		return "a chat"
	}
	if f.sampler == "file" && cmd.Flags().Changed("sampler") {
		return "--sampler file"
	}
	return ""
}

// logDrafts writes the log of drafts.
func (f *runFlags) logDrafts(cmd *cobra.Command, e *etc.End) error {
	if f.draftLog == "" {
		return nil
	}
	return f.draftLogTo(cmd).write(cmd, e.WriteDraftLog)
}
