package report

import (
	"bytes"
	"html/template"
	"image/color"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

func bytesText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

var ink = []color.Color{
	color.RGBA{0x1f, 0x5f, 0x99, 0xff}, color.RGBA{0xc9, 0x6a, 0x12, 0xff}, color.RGBA{0x1a, 0x80, 0x5b, 0xff}, color.RGBA{0x8a, 0x3f, 0x9e, 0xff},
	color.RGBA{0xb0, 0x2a, 0x30, 0xff}, color.RGBA{0x5a, 0x5a, 0x5a, 0xff}, color.RGBA{0x8c, 0x7a, 0x10, 0xff}, color.RGBA{0x2a, 0x9c, 0xb5, 0xff},
}

// line is a curve of a chart.
type line struct {
	name string
	y    []float64
}

// lines draws curves over 0, 1, 2, …, from zero upwards. Values that are not finite have no point; curves without a
// point are left out.
func lines(title, x, y string, curves ...line) (template.HTML, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	for i, c := range curves {
		var points plotter.XYs
		for j, v := range c.y {
			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				points = append(points, plotter.XY{X: float64(j), Y: v})
			}
		}
		if points == nil {
			continue
		}
		l, err := plotter.NewLine(points)
		if err != nil {
			return "", err
		}
		l.Color = ink[i%len(ink)]
		l.Width = vg.Points(1.4)
		if i >= len(ink) {
			l.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(l)
		if len(curves) > 1 {
			p.Legend.Add(c.name, l)
		}
	}
	p.Y.Min = min(p.Y.Min, 0)
	return svg(p, 760, 280)
}

// bars draws a bar for each name; without any there is nothing to draw.
func bars(title, y string, names []string, values []float64) (template.HTML, error) {
	if len(values) == 0 {
		return "", nil
	}
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	b, err := plotter.NewBarChart(plotter.Values(values), vg.Points(max(4, min(28, 560/float64(max(len(values), 1))))))
	if err != nil {
		return "", err
	}
	b.Color = ink[0]
	b.LineStyle.Width = 0
	p.Add(b)
	p.NominalX(names...)
	if len(names) > 6 {
		p.X.Tick.Label.Rotation = 0.6
		p.X.Tick.Label.XAlign = -0.9
	}
	return svg(p, 760, 300)
}

// svg renders a plot without the XML prologue, which has no place inside of HTML.
func svg(p *plot.Plot, width, height float64) (template.HTML, error) {
	w, err := p.WriterTo(vg.Points(width), vg.Points(height), "svg")
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return "", err
	}
	text := b.String()
	if at := strings.Index(text, "<svg"); at > 0 {
		text = text[at:]
	}
	return template.HTML(text), nil
}
