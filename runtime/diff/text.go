package diff

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
)

// Most lines that the text shows of one graph, and most weights, unless all are asked for.
const (
	graphShown   = 60
	weightsShown = 30
)

// Limit cuts the graphs of a report to as many lines as the text shows. The counts stay.
func (r *Report) Limit() {
	for i := range r.Methods {
		r.Methods[i].Diff = r.Methods[i].Diff[:min(len(r.Methods[i].Diff), graphShown)]
	}
}

// WriteText writes the differences for people; full shows all lines and weights. Equal files give nothing.
func (r *Report) WriteText(w io.Writer, full bool) error {
	if r.Equal {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s, %s\n+++ %s, %s\n", r.A.File, humanize.IBytes(uint64(r.A.Size)), r.B.File,
		humanize.IBytes(uint64(r.B.Size)))
	for _, c := range r.ConstantMethods {
		fmt.Fprintf(&b, "constant method %s: %s -> %s\n", c.Name, constantText(c.A), constantText(c.B))
	}
	for _, m := range r.Metadata {
		b.WriteString("metadata " + m.text() + "\n")
	}
	for _, m := range r.Methods {
		m.write(&b, full)
	}
	if len(r.Weights) > 0 {
		r.writeWeights(&b, full)
	}
	b.WriteString(r.Counts.text() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// constantText writes the values of a constant method, nil where there is none.
func constantText(values []any) string {
	if values == nil {
		return "none"
	}
	return strings.TrimSuffix(fmt.Sprintln(values...), "\n")
}

func (m Metadata) text() string {
	a, b := humanize.IBytes(uint64(m.SizeA)), humanize.IBytes(uint64(m.SizeB))
	switch {
	case m.Change == Added:
		return fmt.Sprintf("%s: added, %s", m.Key, b)
	case m.Change == Removed:
		return fmt.Sprintf("%s: removed, %s", m.Key, a)
	case len(m.Keys) > 0:
		return fmt.Sprintf("%s: changed in %s", m.Key, strings.Join(m.Keys, ", "))
	}
	return fmt.Sprintf("%s: changed, %s -> %s", m.Key, a, b)
}

func (m *Method) write(b *strings.Builder, full bool) {
	if m.Change != Changed {
		fmt.Fprintf(b, "method %s: %s\n", m.Name, m.Change)
		return
	}
	for _, x := range []struct {
		what string
		a, b []string
	}{{"inputs", m.InputsA, m.InputsB}, {"outputs", m.OutputsA, m.OutputsB}} {
		if x.a != nil || x.b != nil {
			fmt.Fprintf(b, "method %s: %s (%s) -> (%s)\n", m.Name, x.what, strings.Join(x.a, ", "),
				strings.Join(x.b, ", "))
		}
	}
	if m.Problem != "" {
		fmt.Fprintf(b, "method %s: the graphs cannot be compared: %s\n", m.Name, m.Problem)
	}
	if len(m.Diff) == 0 {
		return
	}
	fmt.Fprintf(b, "method %s: graph, %d lines added, %d removed\n", m.Name, m.Added, m.Removed)
	for i, line := range m.Diff {
		if i == graphShown && !full {
			fmt.Fprintf(b, "… %d more lines, which --full shows\n", len(m.Diff)-i)
			break
		}
		b.WriteString(line + "\n")
	}
}

func (r *Report) writeWeights(b *strings.Builder, full bool) {
	for _, s := range []FileSummary{r.A, r.B} {
		var parts []string
		for _, x := range s.Storage {
			noun := "tensors"
			if x.Tensors == 1 {
				noun = "tensor"
			}
			parts = append(parts, fmt.Sprintf("%s of %d %s", x.Format, x.Tensors, noun))
		}
		fmt.Fprintf(b, "weights of %s: %s, %.2f bits per weight: %s\n", s.File, humanize.IBytes(uint64(s.WeightSize)),
			s.BitsPerWeight, strings.Join(parts, ", "))
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WEIGHT\tCHANGE\tA\tB\tRELATIVE RMS")
	for i, w := range r.Weights {
		if i == weightsShown && !full {
			fmt.Fprintf(t, "… %d more weights, which --full shows\n", len(r.Weights)-i)
			break
		}
		rms := "-"
		if w.RelativeRMS != nil {
			rms = fmt.Sprintf("%.3g", *w.RelativeRMS)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", w.Name, w.Change, w.A.text(), w.B.text(), rms)
	}
	t.Flush() // a strings.Builder does not refuse writes
}

func (f *Form) text() string {
	if f == nil {
		return "-"
	}
	return f.Format + strings.ReplaceAll(fmt.Sprint(f.Shape), " ", ",")
}

// text sums up the differences in one line.
func (c Counts) text() string {
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{
		{c.Methods, "methods"}, {c.ConstantMethods, "constant methods"}, {c.Metadata, "pieces of metadata"},
		{c.WeightsRetyped, "weights retyped"}, {c.WeightsChanged, "weights changed"},
		{c.WeightsAdded, "weights added"}, {c.WeightsRemoved, "weights removed"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return fmt.Sprintf("differences: %s; %d weights equal", strings.Join(parts, ", "), c.WeightsEqual)
}
