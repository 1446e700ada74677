package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// This file draws tokens a second against the number of streams, from those rows of the table that have it.

// point is a row of so many streams.
type point struct {
	streams      int
	ours, theirs float64 // tokens a second of all streams together
}

// panel has the points of a model on a machine, the fewest streams first.
type panel struct {
	machine, model string
	points         []point
}

// panels finds the models that were measured with several numbers of streams. A test of single tokens (tg128) is one
// stream.
func panels(rows []row) (out []panel, err error) {
	for _, r := range rows {
		count, found := strings.CutSuffix(r.test, " streams")
		if strings.HasPrefix(r.test, "tg") {
			count, found = "1", true
		}
		streams, err := strconv.Atoi(count)
		if !found || err != nil {
			continue // prompts, servers
		}
		p := point{streams: streams}
		for _, x := range []struct {
			text string
			to   *float64
		}{{r.ours, &p.ours}, {r.theirs, &p.theirs}} {
			if *x.to, err = strconv.ParseFloat(strings.ReplaceAll(x.text, ",", ""), 64); err != nil {
				return nil, fmt.Errorf("%s, %s, %s: %w", r.machine, r.model, r.test, err)
			}
		}
		i := slices.IndexFunc(out, func(p panel) bool { return p.machine == r.machine && p.model == r.model })
		if i < 0 {
			i, out = len(out), append(out, panel{machine: r.machine, model: r.model})
		}
		out[i].points = append(out[i].points, p)
	}
	out = slices.DeleteFunc(out, func(p panel) bool { return len(p.points) < 2 })
	for _, p := range out {
		slices.SortFunc(p.points, func(a, b point) int { return cmp.Compare(a.streams, b.streams) })
	}
	return out, nil
}

// panelsOfRow is the number of panels beside each other.
const panelsOfRow = 2

// Sizes of a panel. The first row has the title above it, in panelTop.
const (
	panelWidth  = 380
	panelHeight = 300
	panelTop    = 78
	axis        = 52 // left of the plot
	plotWidth   = panelWidth - axis - 24
	plotHeight  = panelHeight - panelTop - 44
)

// streamStyle are the lines of both programs, beside style.
const streamStyle = `<style>
.curve { fill: none; stroke: var(--ours); stroke-width: 2; } .curve.less { stroke: var(--less); stroke-dasharray: 5 3; }
</style>
`

// drawStreams draws a panel for each model on a machine. Both axes are logarithmic, of base 2 and 10.
func drawStreams(all []panel) []byte {
	var b bytes.Buffer
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	width := panelWidth * min(len(all), panelsOfRow)
	height := panelHeight * ((len(all) + panelsOfRow - 1) / panelsOfRow)
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Tokens a second">`,
		width, height)
	b.WriteString(style + streamStyle)
	line(`<rect width="%d" height="%d" fill="var(--page)"/>`, width, height)
	line(`<text class="title" x="16" y="24">Tokens a second of all streams together</text>`)
	line(`<text x="16" y="44"><tspan class="ours">etc</tspan>  <tspan class="less">llama.cpp</tspan></text>`)
	for i, p := range all {
		p.draw(line, i%panelsOfRow*panelWidth, i/panelsOfRow*panelHeight)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// ticks returns powers of ten and three times these, from the last one that is not above low to the first that is not
// below high.
func ticks(low, high float64) (out []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(low))); ; power *= 10 {
		for _, tick := range []float64{power, 3 * power} {
			if tick <= low {
				out = out[:0]
			}
			if out = append(out, tick); tick >= high {
				return out
			}
		}
	}
}

// draw draws the panel from x = left and y = top on.
func (p panel) draw(line func(format string, a ...any), left, top int) {
	low, high := math.Inf(1), 0.0
	for _, q := range p.points {
		low, high = min(low, q.ours, q.theirs), max(high, q.ours, q.theirs)
	}
	lines := ticks(low, high)
	least, most := math.Log10(lines[0]), math.Log10(lines[len(lines)-1])
	doublings := math.Log2(float64(p.points[len(p.points)-1].streams))
	x := func(streams int) float64 {
		return float64(left+axis) + math.Log2(float64(streams))/max(doublings, 1)*plotWidth
	}
	bottom := top + panelTop + plotHeight
	y := func(speed float64) float64 {
		return float64(bottom) - (math.Log10(speed)-least)/(most-least)*plotHeight
	}
	line(`<text class="machine" x="%d" y="%d">%s, %s</text>`, left+16, top+panelTop-14, html.EscapeString(p.model),
		html.EscapeString(p.machine))
	for _, speed := range lines {
		line(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left+axis, y(speed), left+axis+plotWidth, y(speed))
		line(`<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`, left+axis-6, y(speed)+4, speed)
	}
	for _, q := range p.points {
		line(`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(q.streams), bottom+18, q.streams)
	}
	line(`<text x="%d" y="%d" text-anchor="middle">streams</text>`, left+axis+plotWidth/2, bottom+36)
	for _, curve := range []struct {
		class string
		of    func(point) float64
	}{{"ours", func(q point) float64 { return q.ours }}, {"less", func(q point) float64 { return q.theirs }}} {
		var at []string
		for _, q := range p.points {
			at = append(at, fmt.Sprintf("%.1f,%.1f", x(q.streams), y(curve.of(q))))
			line(`<circle class="%s" cx="%.1f" cy="%.1f" r="3"/>`, curve.class, x(q.streams), y(curve.of(q)))
		}
		line(`<polyline class="curve %s" points="%s"/>`, curve.class, strings.Join(at, " "))
	}
}
