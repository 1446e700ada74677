package command

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
)

// qualityRow sums up the weights of one kind: weights whose names differ only in the layer's number, and that are
// stored in the same form.
type qualityRow struct {
	kind, stored    string
	count           int
	elements, bytes int64
	squares         float64 // of the relative errors
	measured        int
}

// qualityRows puts weights of a kind together, in the order in which they first appear.
func qualityRows(r *passes.Report) []*qualityRow {
	var rows []*qualityRow
	index := map[[2]string]*qualityRow{}
	for _, w := range r.Weights {
		key := [2]string{kindOfName(w), storedAs(w)}
		row := index[key]
		if row == nil {
			row = &qualityRow{kind: key[0], stored: key[1]}
			index[key], rows = row, append(rows, row)
		}
		row.count++
		row.elements += w.Elements
		row.bytes += w.Bytes
		if e, ok := w.Error(); ok {
			row.squares += e * e
			row.measured++
		}
	}
	return rows
}

// kindOfName returns a weight's name with its layer's number left out.
func kindOfName(w *passes.Weight) string {
	_, _, name, ok := ir.SplitLayer(w.Name)
	if !ok {
		name = w.Name
	}
	name = strings.TrimSuffix(name, ".weight")
	switch w.Kind {
	case passes.EmbeddingWeight:
		name += " (embedding)"
	case passes.DraftWeight:
		name += " (draft)"
	}
	return name
}

// storedAs returns the form in which a weight is stored.
func storedAs(w *passes.Weight) string {
	if w.Bits == 0 {
		return fmt.Sprintf("%g bits", w.BitsPerWeight())
	}
	form := fmt.Sprintf("%dw/%d", w.Bits, w.GroupSize)
	if w.Mode != ir.Affine {
		form = fmt.Sprintf("%s/%d", w.Mode, w.GroupSize)
	}
	if w.Given {
		form += ", given"
	}
	return form
}

// error returns the relative error of the rounding of the row's weights, as a root mean square over those that were
// measured; false where none was.
func (r *qualityRow) error() (float64, bool) {
	return math.Sqrt(r.squares / float64(max(r.measured, 1))), r.measured > 0
}

// printQuality prints the quality card of an export: how each kind of weight is stored, the bits that it
// takes, and the error of its rounding, relative and as a ratio of signal to noise. Nothing is printed where
// nothing is quantized.
func printQuality(out io.Writer, r *passes.Report) {
	rows := qualityRows(r)
	quantized, width := false, len("weights")
	for _, row := range rows {
		quantized = quantized || strings.Contains(row.stored, "/")
		width = max(width, len(row.kind))
	}
	if !quantized {
		return
	}
	logf(out, "%-*s %5s  %-13s %11s %9s %8s", width, "weights", "count", "stored", "bits/weight", "error", "SQNR")
	var elements, bytes int64
	for _, row := range rows {
		elements, bytes = elements+row.elements, bytes+row.bytes
		line := fmt.Sprintf("%-*s %5d  %-13s %11.3f", width, row.kind, row.count, row.stored,
			8*float64(row.bytes)/float64(row.elements))
		if e, ok := row.error(); ok && e > 0 {
			line += fmt.Sprintf(" %8.3f%% %5.1f dB", 100*e, -20*math.Log10(e))
		}
		logf(out, "%s", line)
	}
	logf(out, "%-*s %5s  %-13s %11.3f", width, "all", "", "", 8*float64(bytes)/float64(elements))
}

// linearBits returns the average number of bits of the linear weights.
func linearBits(r *passes.Report) float64 {
	var elements, bytes int64
	for _, w := range r.Weights {
		if w.Kind != passes.EmbeddingWeight {
			elements, bytes = elements+w.Elements, bytes+w.Bytes
		}
	}
	return 8 * float64(bytes) / float64(max(elements, 1))
}
