package calibrate

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// sizes computes how large the values of a module are in a call of a shape.
type sizes struct {
	tokens map[*ir.Symbol]bool // the symbols that stand for the number of tokens of a call
	known  map[sizeKey]int64
}

type sizeKey struct {
	v *ir.Value
	shape
}

func newSizes(m *ir.Module) *sizes {
	z := &sizes{map[*ir.Symbol]bool{}, map[sizeKey]int64{}}
	for _, p := range m.Entry.Params {
		for _, x := range p.Type.Shape {
			if symbol, ok := x.Symbol(); ok {
				z.tokens[symbol] = true
			}
		}
	}
	return z
}

// elements returns the largest number of elements that a value can have in a call; 0 for an int.
func (z *sizes) elements(v *ir.Value, s shape) int64 {
	if v.Type.Kind != ir.TensorKind {
		return 0
	}
	key := sizeKey{v, s}
	if n, ok := z.known[key]; ok {
		return n
	}
	n := int64(1)
	for _, d := range v.Type.Shape {
		n *= z.dim(d, s)
	}
	z.known[key] = n
	return n
}

// dim returns the largest value that a dim can have in a call.
func (z *sizes) dim(d *ir.Expr, s shape) int64 {
	_, most := d.Substitute(func(symbol *ir.Symbol) *ir.Expr {
		if z.tokens[symbol] {
			return ir.Const(int64(s.tokens))
		}
		return nil
	}).Bounds()
	if most < ir.Unbounded {
		return max(most, 0)
	}
	// What is no number of tokens is a position.
	n, err := d.Eval(func(symbol *ir.Symbol) (int64, bool) {
		if z.tokens[symbol] {
			return int64(s.tokens), true
		}
		return int64(s.position), true
	})
	if err != nil {
		return int64(s.tokens)
	}
	return max(n, 0)
}

// bytes returns the size of a value while it is computed with.
func (z *sizes) bytes(v *ir.Value, s shape) int64 {
	if v.Type.Kind == ir.TensorKind && !v.Type.DType.IsFloat() {
		return 8 * z.elements(v, s)
	}
	return 4 * z.elements(v, s)
}

// keptBytes returns the size of a value of a call that is kept for later segments.
func (z *sizes) keptBytes(v *ir.Value, s shape) int64 {
	if v.Type.Kind == ir.TensorKind && !v.Type.DType.IsFloat() {
		return int64(v.Type.DType.Size()) * z.elements(v, s)
	}
	return 4 * z.elements(v, s)
}

// constantBytes returns the size of a constant of a module, decoded and as it is read.
func constantBytes(c *ir.Constant) int64 {
	if c.Data == nil {
		return 0
	}
	n := ir.DataSize(c.Data) / int64(max(c.Data.DType().Size(), 1))
	return 8*n + ir.DataSize(c.Data)
}

// bufferBytes returns the size of a buffer.
func bufferBytes(b *ir.Buffer) int64 {
	dims, _ := b.Type.Static()
	if b.Type.DType.IsFloat() {
		return 4 * ir.Elements(dims)
	}
	return 8 * ir.Elements(dims)
}

// operation returns the memory that an operation needs beside its arguments and results: as much as its arguments, for
// those that it converts, and a mask for each head.
func (z *sizes) operation(op *ir.Op, s shape) (n int64) {
	op.EachArg(func(a *ir.Arg) {
		switch {
		case a.Kind != ir.ValueArg:
		case a.Value.Constant != nil:
			n += constantBytes(a.Value.Constant)
		default:
			n += z.bytes(a.Value, s)
		}
	})
	if op.Def.Name == "sdpa" && op.Input("mask") != nil {
		q, k := op.Input("q").Type.Shape, op.Input("k").Type.Shape
		n += 8 * z.dim(q[0], s) * z.dim(q[1], s) * z.dim(q[2], s) * z.dim(k[2], s)
	}
	if op.Def.Effect == ir.Writes {
		for _, b := range op.Buffers() {
			n += bufferBytes(b)
		}
	}
	return n
}

// frame returns the most memory that the values of a call take while it runs a segment.
func (z *sizes) frame(g *segment, s shape) int64 {
	held := int64(0)
	for _, v := range g.loads {
		held += z.bytes(v, s)
	}
	most := held
	given := map[*ir.Value]bool{} // lie in the results of the site
	if g.site != nil {
		for _, v := range g.site.Results {
			given[v] = true
		}
	}
	for i, op := range g.ops {
		results := int64(0)
		for _, v := range op.Results {
			results += z.bytes(v, s)
		}
		most = max(most, held+results+z.operation(op, s))
		held += results
		for _, v := range g.ends[i] {
			if !given[v] {
				held -= z.bytes(v, s)
			}
		}
	}
	return most + 4*diskBlock
}

// constants returns the memory of the constants of a segment that are no weights of its site.
func (g *segment) constants() (n int64) {
	seen := map[*ir.Constant]bool{}
	for _, op := range g.ops {
		op.EachArg(func(a *ir.Arg) {
			if a.Kind == ir.ValueArg && a.Value.Constant != nil && !seen[a.Value.Constant] {
				seen[a.Value.Constant] = true
				n += constantBytes(a.Value.Constant)
			}
		})
	}
	return n
}

// siteSizes are the shapes of a site's weights.
type siteSizes struct {
	*site
	perToken int // experts
}

// run returns the memory to run a site for so many tokens with so many workers.
func (x *siteSizes) run(tokens, jobs int) int64 {
	if x.site == nil {
		return 0
	}
	first, last := x.weights[0], x.weights[len(x.weights)-1]
	in, out := first.cols, last.rows
	switch x.op.Def.Name {
	case "embedding":
		return floatBytes(tokens*in) + int64(jobs)*rowsBytes(1, in) + 8*int64(tokens)
	case "linear":
		return floatBytes(tokens*(in+out)) + int64(jobs)*rowsBytes(weightRows, in) + 4*diskBlock
	}
	return floatBytes(tokens*(x.perToken+1)*out) + routedBytes(tokens, x.perToken) +
		int64(jobs)*(x.scratchBytes(false)+rowsBytes(weightRows, max(in, last.cols))+4*diskBlock)
}

// solve returns the memory to solve for the weights of a site with so many workers, for so many tokens of the text.
func (x *siteSizes) solve(tokens, jobs int, follows bool) int64 {
	if x.site == nil || x.op.Def.Name == "embedding" {
		return 0
	}
	if len(x.weights) == 1 {
		w := x.weights[0]
		if !w.calibrated() {
			return 0
		}
		return quantize.SolverBytes(*w.scheme, w.cols, follows && w.follows(tokens)) +
			2*floatBytes(inputRows*w.cols) + int64(jobs)*tileBytes(w) + 4*diskBlock
	}
	most := int64(0)
	for i, w := range x.weights {
		if w.calibrated() {
			most = max(most, x.expertSolverBytes(i, follows && w.follows(tokens))+tileBytes(w))
		}
	}
	if most == 0 {
		return 0
	}
	in := x.weights[gateWeight].cols
	rows := rowsBytes(weightRows, max(in, x.weights[downWeight].cols))
	return routedBytes(tokens, x.perToken) + momentBytes(in, x.weights[:downWeight]...) + floatBytes(inputRows*in) +
		int64(jobs)*(most+x.scratchBytes(true)+rows+4*diskBlock)
}

// expertSolverBytes returns the memory of the solver of a mixture's weight number i, of one expert, with that of what
// its moments are made from.
func (x *site) expertSolverBytes(i int, follows bool) int64 {
	w, needs := x.weights[i], x.weights[:downWeight]
	if i == downWeight {
		needs = x.weights[downWeight:]
	}
	n := quantize.SolverBytes(*w.scheme, w.cols, follows)
	if i == downWeight || w.scheme.Method.Diagonal() && !diagonal(needs...) {
		n += momentBytes(w.cols, needs...)
	}
	return n
}
