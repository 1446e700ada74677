package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/inspect"
)

// bitRows is how the weights of a kind are quantized in each layer: a row of cells for a kind.
type bitRows struct {
	Legend []key
	Layers int
	Rows   []bitRow
}

type bitRow struct {
	Name  string
	Cells []bitCell
}

type bitCell struct {
	Layer        int
	Class, Title string
	form         form
}

// form is how a weight is quantized.
type form struct{ bits, group int }

func (f form) String() string { return fmt.Sprintf("%d bits, groups of %d", f.bits, f.group) }

// newBitRows draws the weights whose form differs between layers; it is nil where none does, since the table of forms
// says it all then.
func newBitRows(weights []inspect.Weight) *bitRows {
	out := &bitRows{}
	for _, w := range weights {
		_, layer, rest, ok := ir.SplitLayer(w.Name)
		if !ok || w.Bits == 0 || w.Part != "codes" {
			continue
		}
		rest = plainName(rest)
		i := slices.IndexFunc(out.Rows, func(r bitRow) bool { return r.Name == rest })
		if i < 0 {
			i = len(out.Rows)
			out.Rows = append(out.Rows, bitRow{Name: rest})
		}
		f := form{w.Bits, w.Group}
		cell := bitCell{Layer: layer, form: f, Title: fmt.Sprintf("layer %d: %v", layer, f)}
		out.Rows[i].Cells = append(out.Rows[i].Cells, cell)
		out.Layers = max(out.Layers, layer+1)
	}
	out.Rows = slices.DeleteFunc(out.Rows, func(r bitRow) bool {
		return !slices.ContainsFunc(r.Cells, func(c bitCell) bool { return c.form != r.Cells[0].form })
	})
	if len(out.Rows) == 0 {
		return nil
	}
	out.colour()
	return out
}

// colour gives each form a class, the one of the fewest bits first.
func (b *bitRows) colour() {
	var found []form
	for _, r := range b.Rows {
		for _, c := range r.Cells {
			if !slices.Contains(found, c.form) {
				found = append(found, c.form)
			}
		}
	}
	slices.SortFunc(found, func(a, b form) int {
		return cmp.Or(cmp.Compare(a.bits, b.bits), cmp.Compare(b.group, a.group))
	})
	for i, f := range found {
		b.Legend = append(b.Legend, key{Class: groupClass(i), Name: f.String()})
	}
	if len(found) > colours+1 { // several share the last colour
		b.Legend = append(b.Legend[:colours], key{Class: restClass, Name: "other forms"})
	}
	for _, r := range b.Rows {
		for i, c := range r.Cells {
			r.Cells[i].Class = groupClass(slices.Index(found, c.form))
		}
	}
}
