package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/etc-ml/etc/runtime/bench"
)

// The picture and its plot, in pixels.
const (
	width, height            = 720, 400
	left, right, top, bottom = 56, 700, 24, 344
	mostDrafts               = 3
	leastAxis                = 3.0 // the axis of gains ends here at least
)

func main() {
	if err := draw(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "draftcurve:", err)
		os.Exit(1)
	}
}

// x places an acceptance.
func x(acceptance float64) float64 { return left + acceptance*(right-left) }

// axis returns where the axis of gains ends: a multiple of 0.5 that no curve is above.
func axis(rows []bench.DraftRow) float64 {
	end := leastAxis
	for _, r := range rows {
		for _, p := range r.Curve {
			if r.Drafts <= mostDrafts {
				end = max(end, math.Ceil(2*p.Gain)/2)
			}
		}
	}
	return end
}

const style = `<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.axis { stroke: #57606a; fill: none } .grid { stroke: #d0d7de; fill: none }
.none { stroke: #57606a; stroke-dasharray: 6 4; fill: none }
.mark { stroke: #8c959f; stroke-dasharray: 2 3; fill: none }
.curve { fill: none; stroke-width: 2.5 }
.k1 { stroke: #0969da } .k2 { stroke: #bc4c00 } .k3 { stroke: #1a7f37 }
.t1 { fill: #0969da } .t2 { fill: #bc4c00 } .t3 { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.axis { stroke: #8b949e } .grid { stroke: #30363d } .none { stroke: #8b949e } .mark { stroke: #6e7681 }
.k1 { stroke: #58a6ff } .k2 { stroke: #f0883e } .k3 { stroke: #3fb950 }
.t1 { fill: #58a6ff } .t2 { fill: #f0883e } .t3 { fill: #3fb950 }
}
</style>
`

// draw reads the JSON and writes the picture.
func draw(in io.Reader, out io.Writer) error {
	var data struct {
		Rows []bench.DraftRow `json:"rows"`
	}
	if err := json.NewDecoder(in).Decode(&data); err != nil {
		return fmt.Errorf("standard input: %w; want what etc bench --speculate --json prints", err)
	}
	highest := axis(data.Rows)
	y := func(gain float64) float64 { return bottom - gain/highest*(bottom-top) }
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n", width, height)
	b.WriteString("<title>Speed against none by the acceptance of drafts</title>\n" + style)
	line := func(class string, x1, y1, x2, y2 float64) {
		fmt.Fprintf(&b, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, x1, y1, x2, y2)
	}
	text := func(class, anchor string, x, y float64, s string) {
		fmt.Fprintf(&b, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			class, anchor, x, y, s)
	}
	for g := 0.0; g <= highest; g += 0.5 {
		line("grid", left, y(g), right, y(g))
		text("", "end", left-8, y(g)+4, fmt.Sprintf("%g×", g))
	}
	for i := range 6 {
		a := float64(i) / 5
		text("", "middle", x(a), bottom+20, fmt.Sprintf("%.1f", a))
	}
	line("none", left, y(1), right, y(1))
	for i, what := range []string{"code", "facts", "prose"} {
		a := bench.Published[i]
		line("mark", x(a), top, x(a), bottom)
		text("", "end", x(a)-4, top+12, fmt.Sprintf("%s %g", what, a))
	}
	for _, r := range data.Rows {
		if r.Drafts > mostDrafts {
			continue
		}
		var path strings.Builder
		for i, p := range r.Curve {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(p.Acceptance), y(p.Gain))
		}
		fmt.Fprintf(&b, "<path class=\"curve k%d\" d=\"%s\"/>\n", r.Drafts, &path)
		label := fmt.Sprintf("K = %d: a round takes %.2f of a token's time", r.Drafts, r.Ratio)
		text(fmt.Sprintf("t%d", r.Drafts), "start", left+12, top+20+18*float64(r.Drafts), label)
	}
	line("axis", left, bottom, right, bottom)
	text("", "middle", (left+right)/2, bottom+44, "chance of a draft to be right where all before it are")
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}
