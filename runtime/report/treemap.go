package report

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"
)

// tile is a rectangle of a treemap: its area is its size.
type tile struct {
	Label string `json:"label"`
	Group string `json:"group"` // what colours it
	Size  int64  `json:"bytes"`
}

// palette are colours that stay apart for colour-blind readers (Okabe and Ito, 2008), lightened for text on them.
var palette = []string{"#8ab8de", "#f2c46d", "#7fcdb0", "#e8a28a", "#c3a5d6", "#d9d27a", "#a9b7c6", "#f0aec8"}

// treemap draws tiles as a squarified treemap (Bruls, Huizing, van Wijk, 2000) and a legend of the groups.
func treemap(tiles []tile, width, height float64) template.HTML {
	tiles = slices.DeleteFunc(slices.Clone(tiles), func(t tile) bool { return t.Size <= 0 })
	slices.SortStableFunc(tiles, func(a, b tile) int { return cmp.Compare(b.Size, a.Size) })
	groups := groupsOf(tiles)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img">`, width, height+28)
	total := 0.0
	for _, t := range tiles {
		total += float64(t.Size)
	}
	r := rectangle{0, 0, width, height}
	scale := width * height / max(total, 1)
	for rest := tiles; len(rest) > 0; {
		n := bestRow(rest, r, scale)
		rest, r = drawRow(&b, rest, n, r, scale, groups)
	}
	x := 0.0
	for i, g := range groups {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="12" height="12" fill="%s"/><text x="%.1f" y="%.1f" font-size="12">%s</text>`,
			x, height+12, palette[i%len(palette)], x+16, height+22, html.EscapeString(g))
		x += 32 + 7*float64(len(g))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

func groupsOf(tiles []tile) []string {
	var groups []string
	for _, t := range tiles {
		if !slices.Contains(groups, t.Group) {
			groups = append(groups, t.Group)
		}
	}
	return groups
}

type rectangle struct{ x, y, w, h float64 }

// bestRow gives how many tiles to lay along the shorter side so that the worst aspect ratio is least.
func bestRow(tiles []tile, r rectangle, scale float64) int {
	side := min(r.w, r.h)
	sum, worst := 0.0, 0.0
	for i, t := range tiles {
		area := float64(t.Size) * scale
		sum += area
		first := float64(tiles[0].Size) * scale
		ratio := max(side*side*first/(sum*sum), sum*sum/(side*side*max(area, 1e-9)))
		if i > 0 && ratio > worst {
			return i
		}
		worst = ratio
	}
	return len(tiles)
}

// drawRow draws the first n tiles along the shorter side of r and gives what is left of both.
func drawRow(b *strings.Builder, tiles []tile, n int, r rectangle, scale float64, groups []string) ([]tile, rectangle) {
	sum := 0.0
	for _, t := range tiles[:n] {
		sum += float64(t.Size) * scale
	}
	wide := r.w >= r.h
	depth := sum / max(min(r.w, r.h), 1e-9)
	at := 0.0
	for _, t := range tiles[:n] {
		length := float64(t.Size) * scale / max(depth, 1e-9)
		q := rectangle{r.x, r.y + at, depth, length}
		if !wide {
			q = rectangle{r.x + at, r.y, length, depth}
		}
		at += length
		fmt.Fprintf(b, `<g><title>%s, %s</title><rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s" stroke="#fff"/>`,
			html.EscapeString(t.Label), bytesText(t.Size), q.x, q.y, q.w, q.h, palette[slices.Index(groups, t.Group)%len(palette)])
		if room := int(q.w / 6.2); room >= 4 && q.h >= 13 {
			fmt.Fprintf(b, `<text x="%.2f" y="%.2f" font-size="11">%s</text>`, q.x+3, q.y+11, html.EscapeString(shorten(t.Label, room)))
		}
		b.WriteString("</g>")
	}
	if wide {
		return tiles[n:], rectangle{r.x + depth, r.y, max(r.w-depth, 0), r.h}
	}
	return tiles[n:], rectangle{r.x, r.y + depth, r.w, max(r.h-depth, 0)}
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-1] + "…"
}
