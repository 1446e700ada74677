package execution

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Drafts is the value of --speculate. The zero value asks for no drafts.
type Drafts struct {
	text  string // the value as it was given
	kind  string // auto, off, mtp, assistant or ngram
	most  int
	fixed bool
}

// mostDrafts is the largest number of drafts of a round if the user fixes none. Later drafts are rarely right.
const mostDrafts = 4

// ParseDrafts parses off, auto, mtp, assistant or ngram; all but off may have a number of drafts, as in mtp:1. "" is
// off. The error does not name the flag.
func ParseDrafts(text string) (d Drafts, err error) {
	var count string
	d.text, d.most = text, mostDrafts
	if d.kind, count, d.fixed = strings.Cut(text, ":"); text == "" {
		d.kind = "off"
	}
	known := slices.Contains([]string{"auto", "off", "mtp", "assistant", "ngram"}, d.kind)
	if !known || d.fixed && d.kind == "off" {
		return Drafts{}, fmt.Errorf("%q, want auto, off, mtp, assistant or ngram, the last four with :K too", text)
	}
	if d.fixed {
		if d.most, err = strconv.Atoi(count); err != nil || d.most < 1 || d.most > speculate.MostDrafts {
			return Drafts{}, fmt.Errorf("%q: %q drafts a round, want 1 to %d", text, count, speculate.MostDrafts)
		}
	}
	return d, nil
}

// Asked reports whether drafts are asked for.
func (d Drafts) Asked() bool { return d.kind != "" && d.kind != "off" }

// Drafting says how a program drafts: what [Drafts] asks for, as far as the program can do it.
type Drafting struct {
	batch.Drafting
	// Told, if not nil, is called with notes for the user: that a program runs without drafts, or that drafts are
	// never right.
	Told func(note string)

	path        string
	flag, asked string // the flag, and its value
	automatic   bool   // run without drafts if they cannot be had
}

// In returns how a program drafts. auto selects the draft of the file, or the text (n-grams) if the file has none.
// The error says that the program lacks the draft. flag is the flag that asked, as --speculate; told is
// [Drafting.Told].
func (d Drafts) In(path string, p *program.Program, flag string, told func(note string)) (Drafting, error) {
	if !d.Asked() {
		return Drafting{}, nil
	}
	out := Drafting{Drafting: batch.Drafting{Most: d.most, Fixed: d.fixed}, path: path, flag: flag, asked: d.text,
		automatic: d.kind == "auto", Told: told}
	own, err := DraftOf(p)
	switch {
	case err != nil:
		return out, err
	case d.kind == "ngram":
	case d.kind == "auto" || speculate.Kind(d.kind) == own:
		out.Kind = own
	default:
		return out, kind.Usagef("%s %s: %s has no such draft; etc export --draft writes one, and "+
			"ngram needs none", flag,
			d.kind, path)
	}
	return out, nil
}

// On returns the drafting of an executor. One that runs one sequence at a time cannot verify drafts: then auto turns
// drafting off, and the others give an error.
func (d Drafting) On(x batch.Executor) (batch.Drafting, error) {
	l := x.Limits()
	if d.Most == 0 || !l.OneByOne {
		return d.Drafting, nil
	}
	why := "without drafts: one sequence runs at a time, since " + l.Why
	if !d.automatic {
		return batch.Drafting{}, kind.Usagef("%s: %s %s: %s", d.path, d.flag, d.asked, why)
	}
	d.tell("%s: %s auto: %s", d.path, d.flag, why)
	return batch.Drafting{}, nil
}

// Suspect implements [batch.Options.Suspect].
func (d Drafting) Suspect(t speculate.Totals) {
	d.tell("%s: %d of %d drafts were right; the draft may belong to another model", d.path, t.Accepted, t.Drafted)
}

func (d Drafting) tell(format string, args ...any) {
	if d.Told != nil {
		d.Told(fmt.Sprintf(format, args...))
	}
}

// DraftOf returns the kind of draft that a program has, or [speculate.None].
func DraftOf(p *program.Program) (speculate.Kind, error) {
	if !slices.Contains(p.Methods(), speculate.Method) {
		return speculate.None, nil
	}
	m, err := p.Module(speculate.Method)
	if err != nil {
		return speculate.None, err
	}
	return speculate.KindOf(m.Entry), nil
}

// ModuleWith reads a program, with its method that drafts if there is a draft.
func ModuleWith(p *program.Program, draft speculate.Kind) (*ir.Module, error) {
	if draft == speculate.None {
		return p.Module("forward")
	}
	return p.Whole("forward")
}
