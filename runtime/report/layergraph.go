package report

import (
	"fmt"
	"html"
	"html/template"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/compare"
)

// layerGraph is the part of a module that computes one layer.
type layerGraph struct {
	Layer int
	Kind  string // what mixes its tokens
	ops   []*ir.Op
}

// layers splits the entry into layers at the norms before them, by the names of their weights, and gives
// the first layer of every kind. A module whose weights are named otherwise has none.
func layers(m *ir.Module) []layerGraph {
	var all []layerGraph
	for _, op := range m.Entry.Body.Ops {
		if n, ok := compare.LayerInput(op); ok && (len(all) == 0 || all[len(all)-1].Layer != n) {
			all = append(all, layerGraph{Layer: n})
		}
		if len(all) > 0 {
			all[len(all)-1].ops = append(all[len(all)-1].ops, op)
		}
	}
	if len(all) > 0 { // the last one also holds the head
		all = all[:len(all)-1]
	}
	var out []layerGraph
	seen := map[string]bool{}
	for _, l := range all {
		if l.Kind = kindOfLayer(l.ops); !seen[l.Kind] {
			seen[l.Kind] = true
			out = append(out, l)
		}
	}
	return out
}

// kindOfLayer names a layer after what mixes its tokens.
func kindOfLayer(ops []*ir.Op) string {
	kind := "feed-forward"
	for _, op := range ops {
		switch op.Def.Name {
		case "metal_kernel", "scan":
			kind = "gated delta net"
		case "sdpa":
			kind = "full attention"
			if op.Input("mask") != nil {
				kind = "sliding attention"
			}
		}
	}
	return kind
}

const (
	boxWidth, boxHeight = 128.0, 22.0
	columnGap, rowGap   = 12.0, 26.0
)

// draw places operations in rows by their depth and joins them by lines.
func (l layerGraph) draw() template.HTML {
	depth := map[*ir.Value]int{}
	var rows [][]*ir.Op
	for _, op := range l.ops {
		if op.Def.Effect == ir.Reads || len(op.Results) > 0 && op.Results[0].Type.Kind == ir.IntKind {
			continue
		}
		d := 0
		op.EachArg(func(a *ir.Arg) {
			if n, ok := depth[a.Value]; ok {
				d = max(d, n+1)
			}
		})
		for _, v := range op.Results {
			depth[v] = d
		}
		for len(rows) <= d {
			rows = append(rows, nil)
		}
		rows[d] = append(rows[d], op)
	}
	place := map[*ir.Op][2]float64{}
	width := 0.0
	for y, ops := range rows {
		for x, op := range ops {
			place[op] = [2]float64{float64(x) * (boxWidth + columnGap), float64(y) * (boxHeight + rowGap)}
			width = max(width, place[op][0]+boxWidth)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" role="img">`, width+2, float64(len(rows))*(boxHeight+rowGap))
	for _, ops := range rows {
		for _, op := range ops {
			to := place[op]
			op.EachArg(func(a *ir.Arg) {
				if a.Value == nil || a.Value.Def == nil {
					return
				}
				if from, ok := place[a.Value.Def]; ok {
					fmt.Fprintf(&b, `<path d="M%.1f %.1f L%.1f %.1f" stroke="#b8c0cc" fill="none"/>`, from[0]+boxWidth/2, from[1]+boxHeight, to[0]+boxWidth/2, to[1])
				}
			})
		}
	}
	for _, ops := range rows {
		for _, op := range ops {
			p := place[op]
			fmt.Fprintf(&b, `<g><title>%s</title><rect x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="4" fill="%s" stroke="#7a869a"/><text x="%.1f" y="%.1f" font-size="11" text-anchor="middle">%s</text></g>`,
				html.EscapeString(weightName(op)), p[0]+1, p[1]+1, boxWidth, boxHeight, boxColour(op), p[0]+boxWidth/2, p[1]+15, html.EscapeString(op.Def.Name))
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// weightName is the constant that an operation uses, for the tooltip.
func weightName(op *ir.Op) string {
	name := op.Def.Name
	op.EachArg(func(a *ir.Arg) {
		if a.Value != nil && a.Value.Constant != nil && name == op.Def.Name {
			name = a.Value.Constant.Name
		}
	})
	if op.Buffer != nil {
		name = op.Buffer.Name
	}
	return name
}

func boxColour(op *ir.Op) string {
	switch op.Def.Name {
	case "quantized_matmul", "addmm", "gather_qmm", "gather_mm":
		return palette[0]
	case "sdpa", "metal_kernel", "scan", "conv1d":
		return palette[1]
	case "rms_norm":
		return palette[2]
	case "if":
		return palette[4]
	}
	if op.Buffer != nil {
		return palette[3]
	}
	return "#f2f4f8"
}
