package command

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
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
			"the text: `auto|off|mtp|assistant|ngram[:K]`, the file's draft or what stood in the text before; with :K as many in "+
			"every round, else as many as are worth it")
}

// asked reports whether drafts are asked for.
func (f *speculateFlags) asked() bool { return f.speculate != "off" }

// automatic reports whether drafts are left away where they cannot be had.
func (f *speculateFlags) automatic() bool { return strings.HasPrefix(f.speculate, "auto") }

// drafting is what --speculate asks for.
type drafting struct{ session.Drafting }

// choose chooses the draft: auto is that of the file or, where it has none, the text.
func (d *drafting) choose(kind, path string, p *program.Program) error {
	own, err := draftOf(p)
	if err != nil {
		return err
	}
	switch {
	case kind == "auto":
		d.Kind = own
	case d.Kind != speculate.None && d.Kind != own:
		return usagef("--speculate %s: %s has no such draft; etc export --draft writes one, and ngram needs none",
			kind, path)
	}
	return nil
}

// batched is what --speculate asks for in calls of many sequences.
func (f *speculateFlags) batched(path string, p *program.Program) (batch.Drafting, error) {
	kind, d, err := f.drafting()
	if err != nil || kind == "off" {
		return batch.Drafting{}, err
	}
	err = d.choose(kind, path, p)
	return batch.Drafting{Kind: d.Kind, Most: d.Most, Fixed: d.Fixed}, err
}

// moduleWith reads a program, with its draft where that is to draft.
func moduleWith(p *program.Program, kind speculate.Kind) (*ir.Module, error) {
	if kind == speculate.None {
		return p.Module("forward")
	}
	return p.Whole("forward")
}

// mostDrafts is the most drafts of a round where their number is not fixed. More are rarely right.
const mostDrafts = 4

// drafting reads --speculate.
func (f *speculateFlags) drafting() (kind string, d drafting, err error) {
	kind, count, fixed := strings.Cut(f.speculate, ":")
	known := slices.Contains([]string{"auto", "off", "mtp", "assistant", "ngram"}, kind)
	if !known || fixed && kind == "off" {
		return "", d, usagef("--speculate %q, want auto, off, mtp, assistant or ngram, the last four with :K too",
			f.speculate)
	}
	d = drafting{session.Drafting{Most: mostDrafts, Fixed: fixed}}
	if fixed {
		if d.Most, err = strconv.Atoi(count); err != nil || d.Most < 1 || d.Most > speculate.MostDrafts {
			return "", d, usagef("--speculate %q: %q drafts a round, want 1 to %d", f.speculate,
				count, speculate.MostDrafts)
		}
	}
	if kind == "mtp" || kind == "assistant" {
		d.Kind = speculate.Kind(kind)
	}
	return kind, d, nil
}

// draftLogTo is where --draft-log writes.
func (f *runFlags) draftLogTo(cmd *cobra.Command) destination {
	inputs := append([]string{f.promptFile, f.tokenizer, f.template}, cmd.Flags().Args()...)
	return destination{path: f.draftLog, kind: outfile.JSON, inputs: inputs}
}

// loadDrafting compiles a program that drafts, or gives nil where none does.
func (f *runFlags) loadDrafting(
	cmd *cobra.Command, args []string, p *program.Program, e engine.Engine, o engine.Options, s session.Sampling,
) (*session.Model, error) {
	return f.compile(cmd, args[0], p, e, o)
}

// inSharedCalls reports whether one prompt is answered as a sequence of calls that many may share: for --deterministic,
// and with drafts on a GPU, where they stay on the device so.
func (f *runFlags) inSharedCalls(
	cmd *cobra.Command, args []string, e engine.Engine, o engine.Options, s session.Sampling,
) (bool, error) {
	if !f.asked() {
		if f.draftLog != "" {
			return false, usagef("--draft-log goes with --speculate")
		}
		return f.model.deterministic, nil
	}
	if what := f.undrafted(cmd, args, s); what != "" {
		return false, usagef("--speculate with %s, which goes without drafts", what)
	}
	if f.model.deterministic {
		return true, nil
	}
	e, err := chosen(e, o.Precision)
	return err == nil && !isHostEngine(e), err
}

// isHostEngine reports whether an engine runs on the host, whose sessions draft by themselves.
func isHostEngine(e engine.Engine) bool { return e.Name() == "cpu" || e.Name() == "reference" }

// compile compiles a program that drafts as --speculate asks, or gives nil where none does.
func (f *speculateFlags) compile(
	cmd *cobra.Command, path string, p *program.Program, e engine.Engine, o engine.Options,
) (*session.Model, error) {
	kind, d, err := f.drafting()
	if err != nil || kind == "off" {
		return nil, err
	}
	if _, s := storageOf(e); s != (ragged.Storage{}) {
		return nil, usagef("--speculate with --kv-cache or --state: drafts go back to states that the program declares")
	}
	if err := d.choose(kind, path, p); err != nil {
		return nil, err
	}
	if e, err = chosen(e, o.Precision); err != nil {
		return nil, loadError(path, err)
	}
	// Drafts of a session come and go through the host: on devices where that costs more than a token does, they would
	// lose.
	if !isHostEngine(e) {
		logf(cmd.ErrOrStderr(), "etc: --speculate: device %s runs without drafts here; cpu and reference have them",
			e.Name())
		return nil, nil
	}
	model, err := session.LoadDrafting(p.Module, e, o, d.Drafting)
	if err != nil && kind == "auto" {
		logf(cmd.ErrOrStderr(), "etc: --speculate auto: without drafts: %v", err)
		return nil, nil
	}
	if err != nil {
		return nil, loadError(path, err)
	}
	return model, nil
}

// undrafted names what was asked for that drafts do not go with.
func (f *runFlags) undrafted(cmd *cobra.Command, args []string, s session.Sampling) string {
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
	return s.NeedsRuntime()
}

// draftOf is the kind of a program's draft.
func draftOf(p *program.Program) (speculate.Kind, error) {
	if !slices.Contains(p.Methods(), speculate.Method) {
		return speculate.None, nil
	}
	m, err := p.Module(speculate.Method)
	if err != nil {
		return speculate.None, err
	}
	return speculate.KindOf(m.Entry), nil
}

// leastAcceptance is the part of the drafts below which there is something wrong with a draft, where suspectDrafts were
// verified: what a draft of the model gives is right more often in any text.
const leastAcceptance, suspectDrafts = 0.02, 60

// logDrafts writes the log of drafts, and warns of drafts that are never right.
func (f *runFlags) logDrafts(cmd *cobra.Command, a session.Answer) error {
	d := a.Drafts
	if kind, _, _ := f.drafting(); kind != "ngram" && d.Drafted >= suspectDrafts && d.Acceptance() < leastAcceptance {
		logf(cmd.ErrOrStderr(), "etc: %d of %d drafts were right; the draft may belong to another model", d.Accepted,
			d.Drafted)
	}
	if f.draftLog == "" {
		return nil
	}
	return f.draftLogTo(cmd).write(cmd, func(w io.Writer) error { return a.Rounds.Write(w) })
}
