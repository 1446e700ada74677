package report

import (
	"slices"

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
	if n := len(all); n > 0 { // the last one also holds the head, from the last norm on
		last := &all[n-1]
		last.ops = last.ops[:max(slices.IndexFunc(last.ops, isFinalNorm), 0)]
		if len(last.ops) == 0 {
			all = all[:n-1]
		}
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

// isFinalNorm reports whether an operation is the norm after all layers: its weight belongs to no layer.
func isFinalNorm(op *ir.Op) bool {
	if op.Def.Name != "rms_norm" {
		return false
	}
	weight := op.Input("weight")
	if weight == nil || weight.Constant == nil {
		return false
	}
	_, _, _, ok := ir.SplitLayer(weight.Constant.Name)
	return !ok
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
