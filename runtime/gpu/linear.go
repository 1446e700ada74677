package gpu

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// fewRows is the number of rows up to which a product is one of vectors.
const fewRows = 8

// linearOf is a product of rows with a weight that is deferred: y = x·wᵀ, plus a bias.
type linearOf struct {
	w        *weight
	x        *value // rows, dense
	norm     *normOf
	bias     *value
	rows     int
	out      *value
	siblings []*linearOf // products of the same rows
	sole     bool        // nothing but the siblings reads the rows
	absorbed bool        // what reads it computes it
}

// vectors describes the product of up to fewRows rows to kernels, and gives the weight of the norm.
func (l *linearOf) vectors() (v kernels.Vectors, norm operand) {
	v = kernels.Vectors{Format: l.w.Format, K: l.w.cols, M: min(l.rows, fewRows)}
	v.Norm, v.Eps, norm = l.norm.vectors()
	return v, norm
}

// vectors tells products about a normalization, which may be nil, with its weight, which may be absent.
func (n *normOf) vectors() (kernels.Norm, float32, operand) {
	switch {
	case n == nil:
		return kernels.NoNorm, 0, operand{}
	case n.weight == nil:
		return kernels.NormPlain, n.eps, operand{}
	}
	return kernels.NormF32, n.eps, bytesOf(n.weight)
}

func (l *linearOf) emit(b *binder) {
	if group := l.group(); len(group) > 1 && b.many(group, nil) {
		return
	}
	b.product(l, kernels.NoEpilogue, nil, 0, l.out)
}

// group is the product with those of the same rows that one kernel can compute with it.
func (l *linearOf) group() []*linearOf {
	group := []*linearOf{l}
	if l.rows > fewRows || l.bias != nil {
		return group
	}
	for _, s := range l.siblings {
		if s != l && s.out.slot.pending == deferred(s) && !s.absorbed && s.w.Format == l.w.Format && s.bias == nil && len(group) < 4 {
			group = append(group, s)
		}
	}
	return group
}

// many computes several products of the same few rows in one kernel, with a convolution of the first one's results
// where that is set.
func (b *binder) many(group []*linearOf, conv *convOf) bool {
	l := group[0]
	v, norm := l.vectors()
	k := kernels.MatVecMany{Vectors: v}
	kind, a := "linears", kernels.MatVecManyArguments[operand]{}
	if conv != nil {
		kind, a = "linear conv", conv.arguments
		k.Conv, k.Early, k.Activated = &conv.kernel, conv.early, conv.activated
	}
	a.X, a.Norm, a.Step = bytesOf(l.x), norm, b.stepAt(l.rows, nil)
	weights, results := [...]*kernels.WeightArguments[operand]{&a.W0, &a.W1, &a.W2, &a.W3}, [...]*operand{&a.Y0, &a.Y1, &a.Y2, &a.Y3}
	bytes := 0
	for i, g := range group {
		k.N = append(k.N, g.w.rows)
		bytes += g.w.bytes()
		*weights[i], *results[i] = g.w.arguments(), bytesOf(g.out)
	}
	ways := k.Tunings(b.x.exe.machine)
	launch, err := usable(b, ways, k.Launch)
	if err != nil {
		return false
	}
	for _, g := range group {
		b.take(g.out.slot)
	}
	b.launch(kind, launch, nil, a)
	tuned(b, ways, k.Launch)
	b.reading(bytes)
	return true
}

// product computes a product with what follows it. extra and out are dense, of the product's size.
func (b *binder) product(l *linearOf, epilogue kernels.Epilogue, extra *value, limit float32, out *value) bool {
	if l.rows > fewRows && b.matmul(l, epilogue, extra, limit, out) {
		return true
	}
	if l.norm != nil && l.rows > fewRows {
		n := *l
		n.x, n.norm = l.norm.out, nil
		b.later(n.x.slot, l.norm, l.norm.x)
		l = &n
	}
	return b.blocks(l, epilogue, extra, limit, out)
}

// ofHeads computes a product of one row that is a deferred normalization of heads with a gate. What else reads that has it
// computed.
func (b *binder) ofHeads(l *linearOf, epilogue kernels.Epilogue, extra *value, limit float32, out *value) bool {
	h, ok := l.x.slot.pending.(*gatedNormOf)
	if !ok || l.rows != 1 || l.norm != nil || l.bias != nil || !l.x.same(h.out) {
		return false
	}
	in := h.norm.x
	if !in.isDense() || !h.gate.isDense() || h.gate.len() != in.len() || in.offset%4 != 0 || h.gate.offset%4 != 0 {
		return false // read as vectors of four
	}
	v, _ := l.vectors()
	k := kernels.MatVec{Vectors: v, N: l.w.rows, Epilogue: epilogue, Cap: limit, Head: in.shape[len(in.shape)-1], Activation: h.activation}
	gate := h.gate
	if a := b.activatedAs(gate, h.activation); a != nil {
		gate, k.Activation = a, kernels.Identity
	}
	args := kernels.MatVecArguments[operand]{W: l.w.arguments(), X: bytesOf(in), Gate: bytesOf(gate), Y: bytesOf(out), Step: b.stepAt(1, nil)}
	k.Norm, k.Eps, args.Norm = h.norm.vectors()
	if extra != nil {
		args.Extra = bytesOf(extra)
	}
	ways := k.Tunings(b.x.exe.machine)
	launch, err := usable(b, ways, k.Launch)
	if err != nil {
		return false
	}
	b.launch("linear of heads", launch, nil, args)
	tuned(b, ways, k.Launch)
	b.reading(l.w.bytes())
	return true
}

// blocks computes a product fewRows rows at a time.
func (b *binder) blocks(l *linearOf, epilogue kernels.Epilogue, extra *value, limit float32, out *value) bool {
	if b.ofHeads(l, epilogue, extra, limit, out) || b.ofSum(l, epilogue, extra, limit, out) {
		return true
	}
	v, norm := l.vectors()
	k := kernels.MatVec{Vectors: v, N: l.w.rows, Epilogue: epilogue, Cap: limit}
	if l.bias != nil {
		if epilogue != kernels.NoEpilogue {
			return false
		}
		k.Epilogue = kernels.AddVector
	}
	ways := k.Tunings(b.x.exe.machine)
	launch, err := k.Launch(ways[0])
	if err != nil {
		return false
	}
	for at := 0; at < l.rows; at += fewRows {
		n := min(fewRows, l.rows-at)
		a := kernels.MatVecArguments[operand]{W: l.w.arguments(), X: part(l.x, at*l.w.cols, n*l.w.cols), Norm: norm,
			Y: part(out, at*l.w.rows, n*l.w.rows), Step: b.stepAt(n, nil)}
		switch {
		case l.bias != nil:
			a.Extra = bytesOf(l.bias)
		case extra != nil:
			a.Extra = part(extra, at*l.w.rows, n*l.w.rows)
		}
		b.launch("linear", launch, nil, a)
		tuned(b, ways, k.Launch)
		b.reading(l.w.bytes())
	}
	return true
}

// part is elements of a dense value as a buffer of a kernel.
func part(v *value, at, n int) operand {
	size := v.format.size()
	return operand{slot: v.slot, at: (v.offset + at) * size, size: n * size}
}

// rowsFor gives x as dense rows of a width, with the normalization before it, which products do themselves.
func (b *binder) rowsFor(x *value, width int) (rows *value, norm *normOf, count int) {
	if len(x.shape) == 0 || x.shape[len(x.shape)-1] != width {
		return nil, nil, 0
	}
	count = x.len() / width
	if n, ok := x.slot.pending.(*normOf); ok && x.same(n.out) && n.out.shape[len(n.out.shape)-1] == width && n.x.isDense() {
		return n.x, n, count
	}
	if x = b.dense(x); x == nil {
		return nil, nil, 0
	}
	return x, nil, count
}

func bindLinear(b *binder) bool {
	w := b.x.exe.weight(b.op.Input("weight"))
	if w == nil {
		return false
	}
	var bias *value
	if b.op.Input("bias") != nil {
		if bias = b.vector("bias", w.rows); bias == nil {
			return false
		}
	}
	return b.linears([]*weight{w}, bias)
}

func bindLinears(b *binder) bool {
	var weights []*weight
	for _, a := range b.op.Operand("weights") {
		w := b.x.exe.weight(a.Value)
		if w == nil {
			return false
		}
		weights = append(weights, w)
	}
	return b.linears(weights, nil)
}

// linears defers products of x with weights.
func (b *binder) linears(weights []*weight, bias *value) bool {
	x := b.floats("x")
	if x == nil {
		return false
	}
	var list []*linearOf
	sole := b.only("x")
	for i, w := range weights {
		l := &linearOf{w: w, bias: bias, sole: sole}
		if w.count != 1 {
			return false
		}
		if l.x, l.norm, l.rows = b.rowsFor(x, w.cols); l.x == nil {
			return false
		}
		v, _ := l.vectors()
		if _, err := (kernels.MatVec{Vectors: v, N: w.rows}).Launch(kernels.Tuning{}); err != nil {
			return false
		}
		if l.out = b.result(i, nil); l.out == nil || l.out.len() != l.rows*w.rows {
			return false
		}
		list = append(list, l)
	}
	for _, l := range list {
		l.siblings = list
		b.later(l.out.slot, l, l.x)
	}
	return true
}

// pendingLinear is the deferred product that v is the whole result of, and nothing else reads.
func (b *binder) pendingLinear(v *value, operand string) *linearOf {
	l, ok := v.slot.pending.(*linearOf)
	if !ok || !v.same(l.out) || l.bias != nil || !b.only(operand) {
		return nil
	}
	return l
}

// addToProduct makes a sum the end of the product that is one of its terms.
func (b *binder) addToProduct(x, other *value, operand string) bool {
	l := b.pendingLinear(x, operand)
	if l == nil || b.hasLibrary(l.rows) || !other.isDense() || !slices.Equal(x.shape, other.shape) {
		return false
	}
	out := b.result(0, nil)
	if out == nil || !slices.Equal(out.shape, x.shape) {
		return false
	}
	b.take(x.slot)
	return b.product(l, kernels.AddMatrix, other, 0, out)
}

// gluOf makes activation(gate) · up part of the products that they are, for few rows: of two weights, or of
// two halves of one.
func (b *binder) gluOf(gate, up *value, activation kernels.Activation) bool {
	g, ok := gate.slot.pending.(*linearOf)
	u, ok2 := up.slot.pending.(*linearOf)
	if !ok || !ok2 || g.bias != nil || u.bias != nil {
		return false
	}
	var n int
	var first, second kernels.WeightArguments[operand]
	switch {
	case g == u:
		// Both are columns of the result: one half each.
		n = g.w.rows / 2
		cols := func(x *value) bool {
			return len(x.shape) > 0 && x.shape[len(x.shape)-1] == n && x.len() == g.rows*n && (g.rows == 1 || strideOfRows(x) == g.w.rows)
		}
		if g.w.rows != 2*n || !cols(gate) || !cols(up) || gate.offset != 0 || up.offset != n {
			return false
		}
		first, second = g.w.part(0, n), g.w.part(n, n)
	default:
		if n = g.w.rows; !gate.same(g.out) || !up.same(u.out) || u.w.Format != g.w.Format || u.w.rows != n || u.x != g.x || (u.norm == nil) != (g.norm == nil) {
			return false
		}
		first, second = g.w.arguments(), u.w.arguments()
	}
	if g.rows > fewRows {
		return b.matmulGLU(g, u, n, first, second, activation)
	}
	return b.deferGLU(&pairOf{gate: g, up: u, n: n, first: first, second: second, activation: activation})
}

// matmulGLU is gluOf for many rows.
func (b *binder) matmulGLU(g, u *linearOf, n int, first, second kernels.WeightArguments[operand], activation kernels.Activation) bool {
	if b.hasLibrary(g.rows) {
		return false // two halves at full speed are faster than both in one kernel
	}
	exact := !b.tiled(g.rows)
	k := kernels.MatMulGLU{Matrices: kernels.Matrices{Format: g.w.Format, K: g.w.cols, Exact: exact}, N: n, Activation: activation}
	ways := k.Tiles(b.x.exe.machine.Target, g.rows)
	launch := func(t kernels.Tile) (kernels.Launch, error) { return k.Launch(t, g.rows) }
	l, err := usable(b, ways, launch)
	out := b.result(0, nil)
	if err != nil || out == nil || out.len() != g.rows*n {
		return false
	}
	g.absorbed, u.absorbed = true, true
	x := b.prepared(g.x, g.norm, g.rows, g.w.cols, exact)
	b.launch("matmul glu", l, nil, kernels.MatMulGLUArguments[operand]{W0: first, W1: second, X: x, Y: bytesOf(out), Step: b.stepAt(g.rows, nil)})
	tuned(b, ways, launch)
	b.reading(g.w.bytes() * 2 * n / g.w.rows)
	return true
}

// strideOfRows is the distance of rows, where they are evenly spaced.
func strideOfRows(v *value) int {
	_, _, stride, ok := v.rows()
	if !ok {
		return -1
	}
	return stride
}

// bindEmbedding looks up rows of a weight.
func bindEmbedding(b *binder) bool {
	w, indices := b.x.exe.weight(b.op.Input("weight")), b.input("indices")
	if w == nil || w.count != 1 || indices == nil || indices.dtype.IsFloat() {
		return false
	}
	tokens := b.indices(indices, w.rows)
	if tokens == nil {
		return false
	}
	n := tokens.len()
	l, err := kernels.Embedding{Format: w.Format, N: w.rows, K: w.cols, Multiplier: 1}.Launch(n)
	out := b.result(0, nil)
	if err != nil || out == nil || out.len() != n*w.cols {
		return false
	}
	b.launch("embedding", l, nil, kernels.EmbeddingArguments[operand]{W: w.arguments(), Tokens: bytesOf(tokens), Y: bytesOf(out), Step: b.stepAt(n, nil)})
	b.reading(n * w.bytes() / w.rows)
	return true
}

// indices are the numbers of rows on the device. Those that the host knows are checked before anything runs.
func (b *binder) indices(v *value, rows int) *value {
	if v.place == onDevice {
		if v.format != i32 || !v.isDense() || v.below > rows {
			return nil
		}
		return v
	}
	if v.place != onHost || v.shape == nil || v.cell.step || v.cell.constant {
		return nil
	}
	v.cell.need()
	c, n, unsigned, name := v.cell, v.len(), v.dtype == ir.U64, b.op.Def.Name
	d := &value{place: onDevice, dtype: v.dtype, shape: v.shape, stride: strided.RowMajor(v.shape), format: i32}
	d.slot = b.upload(4*n, upload{of: c, rows: rows, encode: func(p []byte) error {
		t := c.content.Tensor
		if t == nil || len(t.I) != n {
			return fmt.Errorf("%s: indices are no %d integers", name, n)
		}
		for i, at := range t.I {
			if at < 0 && !unsigned {
				at += int64(rows)
			}
			if at < 0 || at >= int64(rows) {
				return fmt.Errorf("%s: indices[%d] is %d, there are %d rows", name, i, t.I[i], rows)
			}
			binary.LittleEndian.PutUint32(p[4*i:], uint32(at))
		}
		return nil
	}})
	return d
}

// matmul computes a product of many rows by tiles. It fails where there is no kernel.
func (b *binder) matmul(l *linearOf, epilogue kernels.Epilogue, extra *value, limit float32, out *value) bool {
	if epilogue == kernels.NoEpilogue && l.bias == nil && b.libraryProduct(l, out) {
		return true
	}
	exact := !b.tiled(l.rows)
	k := kernels.MatMul{Matrices: kernels.Matrices{Format: l.w.Format, K: l.w.cols, Exact: exact}, N: l.w.rows, Epilogue: epilogue, Cap: limit}
	var other operand
	switch {
	case l.bias != nil && epilogue != kernels.NoEpilogue:
		return false
	case l.bias != nil:
		k.Epilogue, other = kernels.AddVector, bytesOf(l.bias)
	case extra != nil:
		other = bytesOf(extra)
	}
	ways := k.Tiles(b.x.exe.machine.Target, l.rows)
	of := func(t kernels.Tile) (kernels.Launch, error) { return k.Launch(t, l.rows) }
	launch, err := usable(b, ways, of)
	if err != nil {
		return false
	}
	x := b.prepared(l.x, l.norm, l.rows, l.w.cols, exact)
	b.launch("matmul", launch, nil, kernels.MatMulArguments[operand]{W: l.w.arguments(), X: x, Extra: other, Y: bytesOf(out), Step: b.stepAt(l.rows, nil)})
	tuned(b, ways, of)
	b.reading(l.w.bytes())
	return true
}

// preparedKey tells rows in the form that tiled products take.
type preparedKey struct {
	slot   *slot
	offset int
	norm   *slot
	eps    float32
	exact  bool
}

// prepared brings rows into the form that tiled products take, normalized: once, for all products of them.
func (b *binder) prepared(x *value, norm *normOf, rows, width int, exact bool) operand {
	if exact && norm == nil {
		return bytesOf(x)
	}
	key := preparedKey{slot: x.slot, offset: x.offset, exact: exact}
	p := kernels.Prepare{K: width, Exact: exact}
	a := kernels.MatMulPrepareArguments[operand]{X: bytesOf(x)}
	p.Norm, p.Eps, a.Norm = norm.vectors()
	if norm != nil {
		key.norm, key.eps = a.Norm.slot, norm.eps
	}
	if s := b.forms[key]; s != nil && !x.slot.state {
		return whole(s)
	}
	size := 2
	if exact {
		size = 4
	}
	l, err := p.Launch(rows)
	s := b.scratch(size * rows * width)
	a.Y, a.Step = whole(s), b.stepAt(rows, nil)
	if !b.launch("prepare", l, err, a) {
		panic(err) // the product that takes it has checked the width
	}
	b.forms[key] = s
	return whole(s)
}

// libraryRows is the number of rows from which on a library of matrix products, which wants bf16, is worth making
// bf16 of a weight.
const libraryRows = 64

// hasLibrary reports whether products of so many rows go to the device's library.
func (b *binder) hasLibrary(rows int) bool {
	return rows >= libraryRows && b.tiled(rows) && b.x.exe.product(device.Product{M: rows, N: 64, K: 64, Float32: true}) != nil
}

// product is a kernel of the device's library of matrix products; nil where there is none.
func (x *executable) product(p device.Product) device.Kernel {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k, ok := x.products[p]; ok {
		return k
	}
	var k device.Kernel
	if m, ok := x.device.(device.MatrixMultiplier); ok {
		if made, err := m.MatrixProduct(p); err == nil {
			k = made
		}
	}
	x.products[p] = k
	return k
}

// libraryProduct computes a product by the device's library. It fails where there is none.
func (b *binder) libraryProduct(l *linearOf, out *value) bool {
	if !b.hasLibrary(l.rows) {
		return false
	}
	kernel := b.x.exe.product(device.Product{M: l.rows, N: l.w.rows, K: l.w.cols, Float32: true})
	if kernel == nil {
		return false
	}
	w := whole(l.w.data)
	if l.w.Bits != 16 {
		launch, err := kernels.Dequantize{Format: l.w.Format, N: l.w.rows, K: l.w.cols}.Launch()
		if err != nil {
			return false
		}
		s := b.scratch(2 * l.w.rows * l.w.cols)
		b.launch("dequantize", launch, nil, kernels.DequantizeArguments[operand]{W: l.w.arguments(), Y: whole(s)})
		b.reading(l.w.bytes())
		w = whole(s)
	}
	x := b.prepared(l.x, l.norm, l.rows, l.w.cols, false)
	y := bytesOf(out)
	y.write = true // a library's kernel has no text of ours
	return b.add(step{op: b.op, kind: "product", kernel: kernel, launch: kernels.Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}}, operands: []operand{x, w, y}})
}
