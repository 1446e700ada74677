package report

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/inspect"
)

// inspectionData is the data block of an inspection page.
type inspectionData struct {
	Report  *inspect.Report `json:"report"`
	Tiles   []tile          `json:"tiles"`
	Decode  []memoryPoint   `json:"decode_memory"`
	Prefill []memoryPoint   `json:"prefill_memory"`
}

// Inspection writes the page of a file: its facts, what takes its space, its memory over a forward pass,
// a layer of each kind. m is the module of the report's method forward.
func Inspection(w io.Writer, r *inspect.Report, m *ir.Module) error {
	method, ok := r.Method(m.Entry.Name)
	if !ok || method.Graph == nil {
		return fmt.Errorf("%s has no graph of method %s to draw", r.File, m.Entry.Name)
	}
	g := method.Graph
	d := inspectionData{Report: r, Tiles: fileTiles(r, g)}
	end, chunk := int64(1), int64(1)
	if l := method.Model; l != nil {
		end, chunk = int64(l.MaxSeqLen), int64(l.MaxChunk)
	}
	d.Decode, d.Prefill = memoryCurve(m, 1, end), memoryCurve(m, chunk, end)
	p := &page{Title: "What is in " + filepath.Base(r.File), Subtitle: "etc inspect --html", Facts: []fact{
		{"file", bytesText(r.Size)},
		{"weights", bytesText(g.WeightSize)},
		{"bits per weight", fmt.Sprintf("%.2f", g.BitsPerWeight)},
		{"state", bytesText(g.BufferSize)},
		{"nodes", fmt.Sprint(g.Nodes)},
		{"peak of temporaries, one token", bytesText(peak(d.Decode))},
		{fmt.Sprintf("peak of temporaries, %d tokens", chunk), bytesText(peak(d.Prefill))},
	}}
	p.Sections = append(p.Sections, section{Title: "The file", Note: "Area is size. Colours are kinds; a box is what one layer has of a kind.",
		Charts: []chart{{SVG: treemap(d.Tiles, 1000, 460)}}})
	if err := storageSection(p, g); err != nil {
		return err
	}
	if err := memorySection(p, d, chunk); err != nil {
		return err
	}
	for _, l := range layers(m) {
		p.Sections = append(p.Sections, section{Title: fmt.Sprintf("Layer %d: %s", l.Layer, l.Kind), Note: "Operations by depth; constants, sizes and positions left out.",
			Charts: []chart{{SVG: l.draw()}}})
	}
	return p.write(w, d)
}

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

// splitName gives a weight's layer, "" for none, and its kind: the module that it belongs to.
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
	if layer != "" && strings.HasSuffix(kind, "norm") {
		kind = "norms"
	}
	if strings.HasPrefix(kind, "scalar") {
		kind = "scalars"
	}
	return layer, kind
}

func storageSection(p *page, g *inspect.Graph) error {
	t := &table{Head: []string{"stored as", "weights", "elements", "size", "bits per weight"}}
	var names []string
	var bits []float64
	for _, s := range g.Storage {
		t.Rows = append(t.Rows, []string{s.Format, fmt.Sprint(s.Tensors), fmt.Sprint(s.Elements), bytesText(s.Size), fmt.Sprintf("%.2f", s.BitsPerWeight)})
		names, bits = append(names, s.Format), append(bits, s.BitsPerWeight)
	}
	c, err := bars("Bits per weight by form", "bits", names, bits)
	if err != nil {
		return err
	}
	p.Sections = append(p.Sections, section{Title: "Bits", Charts: []chart{{SVG: c}}, Table: t})
	return nil
}

func memorySection(p *page, d inspectionData, chunk int64) error {
	curve := func(points []memoryPoint) []float64 {
		y := make([]float64, len(points))
		for i, q := range points {
			y[i] = float64(q.Bytes) / (1 << 10)
		}
		return y
	}
	s := section{Title: "Memory over a forward pass", Note: "Temporaries that are alive at each operation, at the end of the context. Weights and state are not counted; views count as copies."}
	for _, x := range []struct {
		title  string
		points []memoryPoint
	}{{"Decoding one token", d.Decode}, {fmt.Sprintf("Prefill of %d tokens", chunk), d.Prefill}} {
		c, err := lines(x.title, "operation", "KiB", line{y: curve(x.points)})
		if err != nil {
			return err
		}
		s.Charts = append(s.Charts, chart{SVG: c})
	}
	p.Sections = append(p.Sections, s)
	return nil
}
