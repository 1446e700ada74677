package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"strconv"
	"strings"
)

const (
	source = "BENCHMARKS.md"
	output = "docs/speed.svg"
	many   = "docs/streams.svg"
	head   = "| machine | model | test | etc, tokens/s | llama.cpp, tokens/s | ratio |"
)

func main() {
	if err := run(source, output, many); err != nil {
		fmt.Fprintf(os.Stderr, "speedpicture: %v\n", err)
		os.Exit(1)
	}
}

func run(source, output, many string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	rows, err := readTable(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	all, err := panels(rows)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	if err := os.WriteFile(many, drawStreams(all), 0o644); err != nil {
		return err
	}
	return os.WriteFile(output, draw(rows), 0o644)
}

// row is a comparison on one machine.
type row struct {
	machine, model, test string
	ours, theirs         string
	ratio                float64
}

// readTable reads the table below its head.
func readTable(text string) (rows []row, err error) {
	_, body, found := strings.Cut(text, head+"\n")
	if !found {
		return nil, fmt.Errorf("expected the table %q, found none", head)
	}
	for _, line := range strings.Split(body, "\n")[1:] { // after the line of dashes
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 6 {
			return nil, fmt.Errorf("expected 6 cells, found %d: %s", len(cells), line)
		}
		r := row{machine: cells[0], model: cells[1], test: cells[2], ours: cells[3], theirs: cells[4]}
		if r.ratio, err = strconv.ParseFloat(cells[5], 64); err != nil {
			return nil, fmt.Errorf("ratio of %s: %w", line, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Sizes of the picture, in its own units, which are pixels where nothing scales it.
const (
	width      = 800
	labels     = 290 // of the part left of the bars
	numbers    = 150 // of the part right of them
	rowHeight  = 22
	barHeight  = 14
	groupSpace = 26 // above the first row of a machine
	top        = 70
	longest    = 9.0 // the ratio that a bar of all the room stands for
)

// style is that of both pictures; --less is the color of what is slower, and of llama.cpp.
const style = `<style>
svg { --page: #ffffff; --ink: #16181d; --soft: #565c68; --grid: #e6e9ee; --one: #8d95a3; --ours: #2563a8; --less: #b8431a; }
@media (prefers-color-scheme: dark) { svg { --page: #14161a; --ink: #e6e8ec; --soft: #a2a9b6; --grid: #2b3039; --one: #727b8a;
  --ours: #7fb2ee; --less: #f0945f; } }
text { font: 12px system-ui, sans-serif; fill: var(--soft); } .title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.machine { font-weight: 600; fill: var(--ink); } .label { fill: var(--ink); } .grid { stroke: var(--grid); } .one { stroke: var(--one); }
.ours { fill: var(--ours); } .less { fill: var(--less); }
</style>
`

// draw draws a bar for each row, in the order of the table, under the names of the machines.
func draw(rows []row) []byte {
	height := top + 12
	for i, r := range rows {
		height += rowHeight
		if i == 0 || r.machine != rows[i-1].machine {
			height += groupSpace
		}
	}
	var b bytes.Buffer
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Speed of etc beside llama.cpp">`, width, height)
	b.WriteString(style)
	line(`<rect width="%d" height="%d" fill="var(--page)"/>`, width, height)
	line(`<text class="title" x="16" y="24">Tokens a second: etc as a multiple of llama.cpp</text>`)
	line(`<text x="16" y="42">4 bits; pp: a prompt of so many tokens, tg: tokens one by one; right: etc and llama.cpp</text>`)
	scale := float64(width-labels-numbers) / longest
	for n := 1; float64(n) <= longest; n++ {
		class := "grid"
		if n == 1 {
			class = "one"
		}
		x := labels + int(float64(n)*scale)
		line(`<line class="%s" x1="%d" y1="%d" x2="%d" y2="%d"/>`, class, x, top, x, height-10)
		line(`<text x="%d" y="%d" text-anchor="middle">%d×</text>`, x, top-4, n)
	}
	y := top
	for i, r := range rows {
		if i == 0 || r.machine != rows[i-1].machine {
			y += groupSpace
			line(`<text class="machine" x="16" y="%d">%s</text>`, y-8, html.EscapeString(r.machine))
		}
		class := "ours"
		if r.ratio < 1 {
			class = "less"
		}
		line(`<text class="label" x="%d" y="%d" text-anchor="end">%s, %s</text>`, labels-8, y+12,
			html.EscapeString(r.model), html.EscapeString(r.test))
		line(`<rect class="%s" x="%d" y="%d" width="%.0f" height="%d"/>`, class, labels, y+1,
			min(r.ratio, longest)*scale, barHeight)
		line(`<text x="%d" y="%d">%.1f× · %s, %s</text>`, width-numbers+8, y+12, r.ratio, html.EscapeString(r.ours),
			html.EscapeString(r.theirs))
		y += rowHeight
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
