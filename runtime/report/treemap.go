package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// tile is a rectangle of a treemap: its area is its size.
type tile struct {
	Label string `json:"label"`
	Group string `json:"group"` // what colours it
	Size  int64  `json:"bytes"`
}

// treemap is tiles as nested squarified treemaps (Bruls, Huizing, van Wijk, 2000): groups first, the tiles of each
// inside of it, so that what has one colour lies together. It has a layout for each width of a page; text that has no
// room is left out of the box, never cut by it.
type treemap struct {
	Layouts []layout
	Legend  []key
}

// layout is a treemap in a place of some shape.
type layout struct {
	Class  string // wide or narrow
	Height int    // pixels
	Boxes  []box
}

// box is a tile at its place, in percent of the treemap's sides.
type box struct {
	X, Y, W, H  float64
	Class       string
	First       bool // the first of its group
	Title, Text string
	Heading     []string // lines
}

// The groups with a colour of their own: at most this many, and none whose share of the whole is too small to see. The
// others share one colour.
const (
	colours    = 7
	leastShare = 0.005
)

// restClass is the colour of what has none of its own.
const restClass = "k0"

// The shapes in pixels: the least width at which the page shows each, which decides what text has room.
var shapes = []struct {
	class         string
	width, height int
}{{"wide", 680, 420}, {"narrow", 330, 480}}

// group is the tiles of one kind.
type group struct {
	name  string
	size  int64
	tiles []tile
}

// newTreemap lays groups of tiles out.
func newTreemap(groups []group) *treemap {
	own := coloured(groups)
	m := &treemap{Legend: legendOf(groups, own)}
	for _, s := range shapes {
		l := layout{Class: s.class, Height: s.height}
		sizes := make([]int64, len(groups))
		for i, g := range groups {
			sizes[i] = g.size
		}
		for i, outer := range squarify(sizes, rectangle{0, 0, float64(s.width), float64(s.height)}) {
			class := classOfGroup(i, own)
			l.Boxes = append(l.Boxes, boxesOf(groups[i], outer, class, float64(s.width), float64(s.height))...)
		}
		m.Layouts = append(m.Layouts, l)
	}
	return m
}

// groupsOf sorts tiles into groups, the largest group and the largest tile of each first; those without a size are left
// out.
func groupsOf(tiles []tile) []group {
	var groups []group
	for _, t := range tiles {
		if t.Size <= 0 {
			continue
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.name == t.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{name: t.Group})
		}
		groups[i].size += t.Size
		groups[i].tiles = append(groups[i].tiles, t)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.size, a.size) })
	for _, g := range groups {
		slices.SortStableFunc(g.tiles, func(a, b tile) int { return cmp.Compare(b.Size, a.Size) })
	}
	return groups
}

// coloured is how many of the groups have a colour of their own.
func coloured(groups []group) int {
	total := int64(0)
	for _, g := range groups {
		total += g.size
	}
	n := 0
	for n < min(colours, len(groups)) && float64(groups[n].size) >= leastShare*float64(total) {
		n++
	}
	return n
}

// groupClass returns the class of colour i.
func groupClass(i int) string { return classOfGroup(i, colours) }

// classOfGroup returns the class of group i. The first own groups have colours of their own.
func classOfGroup(i, own int) string {
	if i >= own {
		return restClass
	}
	return fmt.Sprintf("k%d", i+1)
}

// legendOf names each colour once; the groups without one are summed up.
func legendOf(groups []group, own int) []key {
	total, rest := int64(0), int64(0)
	for i, g := range groups {
		total += g.size
		if i >= own {
			rest += g.size
		}
	}
	entry := func(class, name string, size int64) key {
		return key{class, name, bytesText(size), shareText(float64(size) / float64(total))}
	}
	var out []key
	for i, g := range groups[:own] {
		out = append(out, entry(groupClass(i), g.name, g.size))
	}
	switch others := len(groups) - own; {
	case others == 1:
		out = append(out, entry(restClass, groups[own].name, rest))
	case others > 1:
		out = append(out, entry(restClass, fmt.Sprintf("%d other kinds", others), rest))
	}
	return out
}

// shareText returns a share in percent, with a digit where it is small.
func shareText(v float64) string {
	switch {
	case v < 0.001:
		return "under 0.1 %"
	case v < 0.1:
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// boxesOf lays the tiles of a group out inside of its rectangle. The first tile carries the group's name.
func boxesOf(g group, outer rectangle, class string, width, height float64) []box {
	sizes := make([]int64, len(g.tiles))
	for i, t := range g.tiles {
		sizes[i] = t.Size
	}
	var out []box
	for i, r := range squarify(sizes, outer) {
		t := g.tiles[i]
		b := box{Class: class, First: i == 0, Title: t.Label + ", " + bytesText(t.Size)}
		b.X, b.W = round(100*r.x/width), round(100*r.w/width)
		b.Y, b.H = round(100*r.y/height), round(100*r.h/height)
		b.Heading, b.Text = textOf(g.name, shortLabel(t), r, i == 0)
		out = append(out, b)
	}
	return out
}

// textOf returns the lines of a tile that have room: the group's name in the first tile, what sets the tile apart in
// all; of a layer, its number alone if need be.
func textOf(group, label string, r rectangle, first bool) (heading []string, text string) {
	if first {
		heading = headingOf(group, r)
	}
	number := strings.TrimPrefix(label, "layer ")
	for _, text := range []string{label, number} {
		if label != group && fits(text, r, len(heading)) {
			return heading, text
		}
	}
	return heading, ""
}

// headingOf returns a group's name in one line or a line for each word, nil where neither has room.
func headingOf(group string, r rectangle) []string {
	if fits(group, r, 0) {
		return []string{group}
	}
	words := strings.Fields(group)
	for i, word := range words {
		if !fits(word, r, i) {
			return nil
		}
	}
	return words
}

// shortLabel returns a tile's label without the name of its group, which stands in the first tile.
func shortLabel(t tile) string {
	return strings.TrimSuffix(t.Label, " "+t.Group)
}

// Measures of a tile's text in pixels, those of page.css: the widest usual glyph of a system font at 12 px, the height
// of a line, the padding and border of both sides.
const (
	glyphWidth, lineHeight    = 7.0, 16.0
	paddingWidth, paddingHigh = 12.0, 4.0
)

// fits tells whether a text has room as the line of that number.
func fits(text string, r rectangle, line int) bool {
	return float64(len([]rune(text)))*glyphWidth+paddingWidth <= r.w && float64(line+1)*lineHeight+paddingHigh <= r.h
}

type rectangle struct{ x, y, w, h float64 }

// squarify divides a rectangle into areas in the ratio of sizes, which fall, with aspect ratios near one.
func squarify(sizes []int64, r rectangle) []rectangle {
	total := 0.0
	for _, n := range sizes {
		total += float64(n)
	}
	scale := r.w * r.h / max(total, 1)
	var out []rectangle
	for len(sizes) > 0 {
		n := bestRow(sizes, r, scale)
		row, left := layRow(sizes[:n], r, scale)
		out, sizes, r = append(out, row...), sizes[n:], left
	}
	return out
}

// bestRow returns how many areas to lay along the shorter side so that the worst aspect ratio is least.
func bestRow(sizes []int64, r rectangle, scale float64) int {
	side := min(r.w, r.h)
	sum, worst := 0.0, 0.0
	for i, n := range sizes {
		area := float64(n) * scale
		sum += area
		first := float64(sizes[0]) * scale
		ratio := max(side*side*first/(sum*sum), sum*sum/(side*side*max(area, 1e-9)))
		if i > 0 && ratio > worst {
			return i
		}
		worst = ratio
	}
	return len(sizes)
}

// layRow lays areas along the shorter side of r and gives what is left of it.
func layRow(sizes []int64, r rectangle, scale float64) (row []rectangle, left rectangle) {
	sum := 0.0
	for _, n := range sizes {
		sum += float64(n) * scale
	}
	wide := r.w >= r.h
	depth := sum / max(min(r.w, r.h), 1e-9)
	at := 0.0
	for _, n := range sizes {
		length := float64(n) * scale / max(depth, 1e-9)
		if wide {
			row = append(row, rectangle{r.x, r.y + at, depth, length})
		} else {
			row = append(row, rectangle{r.x + at, r.y, length, depth})
		}
		at += length
	}
	if wide {
		return row, rectangle{r.x + depth, r.y, max(r.w-depth, 0), r.h}
	}
	return row, rectangle{r.x, r.y + depth, r.w, max(r.h-depth, 0)}
}
