package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
)

// sinkLastToken computes only the last row of what is used for nothing but its last row: the end of the
// last layer, where a language model takes the last token. Exporters take it as late as before lm_head.
func sinkLastToken(m *ir.Module) error {
	return ir.Build(func() {
		s := &sinker{axis: lastRows(m.Entry.Body), rows: map[*ir.Value]*ir.Value{}}
		if len(s.axis) == 0 {
			return
		}
		var ops []*ir.Op
		s.b = &ir.Builder{Module: m, Insert: func(op *ir.Op) { ops = append(ops, op) }}
		for _, op := range m.Entry.Body.Ops {
			switch {
			case isLastTake(op):
				op.Args[0][0].Value = s.last(op.Input("x"), takeAxis(op))
				ops = append(ops, op)
			case len(op.Results) > 0 && s.sinks(op):
				s.sink(op)
			default:
				ops = append(ops, op)
			}
		}
		m.Entry.Body.Ops = ops
	})
}

// isLastTake reports whether op takes the last index of an axis of unknown size.
func isLastTake(op *ir.Op) bool {
	if op.Def.Name != "take" {
		return false
	}
	x := op.Input("x")
	if a, _ := op.Arg("index"); a.Kind == ir.ValueArg && a.Value.Type.Kind != ir.IntKind {
		return false
	}
	dim := x.Type.Shape[takeAxis(op)]
	if _, fixed := dim.Const(); fixed {
		return false
	}
	at := expr(op, "index")
	return at.IsConst(-1) || at.Add(ir.Const(1)).Equal(dim)
}

func takeAxis(op *ir.Op) int { return axisOf(ir.Attrs[ir.AxisAttrs](op).Axis, op.Input("x").Type) }

// lastRows finds the values of r of which every use needs the last row along an axis only, with the axis.
func lastRows(r *ir.Region) map[*ir.Value]int {
	const none = -1
	axis := map[*ir.Value]int{}
	need := func(v *ir.Value, a int) {
		if have, ok := axis[v]; ok && have != a {
			a = none
		}
		axis[v] = a
	}
	for _, v := range r.Results {
		need(v, none)
	}
	for i := len(r.Ops) - 1; i >= 0; i-- {
		op := r.Ops[i]
		if isLastTake(op) {
			need(op.Input("x"), takeAxis(op))
			continue
		}
		operands := map[*ir.Value]int{}
		if a, ok := resultAxis(op, axis); ok {
			operands = rowOperands(op, a)
		}
		op.EachArg(func(arg *ir.Arg) {
			if arg.Kind != ir.ValueArg {
				return
			}
			if a, ok := operands[arg.Value]; ok {
				need(arg.Value, a)
			} else if operands == nil || !isConstantLike(arg.Value) {
				need(arg.Value, none)
			}
		})
		for _, n := range op.Regions {
			eachUse(n, func(v *ir.Value, _ *ir.Op) { need(v, none) })
		}
	}
	out := map[*ir.Value]int{}
	for v, a := range axis {
		if a != none && v.Def != nil && rowOperands(v.Def, a) != nil {
			out[v] = a
		}
	}
	return out
}

// isConstantLike reports whether v is no computed value, so that needing all of it costs nothing.
func isConstantLike(v *ir.Value) bool { return v.Constant != nil || def(v, "quantized") != nil }

// resultAxis is the axis along which the last row of all used results of op is all that is needed.
func resultAxis(op *ir.Op, axis map[*ir.Value]int) (int, bool) {
	at := -1
	for _, v := range op.Results {
		a, used := axis[v]
		switch {
		case !used:
		case a < 0 || at >= 0 && a != at:
			return 0, false
		default:
			at = a
		}
	}
	return at, at >= 0
}

// rowOperands tells, for an operation that computes rows along an axis of its results each by itself, which
// operands have these rows, and along which axis; nil where it is no such operation.
func rowOperands(op *ir.Op, a int) map[*ir.Value]int {
	out := map[*ir.Value]int{}
	t := op.Results[0].Type
	x := func() *ir.Value { return op.Input(op.Def.Operands[0].Name) }
	last := a == t.Rank()-1
	switch op.Def.Name {
	case "silu", "sigmoid", "tanh", "gelu", "exp", "astype":
		out[x()] = a
	case "rms_norm", "linear", "linears", "delta_decay", "top_k":
		if last {
			return nil
		}
		out[x()] = a
	case "softmax":
		if axisOf(ir.Attrs[ir.SoftmaxAttrs](op).Axis, t) == a {
			return nil
		}
		out[x()] = a
	case "add", "subtract", "multiply", "divide", "glu", "softcap":
		for _, o := range op.Def.Operands {
			v := op.Input(o.Name)
			at := a - (t.Rank() - v.Type.Rank())
			if at < 0 || v.Type.Shape[at].IsConst(1) {
				continue // broadcast along the rows
			}
			if have, ok := out[v]; ok && have != at {
				return nil
			}
			out[v] = at
		}
	case "switch_mlp":
		if a != 1 {
			return nil
		}
		for _, name := range []string{"x", "indices", "scores"} {
			out[op.Input(name)] = 1
		}
	case "cached_attention":
		if a != 2 {
			return nil
		}
		out[op.Input("q")] = 2
	case "transpose":
		_, perm := permutation(op.Result())
		out[x()] = perm[a]
	case "slice":
		if at, known := literal(op, "axis"); !known || axisOf(int(at), t) == a {
			return nil
		}
		out[x()] = a
	case "reshape", "expand_dims", "squeeze":
		at := sameRows(t, a, x().Type)
		if at < 0 {
			return nil
		}
		out[x()] = at
	default:
		return nil
	}
	return out
}

// sameRows finds the axis of from whose rows are those of axis a of to, which has the same elements.
func sameRows(to ir.Type, a int, from ir.Type) int {
	before := rowsOf(to, a)
	for i, d := range from.Shape {
		if d.Equal(to.Shape[a]) && rowsOf(from, i).Equal(before) {
			return i
		}
	}
	return -1
}

// sinker rebuilds operations on last rows.
type sinker struct {
	b    *ir.Builder
	axis map[*ir.Value]int
	rows map[*ir.Value]*ir.Value // the last row of a value, its axis kept
}

// sinks reports whether only last rows of op's results are needed.
func (s *sinker) sinks(op *ir.Op) bool {
	for _, v := range op.Results {
		if _, ok := s.axis[v]; ok {
			return true
		}
	}
	return false
}

// last is the last row of v along an axis.
func (s *sinker) last(v *ir.Value, axis int) *ir.Value {
	if n := s.rows[v]; n != nil && s.axis[v] == axis {
		return n
	}
	one := s.b.Value("take", &ir.AxisAttrs{Axis: axis}, v, -1)
	return s.b.Value("expand_dims", &ir.AxisAttrs{Axis: axis}, one)
}

// sink builds op for the last row.
func (s *sinker) sink(op *ir.Op) {
	a := -1
	for _, v := range op.Results {
		if at, ok := s.axis[v]; ok {
			a = at
		}
	}
	operands := rowOperands(op, a)
	n := &ir.Op{Def: op.Def, Attrs: op.Attrs, Args: make([][]ir.Arg, len(op.Args))}
	for i, args := range op.Args {
		n.Args[i] = slices.Clone(args)
		for j, arg := range args {
			if at, ok := operands[arg.Value]; ok && arg.Kind == ir.ValueArg {
				n.Args[i][j].Value = s.last(arg.Value, at)
			}
		}
	}
	switch op.Def.Name {
	case "cached_attention": // the query stands at the last position
		n.Args[3] = []ir.Arg{s.lastPosition(op.Args[3][0], op.Input("q"))}
	case "reshape", "expand_dims", "squeeze":
		t := op.Result().Type
		t.Shape = slices.Clone(t.Shape)
		t.Shape[a] = ir.Const(1)
		s.rows[op.Result()] = likeType(s.b, n.Args[0][0].Value, t)
		return
	}
	for i, v := range s.b.Append(n).Results {
		s.rows[op.Results[i]] = v
	}
}

// lastPosition is that of the last of the queries q, the first of which stands at a position.
func (s *sinker) lastPosition(position ir.Arg, q *ir.Value) ir.Arg {
	count := s.b.Value("sym_size", &ir.SymSizeAttrs{Dim: 2}, q)
	return ir.Use(s.b.Value("subtract_int", nil, s.b.Value("add_int", nil, position, count), 1))
}
