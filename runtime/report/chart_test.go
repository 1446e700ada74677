package report

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/runtime/compare"
	"github.com/etc-ml/etc/runtime/inspect"
)

// numbers are those of a path, without its letters.
func numbers(t require.TestingT, path string) []float64 {
	var out []float64
	for _, n := range regexp.MustCompile(`-?[\d.]+(e[+-]?\d+)?`).FindAllString(path, -1) {
		v, err := strconv.ParseFloat(n, 64)
		require.NoError(t, err)
		out = append(out, v)
	}
	return out
}

// Whatever the values, curves, marks and labels lie within the drawing area, and the axis reaches over the greatest.
func TestChartsStayInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64Range(0, 1e12), rapid.Float64Range(0, 1e-9),
			rapid.SampledFrom([]float64{math.NaN(), math.Inf(1)}))
		y := rapid.SliceOfN(value, 1, 40).Draw(t, "y")
		marks := rapid.SliceOfN(rapid.IntRange(0, len(y)-1), 0, 5).Draw(t, "marks")
		c, ok := newChart(curve{title: "c", y: y, x: indexTicks(len(y), "token "), marks: marks})
		_, most, some := spread(y)
		finite := 0
		for _, v := range y {
			if isFinite(v) {
				finite++
			}
		}
		require.Equal(t, finite >= 2 && some && most > 0, ok)
		if !ok {
			return
		}
		for _, v := range append(append(numbers(t, c.Line), numbers(t, c.Area)...),
			append(numbers(t, c.Marks), numbers(t, c.Grid)...)...) {
			require.True(t, v >= 0 && v <= side, "%g in %+v", v, c)
		}
		for _, l := range append(append([]tick{}, c.X...), c.Y...) {
			require.True(t, l.At >= 0 && l.At <= side, "%+v", l)
			require.LessOrEqual(t, len(l.Text), max(c.TickWidth, len("token 0")))
		}
		require.Contains(t, []int{3, 4, 5}, len(c.Y), "%+v", c.Y)
		top, err := strconv.ParseFloat(c.Y[len(c.Y)-1].Text, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, top, most*(1-1e-5))
		require.Equal(t, float64(side), c.Y[len(c.Y)-1].At)
	})
}

func TestChartLeavesGaps(t *testing.T) {
	c, ok := newChart(curve{y: []float64{1, 2, math.NaN(), 4, 0}, x: indexTicks(5, "layer "), marks: []int{1, 2}})
	require.True(t, ok)
	require.Equal(t, "M0 75L25 50M75 0L100 100", c.Line)
	require.Equal(t, "M0 100L0 75L25 50L25 100ZM75 100L75 0L100 100L100 100Z", c.Area)
	require.Equal(t, "M25 50h0", c.Marks)
	require.Equal(t, []tick{{0, "layer 0", "start"}, {25, "1", "middle"}, {50, "2", "middle"}, {75, "3", "middle"},
		{100, "4", "end"}}, c.X)
}

// At most seven labels, so that they do not touch on a narrow page.
func TestIndexTicksAreFew(t *testing.T) {
	for _, n := range []int{1, 2, 7, 8, 64, 1000, 123457} {
		ticks := indexTicks(n, "")
		require.NotEmpty(t, ticks)
		require.LessOrEqual(t, len(ticks), 7, n)
		require.Less(t, ticks[len(ticks)-1].At, float64(n))
	}
}

func TestByteUnit(t *testing.T) {
	for n, want := range map[int64]string{0: "bytes", 1023: "bytes", 1024: "KiB", 1 << 20: "MiB", 3 << 30: "GiB",
		5 << 40: "TiB", 5 << 50: "TiB"} {
		size, name := byteUnit(n)
		require.Equal(t, want, name)
		require.Less(t, float64(n)/size, 1024*1024.0)
	}
}

// The tiles of every layout fill it, lie within it and keep to the place of their group.
func TestTreemapFillsItsArea(t *testing.T) {
	tiles := []tile{{"layer 0 x", "x", 60}, {"b", "y", 25}, {"layer 1 x", "x", 10}, {"d", "z", 5},
		{"none", "z", 0}, {"tiny", "w", 0}}
	m := newTreemap(groupsOf(tiles))
	require.Len(t, m.Layouts, 2)
	for _, l := range m.Layouts {
		area := map[string]float64{}
		require.Len(t, l.Boxes, 4, "a tile without size is left out")
		for _, b := range l.Boxes {
			require.True(t, b.X >= 0 && b.Y >= 0 && b.X+b.W <= 100.02 && b.Y+b.H <= 100.02, "%+v", b)
			area[b.Class] += b.W * b.H / 100
		}
		require.InDelta(t, 70, area["k1"], 0.1)
		require.InDelta(t, 25, area["k2"], 0.1)
		require.InDelta(t, 5, area["k3"], 0.1)
	}
	require.Equal(t, []key{{"k1", "x", "70 B", "70 %"}, {"k2", "y", "25 B", "25 %"}, {"k3", "z", "5 B", "5.0 %"}},
		m.Legend)
	require.Equal(t, box{X: 0, Y: 0, W: 60, H: 100, Class: "k1", First: true, Title: "layer 0 x, 60 B", Text: "layer 0",
		Heading: []string{"x"}}, m.Layouts[0].Boxes[0])
	require.Equal(t, []string{"mlp", "up_proj"}, headingOf("mlp up_proj", rectangle{w: 80, h: 40}))
	require.Nil(t, headingOf("mlp up_proj", rectangle{w: 80, h: 30}))
	_, text := textOf("x", "layer 12", rectangle{w: 50, h: 40}, false)
	require.Equal(t, "12", text)
}

// No colour stands for two kinds; kinds after the colours, and those too small to be seen, are summed up.
func TestTreemapLegendNamesAColourOnce(t *testing.T) {
	var tiles []tile
	for i := range 12 {
		name := string(rune('a' + i))
		tiles = append(tiles, tile{name, name, int64(1000 - i)})
	}
	legend := newTreemap(groupsOf(tiles)).Legend
	require.Len(t, legend, colours+1)
	require.Equal(t, key{restClass, "5 other kinds", "4.8 KiB", "42 %"}, legend[colours])
	seen := map[string]bool{}
	for _, k := range legend {
		require.False(t, seen[k.Class], "%+v", legend)
		seen[k.Class] = true
	}
	small := newTreemap(groupsOf([]tile{{"a", "a", 1000}, {"b", "b", 4}})).Legend
	require.Equal(t, []key{{"k1", "a", "1000 B", "100 %"}, {restClass, "b", "4 B", "0.4 %"}}, small)
}

// Text that a box shows has room in it, at the least width at which the page shows the layout.
func TestTreemapTextHasRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tiles []tile
		for range rapid.IntRange(1, 60).Draw(t, "tiles") {
			kind := rapid.SampledFrom([]string{"mlp experts", "self_attn", "lm_head", "q", "metadata"}).Draw(t, "kind")
			tiles = append(tiles, tile{"layer 7 " + kind, kind, rapid.Int64Range(1, 1<<40).Draw(t, "size")})
		}
		for i, l := range newTreemap(groupsOf(tiles)).Layouts {
			for _, b := range l.Boxes {
				lines := slices.Clone(b.Heading)
				if b.Text != "" {
					lines = append(lines, b.Text)
				}
				for _, line := range lines {
					require.LessOrEqual(t, float64(len(line))*glyphWidth+paddingWidth,
						b.W*float64(shapes[i].width)/100+0.1)
				}
				if len(lines) > 0 {
					require.LessOrEqual(t, float64(len(lines))*lineHeight+paddingHigh, b.H*float64(l.Height)/100+0.1)
				}
			}
		}
	})
}

func TestBitRowsShowWhatDiffers(t *testing.T) {
	weight := func(name string, bits, group int) inspect.Weight {
		return inspect.Weight{Name: name, Part: "codes", Bits: bits, Group: group}
	}
	same := []inspect.Weight{weight("layers.0.mlp.up_proj.weight.packed", 4, 64),
		weight("layers.1.mlp.up_proj.weight.packed", 4, 64),
		weight("lm_head.weight.packed", 6, 64),
		{Name: "layers.0.mlp.up_proj.weight.scales", Part: "scales", Bits: 4, Group: 64}}
	require.Nil(t, newBitRows(same), "nothing differs")
	b := newBitRows(append(same, weight("layers.0.o.weight.packed", 8, 64), weight("layers.1.o.weight.packed", 4, 32),
		weight("layers.2.o.weight.packed", 4, 64)))
	require.Equal(t, 3, b.Layers)
	require.Equal(t, []key{{Class: "k1", Name: "4 bits, groups of 64"}, {Class: "k2", Name: "4 bits, groups of 32"},
		{Class: "k3", Name: "8 bits, groups of 64"}}, b.Legend)
	require.Len(t, b.Rows, 1)
	require.Equal(t, "o", b.Rows[0].Name)
	require.Equal(t, []bitCell{{0, "k3", "layer 0: 8 bits, groups of 64", form{8, 64}},
		{1, "k2", "layer 1: 4 bits, groups of 32", form{4, 32}},
		{2, "k1", "layer 2: 4 bits, groups of 64", form{4, 64}}}, b.Rows[0].Cells)
}

// The rows of the weights share their axes, and their pictures lie within them.
func TestWeightRowsShareTheirAxes(t *testing.T) {
	rows := newWeightRows(kindsOf([]compare.Weight{
		{Name: "layers.0.a.weight", SQNR: 21, BitsPerWeight: 4.5, Histogram: [10]int64{1, 3}},
		{Name: "layers.4.a.weight", SQNR: 47, BitsPerWeight: 8.5, Histogram: [10]int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 4}},
		{Name: "b.weight", SQNR: compare.Decibel(math.NaN()), Histogram: [10]int64{5}},
	}))
	require.Equal(t, []tick{{0, "20", "start"}, {33.33, "30", "middle"}, {66.67, "40", "middle"}, {100, "50", "end"}},
		rows.Decibels)
	require.Equal(t, []tick{{20, "1/64", "middle"}, {50, "1/8", "middle"}, {80, "1", "middle"}}, rows.Sizes)
	require.Len(t, rows.Rows, 2)
	require.Equal(t, []dot{{"M3.33 10h0", "layer 0: 21.0 dB"}, {"M90 10h0", "layer 4: 47.0 dB"}}, rows.Rows[0].Dots)
	require.Equal(t, "4.50–8.50", rows.Rows[0].Bits)
	require.Empty(t, rows.Rows[1].Dots)
	require.Equal(t, "NaN", rows.Rows[1].Least)
	require.Equal(t, []bar{{1, 0, 8, stripHeight, "100 % of the elements"}}, rows.Rows[1].Bars,
		"the greatest share fills the height")
	for _, b := range rows.Rows[0].Bars {
		require.True(t, b.X >= 0 && b.X+b.W <= side && b.Y >= 0 && b.Y+b.H <= stripHeight+0.01, "%+v", b)
	}
}
