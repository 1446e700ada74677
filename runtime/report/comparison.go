package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/etc-ml/etc/runtime/compare"
)

// comparisonData is the data block of a comparison page.
type comparisonData struct {
	Weights []compare.Weight `json:"weights"`
	Layers  []compare.Layer  `json:"layers"`
	Logits  []compare.Logits `json:"logits"`
	Figures []Figure         `json:"figures,omitempty"`
}

// Comparison writes the page of a program against its checkpoint: the logits by token, the residual stream and the
// routers by layer, quantization error by kind of weight. More figures stand after those at its head.
func Comparison(w io.Writer, file, checkpoint string, weights []compare.Weight, layers []compare.Layer,
	logits []compare.Logits, more ...Figure) error {
	p := &page{Title: filepath.Base(file) + " against " + filepath.Base(checkpoint),
		Subtitle: "How far the program is from its checkpoint, unquantized and computed in float32."}
	p.Facts = append(comparisonFacts(logits), more...)
	if len(logits) > 0 {
		p.Sections = append(p.Sections, logitSection(logits))
	}
	if len(layers) > 0 {
		p.Sections = append(p.Sections, layerSection(layers))
	}
	p.Sections = append(p.Sections, weightSection(weights))
	return p.write(w, comparisonData{weights, layers, logits, more})
}

func comparisonFacts(logits []compare.Logits) []fact {
	n := len(logits)
	if n == 0 {
		return nil
	}
	var mean, kl, most float64
	agrees := 0
	for _, l := range logits {
		mean, kl, most = mean+float64(l.Mean)/float64(n), kl+float64(l.KL)/float64(n), max(most, float64(l.Max))
		if l.Agrees {
			agrees++
		}
	}
	return []fact{
		{"tokens compared", fmt.Sprint(n)},
		{"same most likely token", fmt.Sprintf("%.1f %%", 100*float64(agrees)/float64(n))},
		{"KL divergence", fmt.Sprintf("%.4g nats", kl)},
		{"mean logit error", fmt.Sprintf("%.4g", mean)},
		{"largest logit error", fmt.Sprintf("%.4g", most)},
	}
}

// farthest is how many tokens the table of logits lists.
const farthest = 10

// logitSection draws the logits by token, one chart for each measure, and lists the tokens that are farthest off. A
// token goes by its number among all that were compared, since positions begin anew with each prompt.
func logitSection(logits []compare.Logits) section {
	s := section{Title: "Logits by token"}
	kl, most := make([]float64, len(logits)), make([]float64, len(logits))
	var other []int
	for i, l := range logits {
		kl[i], most[i] = float64(l.KL), float64(l.Max)
		if !l.Agrees {
			other = append(other, i)
		}
	}
	for _, c := range []curve{
		{title: "KL divergence", unit: "nats", y: kl},
		{title: "Largest error of a logit", y: most},
	} {
		c.x, c.marks = indexTicks(len(logits), "token "), other
		if drawn, ok := newChart(c); ok {
			if drawn.Marks != "" {
				s.MarkNote = "Tokens at which the program's most likely token is another than the checkpoint's."
			}
			drawn.Note = mostNote(c.y, "at token %d")
			s.Charts = append(s.Charts, drawn)
		}
	}
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	// A NaN is the farthest: it has no distance at all.
	rank := func(i int) float64 {
		if v := kl[i]; !math.IsNaN(v) {
			return v
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(b), rank(a)) })
	order = order[:min(farthest, len(order))]
	t := &table{Summary: fmt.Sprintf("The %d tokens that are farthest off", len(order)),
		Head: []string{"token", "KL divergence, nats", "mean error", "largest error", "most likely token"}}
	if len(order) == 1 {
		t.Summary = ""
	}
	for _, i := range order {
		l, same := logits[i], "another"
		if l.Agrees {
			same = "the same"
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(i), fmt.Sprintf("%.3g", float64(l.KL)),
			fmt.Sprintf("%.3g", float64(l.Mean)), fmt.Sprintf("%.3g", float64(l.Max)), same})
	}
	s.Table = t
	if len(other) == 0 && isZero(kl) && isZero(most) {
		s.Note, s.Table = "The logits are the checkpoint's at every token, exactly.", nil
	}
	return s
}

// mostNote tells the greatest value and where it is; the format has a verb for the index.
func mostNote(values []float64, where string) string {
	at := -1
	for i, v := range values {
		if isFinite(v) && (at < 0 || v > values[at]) {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("The most is %.4g, "+where+".", values[at], at)
}

// layerSection draws the residual stream and, where there are routers, the experts that differ.
func layerSection(layers []compare.Layer) section {
	errors, others := make([]float64, len(layers)), make([]float64, len(layers))
	routers := slices.ContainsFunc(layers, func(l compare.Layer) bool { return l.Router >= 0 })
	t := &table{Summary: "Numbers by layer", Head: []string{"layer", "relative error"}}
	if routers {
		t.Head = append(t.Head, "router agreement")
	}
	for i, l := range layers {
		errors[i], others[i] = float64(l.Error), math.NaN()
		row := []string{fmt.Sprint(l.Layer), fmt.Sprintf("%.4f", l.Error)}
		if l.Router >= 0 {
			others[i] = 100 * (1 - l.Router)
			row = append(row, fmt.Sprintf("%.1f %%", 100*l.Router))
		} else if routers {
			row = append(row, "–")
		}
		t.Rows = append(t.Rows, row)
	}
	s := section{Title: "Layers", Note: layerNote(errors, others), Table: t}
	x := indexTicks(len(layers), "layer ")
	for _, c := range []curve{
		{title: "Residual stream", unit: "relative error", y: errors, x: x},
		{title: "Routers", unit: "% of the chosen experts differ", y: others, x: x},
	} {
		if drawn, ok := newChart(c); ok {
			drawn.Note = mostNote(c.y, "at layer %d")
			s.Charts = append(s.Charts, drawn)
		}
	}
	if len(s.Charts) == 0 {
		t.Summary = ""
	}
	if isZero(errors) && (!routers || isZero(others)) {
		s.Table = nil
	}
	return s
}

// layerNote says what the charts show, or what they need not show.
func layerNote(errors, others []float64) string {
	note := "The relative error of the residual stream where it enters each layer."
	if isZero(errors) {
		note = "The residual stream is the checkpoint's at every layer, exactly."
	}
	if _, most, ok := spread(others); ok && most == 0 {
		note += " Every router chooses the same experts."
	}
	return note
}

// isZero tells whether there are values and all of them are zero.
func isZero(values []float64) bool {
	return len(values) > 0 && !slices.ContainsFunc(values, func(v float64) bool { return v != 0 })
}

func weightSection(weights []compare.Weight) section {
	kinds := kindsOf(weights)
	s := section{Title: "Weights"}
	switch {
	case len(weights) == 0:
		s.Note = "No weight of the file has the name of one of the checkpoint's."
	case len(kinds) == 0:
		s.Note = "Every weight is the checkpoint's, exactly."
	default:
		s.Note = "The signal-to-noise ratio (SQNR) of each kind of weight: a point is a layer, the right is better. " +
			"Next to it, " +
			"how large the differences are, in times the weight's root mean square: the height of a bar is " +
			"its share of " +
			"the elements, on one scale in all rows."
		s.Weights = newWeightRows(kinds)
	}
	return s
}
