package report

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/compare"
	"github.com/etc-ml/etc/runtime/inspect"
)

// inspectionData is the data block of an inspection page.
type inspectionData struct {
	Report  *inspect.Report `json:"report"`
	Tiles   []tile          `json:"tiles"`
	Decode  []memoryPoint   `json:"decode_memory"`
	Prefill []memoryPoint   `json:"prefill_memory"`
	Figures []Figure        `json:"figures,omitempty"`
}

// Inspection writes the page of a file: its facts, what takes its space, its memory over a forward pass,
// a layer of each kind. m is the module of the report's method forward. More figures stand after those at its head.
func Inspection(w io.Writer, r *inspect.Report, m *ir.Module, more ...Figure) error {
	method, ok := r.Method(m.Entry.Name)
	if !ok || method.Graph == nil {
		return fmt.Errorf("%s has no graph of method %s to draw", r.File, m.Entry.Name)
	}
	g := method.Graph
	d := inspectionData{Report: r, Tiles: fileTiles(r, g), Figures: more}
	end, chunk := int64(1), int64(1)
	if l := method.Model; l != nil {
		end, chunk = int64(l.MaxSeqLen), int64(l.MaxChunk)
	}
	d.Decode, d.Prefill = memoryCurve(m, 1, end), memoryCurve(m, chunk, end)
	p := &page{Title: "What is in " + filepath.Base(r.File), Subtitle: "Sizes, memory and layers of the program.",
		Facts: append(inspectionFacts(r, g, d, chunk), more...)}
	if groups := groupsOf(d.Tiles); len(groups) > 1 || len(groups) == 1 && len(groups[0].tiles) > 1 {
		p.Sections = append(p.Sections, section{Title: "The file", Map: newTreemap(groups),
			Note: "Area is size, a colour is a kind of weight, a box is what one layer has of it, a number alone " +
				"is the layer."})
	}
	p.Sections = append(p.Sections, storageSection(g))
	if drawn := newBitRows(g.Weights); drawn != nil {
		p.Sections = append(p.Sections, section{Title: "Bits by layer", Bits: drawn,
			Note: "The weights that are quantized in another way in some layers; the first layer is at the left."})
	}
	p.Sections = append(p.Sections, memorySection(d, chunk, layerTicks(m)))
	if s, ok := flowSection(m); ok {
		p.Sections = append(p.Sections, s)
	}
	return p.write(w, d)
}

func inspectionFacts(r *inspect.Report, g *inspect.Graph, d inspectionData, chunk int64) []fact {
	facts := []fact{{"file", bytesText(r.Size)}}
	if g.WeightSize > 0 {
		facts = append(facts, fact{"weights", bytesText(g.WeightSize)},
			fact{"bits per weight", fmt.Sprintf("%.2f", g.BitsPerWeight)})
	}
	facts = append(facts, fact{"state", bytesText(g.BufferSize)}, fact{"nodes", humanize.Comma(int64(g.Nodes))},
		fact{"peak of temporaries, one token", bytesText(peak(d.Decode))})
	if chunk > 1 {
		facts = append(facts, fact{"peak of temporaries, " + chunkText(chunk), bytesText(peak(d.Prefill))})
	}
	return facts
}

// wholeProgram is how many operations a program without layers may have to be drawn as a whole.
const wholeProgram = 80

// flowSection draws a layer of each kind, or all of a small program that has none; ok is false where there is neither.
func flowSection(m *ir.Module) (s section, ok bool) {
	f := &flows{Legend: flowLegend()}
	s = section{Title: "A layer of each kind", Flows: f,
		Note: "Operations in the order of the program, wires from what they read. Reshapes, slices, casts, sizes and " +
			"positions are left out."}
	for _, l := range layers(m) {
		f.Flows = append(f.Flows, l.flow())
	}
	if ops := m.Entry.Body.Ops; len(f.Flows) == 0 && len(ops) > 0 && len(ops) <= wholeProgram {
		s.Title = "The program"
		f.Flows = append(f.Flows, newFlow(m.Entry.Name, m.Entry.Params, ops))
	}
	return s, len(f.Flows) > 0
}

func chunkText(n int64) string { return fmt.Sprintf("%d tokens", n) }

// fileTiles sums the weights up by layer and kind.
func fileTiles(r *inspect.Report, g *inspect.Graph) []tile {
	var out []tile
	at := map[string]int{}
	add := func(label, group string, size int64) {
		i, ok := at[label]
		if !ok {
			i = len(out)
			at[label] = i
			out = append(out, tile{Label: label, Group: group})
		}
		out[i].Size += size
	}
	for _, w := range g.Weights {
		layer, kind := splitName(w.Name)
		label := kind
		if layer != "" {
			label = "layer " + layer + " " + kind
		}
		add(label, kind, w.Size)
	}
	for _, n := range r.Metadata {
		add(n.Key, "metadata", n.Size)
	}
	add("program", "metadata", r.ProgramSize)
	return out
}

// splitName returns a weight's layer, "" for none, and its kind: the module that it belongs to.
func splitName(name string) (layer, kind string) {
	if _, n, rest, ok := ir.SplitLayer(name); ok {
		layer, name = strconv.Itoa(n), rest
	} else if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	parts := strings.Split(name, ".")
	kind = parts[0]
	if kind == "mlp" && len(parts) > 1 {
		kind = "mlp " + parts[1]
	}
	if strings.HasSuffix(kind, "norm") {
		kind = "norms"
	}
	if strings.HasPrefix(kind, "scalar") {
		kind = "scalars"
	}
	return layer, kind
}

func storageSection(g *inspect.Graph) section {
	t := &table{Head: []string{"stored as", "weights", "elements", "size", "bits per weight", "share"}, Trim: true}
	for _, s := range g.Storage {
		share := float64(s.Size) / float64(max(g.WeightSize, 1))
		t.Rows = append(t.Rows, []string{s.Format, humanize.Comma(int64(s.Tensors)), humanize.Comma(s.Elements),
			bytesText(s.Size), fmt.Sprintf("%.2f", s.BitsPerWeight), shareText(share)})
	}
	if len(t.Rows) == 0 {
		return section{Title: "How the weights are stored", Note: "The method has no weights."}
	}
	return section{Title: "How the weights are stored", Table: t}
}

// layerTicks returns the operations with which layers begin, some of them where there are many.
func layerTicks(m *ir.Module) []tick {
	var starts []tick
	for i, op := range m.Entry.Body.Ops {
		if n, ok := compare.LayerInput(op); ok {
			starts = append(starts, tick{At: float64(i), Text: fmt.Sprint(n)})
		}
	}
	step := max(int(niceStep(float64(len(starts)-1), 6)), 1)
	var out []tick
	for i := 0; i < len(starts); i += step {
		out = append(out, starts[i])
	}
	if len(out) > 0 {
		out[0].Text = "layer " + out[0].Text
	}
	return out
}

// memorySection draws the temporaries of a call of one token and of a chunk; without layers, x is the operation.
func memorySection(d inspectionData, chunk int64, x []tick) section {
	s := section{Title: "Memory over a forward pass",
		Note: "Temporaries that are alive at each operation, at the end of the context. Weights and state are " +
			"not counted; " +
			"views count as copies."}
	if x == nil {
		x = indexTicks(len(d.Decode), "operation ")
	}
	for _, run := range []struct {
		title  string
		points []memoryPoint
	}{{"Decoding one token", d.Decode}, {"Prefill of " + chunkText(chunk), d.Prefill}} {
		if chunk == 1 && len(s.Charts) == 1 {
			break // the same again
		}
		unit, name := byteUnit(peak(run.points))
		y := make([]float64, len(run.points))
		for i, q := range run.points {
			y[i] = float64(q.Bytes) / unit
		}
		if drawn, ok := newChart(curve{title: run.title, unit: name, y: y, x: x}); ok {
			drawn.Note = peakNote(run.points)
			s.Charts = append(s.Charts, drawn)
		}
	}
	if len(s.Charts) == 0 {
		s.Note = "Nothing to draw: temporaries take at most " + bytesText(peak(d.Prefill)) + " at any operation."
	}
	return s
}

func peakNote(points []memoryPoint) string {
	most := peak(points)
	at := slices.IndexFunc(points, func(p memoryPoint) bool { return p.Bytes == most })
	return fmt.Sprintf("The peak is %s, at operation %d of %d, %s.", bytesText(most), at+1,
		len(points), points[at].Operation)
}

// byteUnit returns the unit in which a size is read best, in bytes, and its name.
func byteUnit(n int64) (size float64, name string) {
	size, name = 1, "bytes"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if float64(n) < 1024*size {
			break
		}
		size, name = 1024*size, next
	}
	return size, name
}
