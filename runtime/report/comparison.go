package report

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/compare"
)

// comparisonData is the data block of a comparison page.
type comparisonData struct {
	Weights []compare.Weight `json:"weights"`
	Layers  []compare.Layer  `json:"layers"`
	Logits  []compare.Logits `json:"logits"`
}

// Comparison writes the page of a program against its checkpoint: quantization error by layer and kind
// with histograms, the residual stream and the routers by layer, the logits by position.
func Comparison(w io.Writer, file, checkpoint string, weights []compare.Weight, layers []compare.Layer, logits []compare.Logits) error {
	p := &page{Title: filepath.Base(file) + " against " + filepath.Base(checkpoint), Subtitle: "etc verify --against --html: float32, the checkpoint unquantized"}
	if n := len(logits); n > 0 {
		var mean, kl, most float64
		agrees := 0
		for _, l := range logits {
			mean, kl, most = mean+float64(l.Mean)/float64(n), kl+float64(l.KL)/float64(n), max(most, float64(l.Max))
			if l.Agrees {
				agrees++
			}
		}
		p.Facts = []fact{{"tokens compared", fmt.Sprint(n)}, {"mean logit error", fmt.Sprintf("%.4g", mean)}, {"largest logit error", fmt.Sprintf("%.4g", most)},
			{"KL divergence", fmt.Sprintf("%.4g nats", kl)}, {"same most likely token", fmt.Sprintf("%.1f %%", 100*float64(agrees)/float64(n))}}
	}
	if err := errorSections(p, weights); err != nil {
		return err
	}
	if err := layerSection(p, layers); err != nil {
		return err
	}
	if len(logits) > 0 {
		y := make([]float64, len(logits))
		kl := make([]float64, len(logits))
		for i, l := range logits {
			y[i], kl[i] = float64(l.Max), float64(l.KL)
		}
		c, err := lines("Logits by token", "token", "", line{"largest error", y}, line{"KL divergence", kl})
		if err != nil {
			return err
		}
		p.Sections = append(p.Sections, section{Title: "Logits", Charts: []chart{{SVG: c}}})
	}
	return p.write(w, comparisonData{weights, layers, logits})
}

// errorSections adds the quantized weights by kind: SQNR by layer, histograms of the differences.
func errorSections(p *page, weights []compare.Weight) error {
	type kind struct {
		name  string
		items []compare.Weight
	}
	var kinds []*kind
	for _, w := range weights {
		if math.IsInf(float64(w.SQNR), 1) {
			continue
		}
		_, _, rest, ok := ir.SplitLayer(w.Name)
		if !ok {
			rest = w.Name
		}
		i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == rest })
		if i < 0 {
			kinds = append(kinds, &kind{name: rest})
			i = len(kinds) - 1
		}
		kinds[i].items = append(kinds[i].items, w)
	}
	if len(kinds) == 0 {
		p.Sections = append(p.Sections, section{Title: "Weights", Note: "Every weight is the checkpoint's, exactly."})
		return nil
	}
	t := &table{Head: []string{"weight", "layers", "bits per weight", "mean SQNR dB", "min SQNR dB", "max error"}}
	s := section{Title: "Quantization error", Note: "Signal-to-noise ratio of each kind of weight by layer."}
	var curves []line
	var histograms []chart
	for _, k := range kinds {
		var y []float64
		sum, least, most := 0.0, math.Inf(1), 0.0
		counts := make([]float64, len(k.items[0].Histogram))
		for _, w := range k.items {
			v := float64(w.SQNR)
			y = append(y, v)
			sum, least, most = sum+v, math.Min(least, v), math.Max(most, w.Max)
			for i, n := range w.Histogram {
				counts[i] += float64(n)
			}
		}
		t.Rows = append(t.Rows, []string{k.name, fmt.Sprint(len(k.items)), fmt.Sprintf("%.2f", k.items[0].BitsPerWeight), fmt.Sprintf("%.1f", sum/float64(len(y))), fmt.Sprintf("%.1f", least), fmt.Sprintf("%.3g", most)})
		if len(y) > 1 {
			curves = append(curves, line{k.name, y})
		}
		names := make([]string, len(counts))
		for i := range names {
			names[i] = fmt.Sprintf("2^%d", i-len(counts)+2)
		}
		c, err := bars(k.name, "elements", names, counts)
		if err != nil {
			return err
		}
		histograms = append(histograms, chart{SVG: c})
	}
	if len(curves) > 0 {
		c, err := lines("Signal-to-noise ratio", "layers with this weight, in order", "SQNR dB", curves...)
		if err != nil {
			return err
		}
		s.Charts = []chart{{SVG: c}}
	}
	s.Table = t
	p.Sections = append(p.Sections, s, section{Title: "How large the differences are", Note: "Elements by the magnitude of their difference; each bar is up to the named power of two times the weight's root mean square.", Charts: histograms})
	return nil
}

func layerSection(p *page, layers []compare.Layer) error {
	if len(layers) == 0 {
		return nil
	}
	errors := make([]float64, len(layers))
	var routers []float64
	t := &table{Head: []string{"layer", "relative error", "router agreement"}}
	for i, l := range layers {
		errors[i] = float64(l.Error)
		agreement := "–"
		if l.Router >= 0 {
			routers = append(routers, 100*l.Router)
			agreement = fmt.Sprintf("%.1f %%", 100*l.Router)
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(l.Layer), fmt.Sprintf("%.4f", l.Error), agreement})
	}
	c, err := lines("Residual stream", "layer", "relative error", line{y: errors})
	if err != nil {
		return err
	}
	s := section{Title: "Layers", Charts: []chart{{SVG: c}}, Table: t}
	if len(routers) > 0 {
		c, err := lines("Routers", "layer", "% of experts that agree", line{y: routers})
		if err != nil {
			return err
		}
		s.Charts = append(s.Charts, chart{SVG: c})
	}
	p.Sections = append(p.Sections, s)
	return nil
}
