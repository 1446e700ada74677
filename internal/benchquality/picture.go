package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Sizes of the picture, in its own units, which are pixels where nothing scales it.
const (
	pictureWidth = 960
	panelWidth   = 390 // of the part with points
	panelHeight  = 330
	panelLeft    = 62
	panelTop     = 56
	panelStep    = 468 // from one panel to the next
)

// marks are the shapes of methods, each a path around (0, 0): told apart without colour too.
var marks = []struct{ method, class, path string }{
	{"minmax", "m1", "M-5,-5H5V5H-5Z"},
	{"hqq", "m2", "M-5.5,4.5H5.5L0,-5.5Z"},
	{"best", "m3", "M0,-6.5L6.5,0L0,6.5L-6.5,0Z"},
	{"weighted", "m4", "M-5.5,-4.5H5.5L0,5.5Z"},
	{"gptq", "m5", "M-6,-2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z"},
	{"auto", "m6", "M5.5,0A5.5,5.5 0 1 1 -5.5,0A5.5,5.5 0 1 1 5.5,0Z"},
}

const pictureStyle = `<style>
svg { --page: #ffffff; --ink: #16181d; --soft: #565c68; --grid: #e6e9ee; --line: #8d95a3;
  --m1: #b8431a; --m2: #8a6d00; --m3: #2f7d5b; --m4: #6b52b5; --m5: #4d6b7a; --m6: #2563a8; }
@media (prefers-color-scheme: dark) { svg { --page: #14161a; --ink: #e6e8ec; --soft: #a2a9b6; --grid: #2b3039; --line: #727b8a;
  --m1: #f0945f; --m2: #dcba5c; --m3: #69d6aa; --m4: #b7b6f6; --m5: #a3c2d1; --m6: #7fb2ee; } }
text { font: 12px system-ui, sans-serif; fill: var(--soft); } .title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.label { fill: var(--ink); } .grid { stroke: var(--grid); } .front { fill: none; stroke: var(--line); stroke-width: 1.5; }
.m1 { fill: var(--m1); } .m2 { fill: var(--m2); } .m3 { fill: var(--m3); } .m4 { fill: var(--m4); } .m5 { fill: var(--m5); } .m6 { fill: var(--m6); }
path[class^=m] { stroke: var(--page); stroke-width: 1; }
</style>
`

// frontier returns the results that none with as few bits is better than, by bits.
func frontier(results []result) (front []result) {
	sorted := slices.Clone(results)
	slices.SortStableFunc(sorted, func(a, b result) int {
		if a.Bits != b.Bits {
			return compareFloats(a.Bits, b.Bits)
		}
		return compareFloats(a.KL, b.KL)
	})
	for _, r := range sorted {
		if len(front) == 0 || r.KL < front[len(front)-1].KL {
			front = append(front, r)
		}
	}
	return front
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// drawnBits bounds the bits of what is drawn: at 8 bits divergence is a hundredth, and all others would lie in a
// corner.
const drawnBits = 6

// drawPicture draws divergence against bits a weight, a panel for each model.
func drawPicture(results []result) []byte {
	results = slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.Bits > drawnBits })
	names := models(results)
	height := panelTop + panelHeight + 84
	var b bytes.Buffer
	width := max(pictureWidth, panelLeft+len(names)*panelStep)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="KL divergence against bits a weight">`+"\n", width, height)
	b.WriteString(pictureStyle)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="var(--page)"/>`+"\n", width, height)
	axes := newAxes(results)
	for i, name := range names {
		var own []result
		for _, r := range results {
			if r.Model == name {
				own = append(own, r)
			}
		}
		axes.panel(&b, float64(panelLeft+i*panelStep), name, own)
	}
	x := panelLeft
	for _, m := range marks {
		if slices.ContainsFunc(results, func(r result) bool { return r.Method == m.method }) {
			fmt.Fprintf(&b, `<g transform="translate(%d,%d)"><path class="%s" d="%s"/><text x="12" y="4">%s</text></g>`+
				"\n", x+6, height-16, m.class, m.path, m.method)
			x += 84
		}
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">The line joins what nothing of as few bits is better than.</text>`+"\n", x+12,
		height-12)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// axes are the ranges of all panels.
type axes struct {
	low, high   float64 // bits
	least, most float64 // powers of ten of the divergence
}

func newAxes(results []result) axes {
	a := axes{low: math.Inf(1), high: math.Inf(-1), least: math.Inf(1), most: math.Inf(-1)}
	for _, r := range results {
		a.low, a.high = min(a.low, math.Floor(r.Bits)), max(a.high, math.Ceil(r.Bits))
		if r.KL > 0 {
			a.least, a.most = min(a.least, math.Floor(math.Log10(r.KL)*2)/2),
				max(a.most, math.Ceil(math.Log10(r.KL)*2)/2)
		}
	}
	return a
}

// at returns the place of a result in a panel.
func (a axes) at(r result) (x, y float64) {
	x = (r.Bits - a.low) / (a.high - a.low) * panelWidth
	y = (a.most - math.Log10(max(r.KL, 1e-12))) / (a.most - a.least) * panelHeight
	return x, min(y, panelHeight)
}

// panel draws a model's results.
func (a axes) panel(b *bytes.Buffer, left float64, name string, results []result) {
	fmt.Fprintf(b, `<g transform="translate(%g,%d)">`+"\n"+
		`<text class="title" x="0" y="-28">%s</text><text x="0" y="-9">KL, mean in nats</text>`+"\n",
		left, panelTop, html.EscapeString(name))
	for bits := a.low; bits <= a.high; bits++ {
		x, _ := a.at(result{Bits: bits, KL: 1})
		fmt.Fprintf(b, `<path class="grid" d="M%.1f,0V%d"/><text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n",
			x, panelHeight, x, panelHeight+18, bits)
	}
	for power := a.least; power <= a.most; power += 0.5 {
		kl := math.Pow(10, power)
		if math.Mod(power, 1) != 0 {
			kl = 3 * math.Pow(10, math.Floor(power))
		}
		_, y := a.at(result{KL: kl})
		fmt.Fprintf(b, `<path class="grid" d="M0,%.1fH%d"/><text x="-8" y="%.1f" text-anchor="end">%.4g</text>`+"\n",
			y, panelWidth, y+4, kl)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">bits a quantized weight, scales and biases included</text>`+"\n", panelWidth/2, panelHeight+36)
	front := frontier(results)
	var line strings.Builder
	for i, r := range front {
		x, y := a.at(r)
		fmt.Fprintf(&line, "%c%.1f,%.1f", "ML"[min(i, 1)], x, y)
	}
	if len(front) > 0 {
		fmt.Fprintf(b, `<path class="front" d="%s"/>`+"\n", line.String())
	}
	for _, r := range results {
		i := slices.IndexFunc(marks, func(m struct{ method, class, path string }) bool { return m.method == r.Method })
		if i < 0 {
			continue
		}
		x, y := a.at(r)
		fmt.Fprintf(b, `<path class="%s" transform="translate(%.1f,%.1f)" d="%s"><title>%s: %.2f bits, KL %.5f</title></path>`+"\n",
			marks[i].class, x, y, marks[i].path, label(r), r.Bits, r.KL)
	}
	a.labels(b, front)
	b.WriteString("</g>\n")
}

// labels names the results of the frontier, below and left of their marks, where no other mark can be; of two whose
// names would cross the second has none.
func (a axes) labels(b *bytes.Buffer, front []result) {
	last := math.Inf(-1)
	for _, r := range front {
		x, y := a.at(r)
		if y+16-last < 13 {
			continue
		}
		last = y + 16
		anchor, at := "end", x-4
		if x < 90 {
			anchor, at = "start", 4.0
		}
		fmt.Fprintf(b, `<text class="label" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", at,
			last, anchor, label(r))
	}
}

// label returns a result's name in the picture.
func label(r result) string {
	name := r.Form
	if r.Group > 0 {
		name = fmt.Sprintf("%s/%d", r.Form, r.Group)
	}
	return html.EscapeString(name + " " + r.Method)
}
