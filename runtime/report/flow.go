package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// flows are the layers of each kind, with one legend.
type flows struct {
	Legend []key
	Flows  []flow
}

// flow is how data flows through a layer: a row for each operation in the order of the program, a lane for each value
// from where it is made to where it is last used. Text stands beside the lanes.
type flow struct {
	Title         string
	Width, Height int // the size of the lanes in pixels
	Rows          []flowRow
	Wires         []string // SVG paths
}

type flowRow struct {
	X, Y      int
	Class     string
	Operation string
	Module    string // the beginning of the name of the weight or state it uses, with the last dot; a narrow page leaves it out
	Detail    string // the rest of that name
	Title     string // the text of the tooltip: all names in full, with the type of the result
}

const (
	laneWidth = 11
	rowHeight = 24 // as in page.css
)

// moves are the operations that only move, cast or pick out elements. A wire leads past them.
var moves = []string{
	"astype", "broadcast_to", "contiguous", "expand_dims", "id_copy", "reshape", "slice", "squeeze", "transpose",
}

// kindsOfOps gives the operations of each colour of a flow and what the legend calls them.
var kindsOfOps = []struct {
	name string
	ops  []string
}{
	{"matrix product", []string{"addmm", "gather_mm", "gather_qmm", "linear", "matmul", "quantized_matmul"}},
	{"attention, convolution, recurrence", []string{"conv1d", "metal_kernel", "scan", "sdpa"}},
	{"norm", []string{"layer_norm", "rms_norm"}},
}

// stateClass is the CSS class of operations that write state; it follows those of kindsOfOps.
const stateClass = "k4"

func flowLegend() []key {
	var out []key
	for i, k := range kindsOfOps {
		out = append(out, key{Class: groupClass(i), Name: k.name})
	}
	return append(out, key{Class: stateClass, Name: "state written"}, key{Class: restClass, Name: "other"})
}

// within visits an operation and those of its regions.
func within(op *ir.Op, visit func(*ir.Op)) {
	visit(op)
	for _, r := range op.Regions {
		for _, inner := range r.Ops {
			within(inner, visit)
		}
	}
}

// classOf returns the colour class of an operation. An operation with regions has the class of what they compute.
func classOf(op *ir.Op) string {
	class := restClass
	within(op, func(op *ir.Op) {
		for i, k := range kindsOfOps {
			if class == restClass && slices.Contains(k.ops, op.Def.Name) {
				class = groupClass(i)
			}
		}
		if class == restClass && op.Buffer != nil && op.Def.Effect != ir.Reads {
			class = stateClass
		}
	})
	return class
}

// flow lays a layer out, from the value that it norms first.
func (l layerGraph) flow() flow {
	return newFlow(fmt.Sprintf("Layer %d: %s", l.Layer, l.Kind), []*ir.Value{l.ops[0].Input("x")}, l.ops)
}

// newFlow lays operations out, with a row for each input before them. Loads, sizes and positions are left out, as are
// moves.
func newFlow(title string, inputs []*ir.Value, ops []*ir.Op) flow {
	out := flow{Title: title}
	var reads [][]int // of each row: the rows whose values it reads
	made := map[*ir.Value][]int{}
	row := func(r flowRow, from []int) []int {
		at := len(out.Rows)
		r.Y = at*rowHeight + rowHeight/2
		out.Rows, reads = append(out.Rows, r), append(reads, from)
		return []int{at}
	}
	for _, v := range inputs {
		r := flowRow{Class: restClass, Operation: "input", Detail: v.Param, Title: "input " + v.Type.String()}
		made[v] = row(r, nil)
	}
	for _, op := range ops {
		if op.Def.Effect == ir.Reads || len(op.Results) > 0 && op.Results[0].Type.Kind == ir.IntKind {
			continue
		}
		var from []int
		within(op, func(op *ir.Op) {
			op.EachArg(func(a *ir.Arg) {
				for _, n := range made[a.Value] {
					if !slices.Contains(from, n) {
						from = append(from, n)
					}
				}
			})
		})
		at := from
		if !slices.Contains(moves, op.Def.Name) {
			at = row(rowOf(op), from)
		}
		for _, v := range op.Results {
			made[v] = at
		}
	}
	out.wire(reads)
	return out
}

func rowOf(op *ir.Op) flowRow {
	used := usedBy(op)
	r := flowRow{Class: classOf(op), Operation: op.Def.Name, Title: strings.TrimSpace(op.Def.Name + " " + used)}
	r.Module, r.Detail = splitModule(used)
	if len(op.Results) > 0 {
		r.Title += " → " + op.Results[0].Type.String()
	}
	return r
}

// usedBy names the state or the first weight that an operation uses, without its layer and the part of a quantized
// weight.
func usedBy(op *ir.Op) string {
	name := ""
	within(op, func(op *ir.Op) {
		if op.Buffer != nil && name == "" {
			name = op.Buffer.Name
		}
		op.EachArg(func(a *ir.Arg) {
			if c := a.Value; name == "" && c != nil && c.Constant != nil && len(c.Constant.Data.Shape()) > 0 {
				name = c.Constant.Name
			}
		})
	})
	if _, _, rest, ok := ir.SplitLayer(name); ok {
		name = rest
	}
	return plainName(name)
}

// plainName returns the name of a weight without what tells its stored parts: "q_proj" of "q_proj.weight.packed", and
// of "q_proj.parametrizations.weight.original0", as PyTorch calls a tensor from which a weight is computed.
func plainName(name string) string {
	for _, part := range []string{".parametrizations", ".weight", ".packed"} {
		if i := strings.Index(name, part); i > 0 {
			name = name[:i]
		}
	}
	return name
}

// splitModule takes the module, with its dot, from a name. What constants are folded into has names of operations at
// its end, which stay with the name before them: "A_log.exp".
func splitModule(name string) (module, rest string) {
	for end := len(name); ; {
		i := strings.LastIndexByte(name[:end], '.')
		if i < 0 {
			return "", name
		}
		if ir.LookupOp(name[i+1:end]) == nil {
			return name[:i+1], name[i+1:]
		}
		end = i
	}
}

// wire gives each row a lane and joins it to its inputs. A lane is free again after the last use of its value.
func (f *flow) wire(inputs [][]int) {
	last := make([]int, len(f.Rows))
	for i, from := range inputs {
		for _, n := range from {
			last[n] = i
		}
	}
	lane := make([]int, len(f.Rows))
	var busy []bool
	for i, from := range inputs {
		lane[i] = -1
		for _, n := range from {
			if last[n] == i {
				busy[lane[n]] = false
				if lane[i] < 0 || lane[n] < lane[i] {
					lane[i] = lane[n]
				}
			}
		}
		if lane[i] < 0 {
			if lane[i] = slices.Index(busy, false); lane[i] < 0 {
				lane[i], busy = len(busy), append(busy, false)
			}
		}
		busy[lane[i]] = last[i] > i
		f.Rows[i].X = lane[i]*laneWidth + laneWidth/2
	}
	for i, from := range inputs {
		for _, n := range from {
			a, b := f.Rows[n], f.Rows[i]
			if a.X == b.X {
				f.Wires = append(f.Wires, fmt.Sprintf("M%d %dV%d", a.X, a.Y, b.Y))
				continue
			}
			down, bend := b.Y-rowHeight, rowHeight/4
			f.Wires = append(f.Wires, fmt.Sprintf("M%d %dV%dC%d %d %d %d %d %d", a.X, a.Y, down, a.X, b.Y-bend,
				b.X, down+bend, b.X, b.Y))
		}
	}
	f.Width, f.Height = max(len(busy), 1)*laneWidth, len(f.Rows)*rowHeight
}
