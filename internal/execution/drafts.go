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

// Drafts is what is asked for of drafts, in the words of --speculate. The zero value asks for none.
type Drafts struct {
	text  string // as it was given
	kind  string // auto, off, mtp, assistant or ngram
	most  int
	fixed bool
}

// mostDrafts is the most drafts of a round where their number is not fixed. More are rarely right.
const mostDrafts = 4

// ParseDrafts reads off, or auto, mtp, assistant or ngram with :K behind it or not; "" is off. The error does not say
// where the text stood.
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

// Drafting is what a program drafts.
type Drafting struct {
	batch.Drafting
	// Told is told what people should know: that a program goes without drafts, or that drafts are never right; nil for
	// nobody.
	Told func(note string)

	path        string
	flag, asked string // what asked for it, and in which words
	automatic   bool   // drafts are left away where they cannot be had
}

// In is what a program is to draft: auto is the draft of the file or, where it has none, the text. It is an error where
// the program has not the draft that is asked for. flag is what asked, as --speculate; told is [Drafting.Told].
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

// On is what an executor drafts of it: all, or nothing where the executor runs one sequence at a time, which cannot
// verify drafts. That is an error unless auto asked.
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

// Suspect is [batch.Options.Suspect].
func (d Drafting) Suspect(t speculate.Totals) {
	d.tell("%s: %d of %d drafts were right; the draft may belong to another model", d.path, t.Accepted, t.Drafted)
}

func (d Drafting) tell(format string, args ...any) {
	if d.Told != nil {
		d.Told(fmt.Sprintf(format, args...))
	}
}

// DraftOf is the kind of a program's draft, [speculate.None] where it has none.
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

// ModuleWith reads a program, with its draft where that is to draft.
func ModuleWith(p *program.Program, draft speculate.Kind) (*ir.Module, error) {
	if draft == speculate.None {
		return p.Module("forward")
	}
	return p.Whole("forward")
}
