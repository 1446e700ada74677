package report

import (
	"fmt"
	"math"
	"strings"
)

// chart is one curve over 0, 1, 2, … The drawing area is a square of 100 by 100 that the page stretches; text stands
// beside it at places in percent, so that it keeps its size and is never clipped.
type chart struct {
	Title string
	Unit  string
	Note  string // under the chart; what a reader should see in it

	X, Y                    []tick
	Grid, Area, Line, Marks string // paths; y grows downwards
	TickWidth               int    // characters of the longest tick of y
}

// tick is a label of an axis at a place in percent of its length.
type tick struct {
	At     float64
	Text   string
	Anchor string // start, middle or end: the part of the text that is at the place
}

// side is the length of the sides of a chart's drawing area.
const side = 100

// curve is the input of newChart.
type curve struct {
	title, unit string
	y           []float64 // what is not finite has no point
	top         float64   // the least upper end of the axis; 0 for that of the values
	x           []tick    // At is an index of y
	marks       []int     // indexes of points to mark
}

// newChart draws a curve from zero upwards; ok is false where fewer than two values are finite, or none differs from
// zero: then a chart says nothing.
func newChart(c curve) (out chart, ok bool) {
	most, finite := 0.0, 0
	for _, v := range c.y {
		if isFinite(v) {
			most, finite = max(most, v), finite+1
		}
	}
	if finite < 2 || most == 0 {
		return chart{}, false
	}
	out = chart{Title: c.title, Unit: c.unit}
	end := out.scale(max(most, c.top))
	place := func(i int) (x, y float64) {
		return side * float64(i) / float64(len(c.y)-1), side * (1 - max(c.y[i], 0)/end)
	}
	out.Line, out.Area = curvePaths(c.y, place)
	var marks strings.Builder
	for _, i := range c.marks {
		if isFinite(c.y[i]) {
			x, y := place(i)
			fmt.Fprintf(&marks, "M%g %gh0", round(x), round(y))
		}
	}
	out.Marks = marks.String()
	for _, t := range c.x {
		x := side * t.At / float64(len(c.y)-1)
		out.X = append(out.X, tick{round(x), t.Text, anchorAt(x)})
	}
	return out, true
}

// scale sets the ticks of y for values from 0 to most, and gives the upper end of the axis.
func (c *chart) scale(most float64) float64 {
	step := niceStep(most, 4)
	end := step * math.Ceil(most/step-1e-9)
	var grid strings.Builder
	for i := 0; float64(i)*step <= end*(1+1e-9); i++ {
		at := round(side * float64(i) * step / end)
		text := fmt.Sprintf("%.6g", float64(i)*step)
		c.Y = append(c.Y, tick{At: at, Text: text})
		c.TickWidth = max(c.TickWidth, len(text))
		fmt.Fprintf(&grid, "M0 %gH%d", side-at, side)
	}
	c.Grid = grid.String()
	return end
}

// curvePaths joins the finite values by lines, with a gap where others are, and fills what is under them.
func curvePaths(values []float64, place func(i int) (x, y float64)) (line, area string) {
	var l, a strings.Builder
	open, last := false, 0.0
	for i, v := range values {
		if !isFinite(v) {
			if open {
				fmt.Fprintf(&a, "L%g %dZ", last, side)
			}
			open = false
			continue
		}
		x, y := place(i)
		x, y = round(x), round(y)
		if open {
			fmt.Fprintf(&l, "L%g %g", x, y)
		} else {
			fmt.Fprintf(&l, "M%g %g", x, y)
			fmt.Fprintf(&a, "M%g %d", x, side)
		}
		fmt.Fprintf(&a, "L%g %g", x, y)
		open, last = true, x
	}
	if open {
		fmt.Fprintf(&a, "L%g %dZ", last, side)
	}
	return l.String(), a.String()
}

// indexTicks labels some of the indexes 0 to n-1, at round distances; the first label has the prefix.
func indexTicks(n int, prefix string) []tick {
	step := max(int(niceStep(float64(n-1), 6)), 1)
	var out []tick
	for i := 0; i < n; i += step {
		text := fmt.Sprint(i)
		if i == 0 {
			text = prefix + text
		}
		out = append(out, tick{At: float64(i), Text: text})
	}
	return out
}

// anchorAt returns the part of a label that stands at x of an axis, so that the label stays within it.
func anchorAt(x float64) string {
	switch {
	case x < 4:
		return "start"
	case x > 96:
		return "end"
	}
	return "middle"
}

// niceStep returns the least of 1, 2, 5 times a power of ten that divides the range into at most n steps.
func niceStep(most float64, n int) float64 {
	if most <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most/float64(n))))
	for _, m := range []float64{1, 2, 5} {
		if most <= m*unit*float64(n)*(1+1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// spread returns the least and the greatest finite value; ok is false without one.
func spread(values []float64) (least, most float64, ok bool) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if isFinite(v) {
			least, most = min(least, v), max(most, v)
		}
	}
	return least, most, least <= most
}

// round keeps two digits, which is finer than a pixel.
func round(v float64) float64 { return math.Round(v*100) / 100 }
