package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/runtime/speculate"
)

// Most entries that the summary lists before it counts the rest.
const (
	topNodes = 8
	topShown = 6
)

// WriteText writes a summary for people, on about one screen.
func (r *Report) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s, %s\n", r.File, humanize.IBytes(uint64(r.Size))); err != nil {
		return err
	}
	t := &lines{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.add("program", "%s", humanize.IBytes(uint64(r.ProgramSize)))
	if r.Segments > 0 {
		t.add("segments", "%d from offset %d, %s", r.Segments, r.SegmentBase, humanize.IBytes(uint64(r.SegmentSize)))
	}
	for _, m := range r.Methods {
		m.write(t)
	}
	if s := r.Shared; s != nil {
		t.add("shared", "%s, %s, stored once", plural(s.Weights, "weight"), humanize.IBytes(uint64(s.WeightSize)))
		t.list("", s.Buffers)
	}
	if len(r.Constants) > 0 {
		t.add("constants", "%s", strings.Join(constantsText(r.Constants), ", "))
	}
	var names []string
	for _, n := range r.Metadata {
		names = append(names, fmt.Sprintf("%s %s", n.Key, humanize.IBytes(uint64(n.Size))))
	}
	t.list("metadata", names)
	return t.flush()
}

func (m *Method) write(t *lines) {
	t.add("method", "%s(%s) -> %s", m.Name, valuesText(m.Inputs), valuesText(m.Outputs))
	switch {
	case m.Problem != "":
		t.add("  cannot run", "%s", m.Problem)
	case m.ModelProblem != "":
		t.add("  form", "not that of a language model: %s", m.ModelProblem)
	case m.Draft == speculate.MultiToken:
		t.add("  form", "draft of the next tokens (mtp) with a cache of its own")
	case m.Draft == speculate.Assistant:
		t.add("  form", "draft of the next tokens (assistant) that reads caches of forward")
	case m.Model == nil:
		t.add("  form", "not that of a language model; run it with etc exec")
	default:
		t.add("  form", "%s", m.Model.text())
	}
	if m.Graph != nil {
		m.Graph.write(t)
	}
}

func (m *Model) text() string {
	form := map[string]string{
		"logits":          "language model that gives logits",
		"sampler":         "language model with a sampling head",
		"authors-sampler": "language model with its authors' sampler",
	}[m.Form]
	out := fmt.Sprintf("%s; context %d, vocabulary %d, prefill in chunks of %d", form, m.MaxSeqLen, m.Vocab, m.MaxChunk)
	if m.DeclaredChunk > m.MaxChunk {
		out += fmt.Sprintf(" (the file declares %d)", m.DeclaredChunk)
	}
	return out
}

func (g *Graph) write(t *lines) {
	t.add("  graph", "%s in %s, %d temporaries, %d registers", plural(g.Nodes, "node"),
		plural(g.Chains, "chain"), g.Temps, g.Registers)
	nodes := make([]string, len(g.NodeCounts))
	for i, c := range g.NodeCounts {
		nodes[i] = fmt.Sprintf("%s %d", strings.TrimSuffix(c.Node, "Node"), c.Count)
	}
	t.top("  nodes", nodes, topNodes)
	if g.Constants > 0 {
		t.add("  weights", "%s, %s, %.2f bits per weight", plural(g.Constants, "constant"),
			humanize.IBytes(uint64(g.WeightSize)), g.BitsPerWeight)
	}
	for _, s := range g.Storage {
		t.add("", "%s: %s, %s elements, %s, %.2f bits per weight", s.Format, plural(s.Tensors, "tensor"),
			humanize.Comma(s.Elements), humanize.IBytes(uint64(s.Size)), s.BitsPerWeight)
	}
	if len(g.Buffers) > 0 {
		t.add("  state", "%s, %s", plural(len(g.Buffers), "buffer"), humanize.IBytes(uint64(g.BufferSize)))
		t.list("", buffersText(g.Buffers))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// buffersText sums up buffers of equal type.
func buffersText(buffers []Buffer) []string {
	var types []string
	counts := map[string]int{}
	for _, b := range buffers {
		key := b.DType + dims(b.Shape, b.Shape)
		if counts[key] == 0 {
			types = append(types, key)
		}
		counts[key]++
	}
	for i, key := range types {
		types[i] = fmt.Sprintf("%d of %s", counts[key], key)
	}
	return types
}

func constantsText(constants []Constant) []string {
	out := make([]string, len(constants))
	for i, c := range constants {
		values := make([]string, len(c.Values))
		for j, v := range c.Values {
			values[j] = fmt.Sprint(v)
		}
		out[i] = c.Name + " " + strings.Join(values, " ")
	}
	return out
}

func valuesText(values []Value) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.TrimLeft(shortName(v.Name)+" "+v.DType, " ")
		if v.DType != "int" {
			out[i] += dims(v.MinShape, v.Shape)
		}
	}
	return strings.Join(out, ", ")
}

// shortName drops the prefix that ExecuTorch gives the names of one delegate.
func shortName(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[i+1:]
	}
	return name
}

// dims writes a shape: [1,2..255].
func dims(low, high []int) string {
	out := make([]string, len(high))
	for i := range high {
		out[i] = fmt.Sprint(high[i])
		if low[i] != high[i] {
			out[i] = fmt.Sprintf("%d..%d", low[i], high[i])
		}
	}
	return "[" + strings.Join(out, ",") + "]"
}

// WriteNodes writes the node counts, "RMSNormNode 19" a line, the most frequent first.
func (g *Graph) WriteNodes(w io.Writer) error {
	for _, c := range g.NodeCounts {
		if _, err := fmt.Fprintf(w, "%s %d\n", c.Node, c.Count); err != nil {
			return err
		}
	}
	return nil
}

// WriteWeights writes a table of the weights in the order of the graph.
func (g *Graph) WriteWeights(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tDTYPE\tSHAPE\tBYTES\tOFFSET\tALIGNMENT\tQUANTIZED")
	for _, x := range g.Weights {
		part := "-"
		if x.Part != "" {
			part = fmt.Sprintf("%s %d-bit g%d %s", x.Part, x.Bits, x.Group, x.Mode)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", x.Name, x.DType, dims(x.Shape, x.Shape), x.Size,
			x.Offset, x.Alignment, part)
	}
	return t.Flush()
}

// lines writes a table of two columns and keeps the first error.
type lines struct {
	w   *tabwriter.Writer
	err error
}

func (t *lines) add(label, format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, "%s\t%s\n", label, fmt.Sprintf(format, args...))
	}
}

// list writes one entry a line, at most topShown.
func (t *lines) list(label string, entries []string) {
	for i, e := range entries {
		if i == topShown && len(entries) > topShown+1 {
			t.add(label, "and %d more", len(entries)-i)
			return
		}
		t.add(label, "%s", e)
		label = ""
	}
}

// top writes entries on one line and counts those beyond n.
func (t *lines) top(label string, entries []string, n int) {
	if len(entries) > n+1 {
		entries = append(slices.Clone(entries[:n]), fmt.Sprintf("and %d more kinds", len(entries)-n))
	}
	t.add(label, "%s", strings.Join(entries, ", "))
}

func (t *lines) flush() error {
	if t.err != nil {
		return t.err
	}
	return t.w.Flush()
}
