package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/compare"
)

// weightRows is the quantized weights by kind: a row of numbers and two small pictures on the same axes in every row.
type weightRows struct {
	Decibels []tick // of the SQNR
	Sizes    []tick // of the differences, in times the weight's root mean square
	Grid     string
	Rows     []weightRow
}

type weightRow struct {
	Name                           string
	Layers, Bits, Mean, Least, Max string
	Dots                           []dot // one for a layer
	Bars                           []bar
}

type dot struct{ Path, Title string }

type bar struct {
	X, Y, W, H float64
	Title      string
}

// stripHeight is the height of a picture's drawing area, whose width is side.
const stripHeight = 20

// kind is the weights of one name in all layers.
type kind struct {
	name  string
	items []compare.Weight
}

// kindsOf sorts the weights that differ from the checkpoint's by their names without the layer.
func kindsOf(weights []compare.Weight) []kind {
	var kinds []kind
	for _, w := range weights {
		if math.IsInf(float64(w.SQNR), 1) {
			continue
		}
		_, _, rest, ok := ir.SplitLayer(w.Name)
		if !ok {
			rest = w.Name
		}
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == rest })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, kind{name: rest})
		}
		kinds[i].items = append(kinds[i].items, w)
	}
	return kinds
}

func newWeightRows(kinds []kind) *weightRows {
	out := &weightRows{}
	var all []float64
	most := 0.0
	for _, k := range kinds {
		for _, w := range k.items {
			all = append(all, float64(w.SQNR))
		}
		for _, s := range k.shares() {
			most = max(most, s)
		}
	}
	least, greatest, ok := spread(all)
	if !ok {
		least, greatest = 0, 10
	}
	least, greatest = 10*math.Floor(least/10), max(10*math.Ceil(greatest/10), 10*math.Floor(least/10)+10)
	place := func(db float64) float64 { return round(side * (db - least) / (greatest - least)) }
	step := max(10*niceStep((greatest-least)/10, 5), 10)
	for db := least; db <= greatest; db += step {
		out.Decibels = append(out.Decibels, tick{place(db), fmt.Sprintf("%g", db), anchorAt(place(db))})
		out.Grid += fmt.Sprintf("M%g 0V%d", place(db), stripHeight)
	}
	// Bin i of a histogram ends at 2^(i-7).
	for i, text := range map[int]string{2: "1/64", 5: "1/8", 8: "1"} {
		out.Sizes = append(out.Sizes, tick{At: 10 * float64(i), Text: text, Anchor: "middle"})
	}
	slices.SortFunc(out.Sizes, func(a, b tick) int { return int(a.At - b.At) })
	for _, k := range kinds {
		out.Rows = append(out.Rows, k.row(place, most))
	}
	return out
}

// shares returns the parts of a kind's elements in each bin of its histograms.
func (k kind) shares() []float64 {
	out := make([]float64, len(k.items[0].Histogram))
	total := 0.0
	for _, w := range k.items {
		for i, n := range w.Histogram {
			out[i] += float64(n)
			total += float64(n)
		}
	}
	for i := range out {
		out[i] /= max(total, 1)
	}
	return out
}

// row draws a kind; place gives that of a SQNR, most is the share that fills the height of a bar.
func (k kind) row(place func(db float64) float64, most float64) weightRow {
	r := weightRow{Name: k.name, Layers: fmt.Sprint(len(k.items))}
	sum, least, worst := 0.0, math.Inf(1), 0.0
	for _, w := range k.items {
		v := float64(w.SQNR)
		sum, least, worst = sum+v, math.Min(least, v), math.Max(worst, w.Max)
		if !isFinite(v) {
			continue
		}
		title := fmt.Sprintf("%.1f dB", v)
		if _, n, _, ok := ir.SplitLayer(w.Name); ok {
			title = fmt.Sprintf("layer %d: %s", n, title)
		}
		r.Dots = append(r.Dots, dot{fmt.Sprintf("M%g %dh0", place(v), stripHeight/2), title})
	}
	low, high := bitsRange(k.items)
	if r.Bits = fmt.Sprintf("%.2f", low); low != high {
		r.Bits = fmt.Sprintf("%.2f–%.2f", low, high)
	}
	r.Mean, r.Least = fmt.Sprintf("%.1f", sum/float64(len(k.items))), fmt.Sprintf("%.1f", least)
	r.Max = fmt.Sprintf("%.3g", worst)
	shares := k.shares()
	width := side / float64(len(shares))
	for i, s := range shares {
		if s > 0 {
			h := round(stripHeight * s / max(most, 1e-9))
			r.Bars = append(r.Bars, bar{X: round(float64(i)*width + width/10), Y: round(stripHeight - h),
				W: round(width * 0.8), H: h,
				Title: shareText(s) + " of the elements"})
		}
	}
	return r
}

func bitsRange(items []compare.Weight) (least, most float64) {
	least = math.Inf(1)
	for _, w := range items {
		least, most = min(least, w.BitsPerWeight), max(most, w.BitsPerWeight)
	}
	return least, most
}
