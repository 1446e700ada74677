package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

const (
	// FewRows is the largest number of rows that kernels of vectors (matvec) multiply. Products of more rows are
	// tiled (matmul).
	FewRows = 8
	// fewDirect is the largest number of rows that goes to kernels of vectors where a direct tile could take the rows
	// instead: one that reads weights once for all rows and multiplies them without a stay in threadgroup memory.
	fewDirect = 1
	// smallBytes is the size in bytes of the weights of several products of the same few rows up to which one kernel of
	// vectors computes them all, with the normalization of the rows. By tiles, each product and the rows would have a
	// kernel of their own, which takes longer than reading such weights.
	smallBytes = 1 << 20
	// maxGroup is the largest number of products of the same rows that one kernel computes.
	maxGroup = 4
	// libraryRows is the smallest number of rows for which a product goes to the device's library of matrix products.
	// The library takes bf16 alone, and for fewer rows it does not pay to convert the weight.
	libraryRows = 64
)

// product is the product of rows with one weight: a result of the operation linear or linears.
type product struct {
	out     *ir.Value
	x, w    *ir.Value
	bias    *ir.Value
	form    weight
	rows    int
	few     bool // kernels of vectors compute it
	small   bool // a kernel of vectors computes it together with others of its format, whatever few says
	exact   bool // tiled kernels keep its rows in float32
	library bool // the device's library computes it
	packed  int  // kernels.Matrices.Packed: the form in which tiled kernels read its rows
}

// products returns the products that op computes, or nil if op is no product or kernels cannot compute one of them.
func (g *graph) products(op *ir.Op) []*product {
	var weights []*ir.Value
	switch op.Def.Name {
	case "linear":
		weights = []*ir.Value{op.Input("weight")}
	case "linears":
		for _, a := range op.Operand("weights") {
			weights = append(weights, a.Value)
		}
	default:
		return nil
	}
	x := op.Input("x")
	if _, ok := g.numbers(x); !ok {
		return nil
	}
	var out []*product
	for i, w := range weights {
		form, ok := weightOf(w)
		if !ok || form.count != 1 || width(x) != form.cols || elements(op.Results[i]) == 0 {
			return nil
		}
		p := &product{out: op.Results[i], x: x, w: w, form: form, rows: elements(x) / form.cols}
		if op.Def.Name == "linear" {
			p.bias = op.Input("bias")
		}
		if p.bias != nil && !isVector(p.bias, form.rows) {
			return nil
		}
		k := kernels.MatVec{Vectors: g.vectors(p, g.normOf(p)), N: form.rows}
		if !ask(g.Target, "describes", k, 0, func() bool { _, err := k.Launch(kernels.Tuning{}); return err == nil }) {
			return nil
		}
		if p.rows > fewDirect && g.rounds() {
			p.packed = g.packing(p)
		}
		p.few = p.rows <= FewRows && p.packed == 0
		p.exact = p.packed == 0 && !g.Tiled(p.rows)
		p.library = p.packed == 0 && g.hasLibrary(p.rows)
		out = append(out, p)
	}
	if out[0].rows <= FewRows {
		markSmall(out)
	} else if g.rounds() {
		for _, p := range out {
			g.markTiled(out, p.form.Format)
		}
	}
	return out
}

// markSmall marks several products of the same few rows as few if all have so small weights that one kernel computes
// them.
func markSmall(list []*product) {
	if of := sameFormat(list, list[0].form.Format); len(of) == len(list) && areSmall(of) {
		for _, p := range of {
			p.few, p.packed = true, 0
		}
	}
}

// markTiled looks among products of the same rows of x at those whose weights have format f. If one kernel can compute
// all of these by tiles, it sets their field small. The router and the gate of a shared expert are an example. As
// kernels of their own they would have so few threadgroups that most of the GPU had no work.
func (g *graph) markTiled(list []*product, f kernels.Format) {
	of := sameFormat(list, f)
	if !areSmall(of) {
		return
	}
	at, rows := make([]int, len(of)), 0
	for i, p := range of {
		at[i], rows = i, rows+p.form.rows
	}
	if rows >= kernels.TileRows*g.Machine.Cores {
		return // they keep the device busy
	}
	k := g.many(of, at)
	asked := struct {
		kernels.Vectors
		n [maxGroup]int
	}{Vectors: k.Vectors}
	copy(asked.n[:], k.N)
	if !ask(g.Target, "usable", asked, k.M, func() bool { return usable(g.Target, k.Tunings(g.Machine), k.Launch) }) {
		return
	}
	for _, p := range of {
		p.small = true
	}
}

// sameFormat returns those of the products whose weights have a format.
func sameFormat(list []*product, f kernels.Format) (out []*product) {
	for _, p := range list {
		if p.form.Format == f {
			out = append(out, p)
		}
	}
	return out
}

// areSmall reports whether products of the same rows have so small weights that one kernel computes them all.
func areSmall(list []*product) bool {
	bytes := 0
	for _, p := range list {
		if bytes += p.form.rows * p.form.cols * p.form.Bits / 8; p.bias != nil {
			return false
		}
	}
	return len(list) > 1 && len(list) <= maxGroup && bytes <= smallBytes
}

// packing returns the fastest form of the vectors of a product for which there is a kernel that may be used.
func (g *graph) packing(p *product) int {
	for _, packed := range p.matrices().Packings(g.Machine, p.form.rows, p.rows) {
		k := kernels.MatMul{Matrices: p.matrices(), N: p.form.rows}
		if k.Packed = packed; packed == 0 || ask(g.Target, "usable", k, p.rows, func() bool {
			return usable(g.Target, k.Tiles(g.Machine, p.rows), func(t kernels.Tile) (kernels.Launch, error) {
				return k.Launch(t, p.rows)
			})
		}) {
			return packed
		}
	}
	return 0
}

// productOf returns the product whose result v is, as a whole, or nil.
func (g *graph) productOf(v *ir.Value) *product {
	v = g.source(v)
	if v.Def == nil || g.dead[v.Def] {
		return nil
	}
	for _, p := range g.products(v.Def) {
		if p.out == v {
			return p
		}
	}
	return nil
}

// normOf returns the RMS norm that makes the rows of a product, if the product's kernel can compute it too; else nil.
func (g *graph) normOf(p *product) *ir.Op {
	n := g.defined(p.x, "rms_norm")
	if n == nil || width(n.Result()) != p.form.cols || !g.isNorm(n) {
		return nil
	}
	if l, ok := g.numbers(n.Input("x")); !ok || !l.IsDense() {
		return nil
	}
	return n
}

// vectors returns the description that kernels of vectors need of a product.
func (g *graph) vectors(p *product, norm *ir.Op) kernels.Vectors {
	v := kernels.Vectors{Format: p.form.Format, K: p.form.cols, M: min(p.rows, FewRows)}
	v.Norm, v.Eps = normKind(norm)
	return v
}

// normKind returns the form in which kernels of products compute a norm, and its epsilon. n may be nil.
func normKind(n *ir.Op) (kernels.Norm, float32) {
	switch {
	case n == nil:
		return kernels.NoNorm, 0
	case n.Input("weight") == nil:
		return kernels.NormPlain, normEps(n)
	}
	return kernels.NormF32, normEps(n)
}

// normAttr returns the attributes and the weight that an operation gets for a norm inside it. n may be nil.
func normAttr(n *ir.Op) (asked bool, eps float32, weight *ir.Value) {
	if n == nil {
		return false, 0, nil
	}
	return true, normEps(n), n.Input("weight")
}

// rowsOf returns the dense rows that a product's operation reads: the input of the norm, if the product computes a
// norm itself, else x.
func (g *graph) rowsOf(b *ir.Builder, x *ir.Value, norm *ir.Op) *ir.Value {
	if norm != nil {
		return shapedAs(b, norm.Input("x"), x)
	}
	if l, _ := g.Layout(x); !l.IsDense() {
		return b.Value("copy", nil, x)
	}
	return x
}

// hasLibrary reports whether the device has a library of matrix products (cuBLAS) that is used for this number of rows.
func (t *Target) hasLibrary(rows int) bool {
	return rows >= libraryRows && t.Tiled(rows) && t.Library != nil && t.Library(rows, 64, 64)
}

// endOf is what a product's kernel does to its results before it writes them: it adds a term of a residual sum, or
// bounds them by a softcap.
type endOf struct {
	extra *ir.Value
	limit float32
}

func (e endOf) epilogue() kernels.Epilogue {
	switch {
	case e.extra != nil:
		return kernels.AddMatrix
	case e.limit != 0:
		return kernels.Softcap
	}
	return kernels.NoEpilogue
}

// ended returns the product that op, a sum or a softcap, can become a part of, and what the product then ends with;
// nil if there is none.
func (g *graph) ended(op *ir.Op) (*product, endOf) {
	switch op.Def.Name {
	case "add":
		for _, terms := range [][2]string{{"b", "a"}, {"a", "b"}} {
			x, other := op.Input(terms[0]), op.Input(terms[1])
			l, ok := g.numbers(other)
			if !ok || !l.IsDense() || !slices.Equal(shape(x), l.Shape) || !g.only(x) {
				continue
			}
			if p := g.productOf(x); p != nil && p.bias == nil && !p.library {
				return p, endOf{extra: other}
			}
		}
	case "softcap":
		x := op.Input("x")
		limit, ok := number(op.Input("cap"))
		if !ok || limit == 0 || !g.only(x) || !slices.Equal(shape(x), shape(op.Result())) {
			break
		}
		if p := g.productOf(x); p != nil && p.bias == nil {
			return p, endOf{limit: limit}
		}
	}
	return nil, endOf{}
}

// endsProduct reports whether an add can become a part of a product.
func (g *graph) endsProduct(op *ir.Op) bool {
	p, _ := g.ended(op)
	return p != nil
}

// number returns the value of a constant of one floating-point number. It returns false for other values.
func number(v *ir.Value) (float32, bool) {
	if v == nil || v.Constant == nil || v.Constant.Data == nil || elements(v) != 1 || !v.Type.DType.IsFloat() {
		return 0, false
	}
	c, err := eval.DecodeConstant(v.Constant)
	if err != nil || len(c.F) != 1 {
		return 0, false
	}
	return c.F[0], true
}

// products replaces linear, linears, and the add or softcap behind them. Few rows become matvec, one kernel for
// several products of the same rows where it can; many rows become matmul or library_product. A norm before a product
// becomes a part of it.
func products(g *graph) {
	g.each(func(op *ir.Op) {
		if p, end := g.ended(op); p != nil {
			g.replace(op, func(b *ir.Builder) []*ir.Value { return []*ir.Value{g.compute(b, p, end)} })
		}
	}, "add", "softcap")
	g.each(func(op *ir.Op) {
		if list := g.products(op); list != nil {
			g.replace(op, func(b *ir.Builder) []*ir.Value { return g.computeAll(b, list) })
		}
	}, "linear", "linears")
}

// computeAll computes those of the products of one operation whose results are read.
func (g *graph) computeAll(b *ir.Builder, list []*product) []*ir.Value {
	out := make([]*ir.Value, len(list))
	for _, i := range g.inOrder(list) {
		p := list[i]
		switch {
		case out[i] != nil || len(g.readers[p.out]) == 0:
		default:
			at := g.group(list, i, func(j int) bool {
				return out[j] == nil && len(g.readers[list[j].out]) > 0
			})
			if len(at) == 1 {
				out[i] = g.compute(b, p, endOf{})
				continue
			}
			for k, v := range g.together(b, list, at) {
				out[at[k]] = v
			}
		}
	}
	return out
}

// inOrder returns the indices of products, sorted by where their results are first read.
func (g *graph) inOrder(list []*product) []int {
	at, first := make([]int, len(list)), make([]int, len(list))
	for i, p := range list {
		at[i], first[i] = i, g.firstRead(p.out)
	}
	slices.SortStableFunc(at, func(i, j int) int { return first[i] - first[j] })
	return at
}

// group returns the indices of the products that one kernel computes together with product first: few rows, and
// weights of the same format. left tells which products are not computed yet.
func (g *graph) group(list []*product, first int, left func(i int) bool) []int {
	p, at := list[first], []int{first}
	if !p.few && !p.small || p.bias != nil {
		return at
	}
	for i, s := range list {
		if i != first && left(i) && (s.few || s.small) && s.form.Format == p.form.Format && len(at) < maxGroup {
			at = append(at, i)
		}
	}
	slices.Sort(at)
	if k := g.many(list, at); len(at) > 1 && !usable(g.Target, k.Tunings(g.Machine), k.Launch) {
		return []int{first}
	}
	return at
}

// many describes several products of the same rows to their kernel.
func (g *graph) many(list []*product, at []int) kernels.MatVecMany {
	k := kernels.MatVecMany{Vectors: g.vectors(list[at[0]], g.normOf(list[at[0]]))}
	for _, i := range at {
		k.N = append(k.N, list[i].form.rows)
	}
	if len(at) > 1 {
		k.M = list[at[0]].rows // tiles take more rows than other kernels of vectors
	}
	return k
}

// together computes several products of the same rows with one kernel.
func (g *graph) together(b *ir.Builder, list []*product, at []int) []*ir.Value {
	p := list[at[0]]
	norm := g.normOf(p)
	a, weight := &ir.MatvecAttrs{}, (*ir.Value)(nil)
	a.Norm, a.Eps, weight = normAttr(norm)
	var weights []*ir.Value
	for _, i := range at {
		weights = append(weights, list[i].w)
	}
	return b.Op("matvec", a, g.rowsOf(b, p.x, norm), weights, weight).Results
}

// compute computes one product, and what it ends with.
func (g *graph) compute(b *ir.Builder, p *product, end endOf) *ir.Value {
	if end.extra != nil {
		end.extra = shapedAs(b, end.extra, p.out)
	}
	if !p.few {
		if y := g.tiles(b, p, end); y != nil {
			return y
		}
	}
	norm, a, weight := g.normOf(p), &ir.MatvecAttrs{Cap: end.limit}, (*ir.Value)(nil)
	if p.rows > FewRows {
		norm = nil
	}
	a.Norm, a.Eps, weight = normAttr(norm)
	return b.Value("matvec", a, g.rowsOf(b, p.x, norm), p.w, weight, p.bias, end.extra)
}

// tiles computes a product of many rows. It returns nil if there is no kernel for it.
func (g *graph) tiles(b *ir.Builder, p *product, end endOf) *ir.Value {
	if p.library && end.epilogue() == kernels.NoEpilogue && p.bias == nil {
		if y := g.byLibrary(b, p); y != nil {
			return y
		}
	}
	epilogue := end.epilogue()
	if p.bias != nil {
		if epilogue != kernels.NoEpilogue {
			return nil
		}
		epilogue = kernels.AddVector
	}
	k := kernels.MatMul{Matrices: p.matrices(), N: p.form.rows, Epilogue: epilogue, Cap: end.limit}
	launch := func(w kernels.Tile) (kernels.Launch, error) { return k.Launch(w, p.rows) }
	if !ask(g.Target, "usable", k, p.rows, func() bool {
		return usable(g.Target, k.Tiles(g.Machine, p.rows), launch)
	}) {
		return nil
	}
	return b.Value("matmul", &ir.MatmulAttrs{Exact: p.exact, Cap: end.limit, Packed: p.packed},
		g.prepare(b, p, p.exact, p.packed), p.w, p.bias, end.extra)
}

// matrices returns the description that tiled kernels need of a product.
func (p *product) matrices() kernels.Matrices {
	return kernels.Matrices{Format: p.form.Format, K: p.form.cols, Exact: p.exact, Packed: p.packed}
}

// byLibrary computes a product with the device's library, which wants the weight in bf16. It returns nil if the
// library lacks the product.
func (g *graph) byLibrary(b *ir.Builder, p *product) *ir.Value {
	if !g.Library(p.rows, p.form.rows, p.form.cols) {
		return nil
	}
	w := p.w
	if p.form.Bits != 16 {
		if !g.Allowed(kernels.Dequantize{Format: p.form.Format, N: p.form.rows, K: p.form.cols}.Launch()) {
			return nil
		}
		w = b.Value("dense_weight", nil, w)
	}
	return b.Value("library_product", nil, g.prepare(b, p, false, 0), w)
}

// prepare returns a product's rows as tiled kernels read them: normalized, in bf16 unless exact, and packed if packed
// is not 0. Several products of the same rows share one preparation.
func (g *graph) prepare(b *ir.Builder, p *product, exact bool, packed int) *ir.Value {
	norm := g.normOf(p)
	x := g.rowsOf(b, p.x, norm)
	if exact && norm == nil {
		return x
	}
	a, weight := &ir.PrepareAttrs{Exact: exact, Packed: packed}, (*ir.Value)(nil)
	a.Norm, a.Eps, weight = normAttr(norm)
	l, _ := g.Layout(x)
	for _, op := range g.prepared {
		if g.dead[op] || op.Def.Name != "prepare" || *ir.Attrs[ir.PrepareAttrs](op) != *a ||
			op.Input("norm") != weight {
			continue
		}
		of := op.Input("x")
		if have, ok := g.Layout(of); ok && have.Base == l.Base && have.Offset == l.Offset &&
			elements(of) == elements(x) {
			return shapedAs(b, op.Result(), p.x)
		}
	}
	return b.Value("prepare", a, x, weight)
}
