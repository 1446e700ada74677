package cpu

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/strided"
)

// bindTopK finds the k largest of each row, as the reference kernel does: of equal elements the later ones
// are chosen, and come first; a NaN is larger than all.
func bindTopK(b *binder) bool {
	x, k := b.Input("x"), ir.Attrs[ir.TopKAttrs](b.Op).K
	if x == nil || !x.isFloats() || len(x.shape) == 0 || k < 1 || k > x.shape[len(x.shape)-1] {
		return false
	}
	n, width, stride, ok := x.rows()
	shape, ok2 := b.Dims(b.Op.Results[1].Type)
	out := b.result(0, nil)
	if !ok || !ok2 || out == nil || strided.Elements(shape) != n*k {
		return false
	}
	indices := &value{dtype: b.Op.Results[1].Type.DType, slot: &slot{i: make([]int64, n*k)}, shape: shape,
		stride: strided.RowMajor(shape)}
	b.Values[b.Op.Results[1]] = indices
	b.do("top-k", b.parallel(n, max(1, elementGrain/8/width), func(lo, hi int) {
		in := x.floats()
		for i := lo; i < hi; i++ {
			row := in[i*stride : i*stride+width]
			largest(indices.slot.i[i*k:(i+1)*k], row)
			for j, at := range indices.slot.i[i*k : (i+1)*k] {
				out.slot.f[i*k+j] = row[at]
			}
		}
	}))
	return true
}

// largest writes the positions of the largest elements of x in the order of top_k.
func largest(indices []int64, x []float32) {
	n := 0
	for i, v := range x {
		if n == len(indices) {
			if w := x[indices[n-1]]; v < w || w != w && v == v {
				continue
			}
			n--
		}
		at := n
		for at > 0 {
			if w := x[indices[at-1]]; v < w || w != w && v == v {
				break
			}
			indices[at] = indices[at-1]
			at--
		}
		indices[at] = int64(i)
		n++
	}
}

// experts is switch_mlp or switch_geglu bound to a plan.
type experts struct {
	name                  string // of the operation
	activate              func(dst, gate, up []float32)
	b                     *binder
	x, indices, scores    *value
	out                   *value
	gate, up, down        *weight
	tokens, perToken      int
	width, inner          int
	first, second         kernel.Layout // of the inputs of gate and up, and of down
	hidden, lifted, rows  *slot         // [pairs, inner] twice, [pairs, width]
	pairs, order, starts  []int32       // see route
	gathered, activations []*kernel.Activations
	used                  []int32 // experts with tokens
	firstPieces           []expertPiece
	secondPieces          []expertPiece
}

// expertPiece is a range of rows of an expert's matrix; up says of which of two.
type expertPiece struct {
	expert int32
	up     bool
	lo, hi int32
}

func bindSwitchMLP(b *binder) bool {
	e := &experts{b: b, x: b.Input("x"), indices: b.Input("indices"), scores: b.Input("scores"), name: b.Op.Def.Name,
		activate: kernel.SiLUMul}
	if e.name == "switch_geglu" {
		e.activate = kernel.GELUTanhMul
	}
	if !e.takeOperands() {
		return false
	}
	exe, x, count := b.x.exe, e.x, len(e.gate.matrices)
	e.first, e.second = exe.layout(&e.gate.matrices[0]), exe.layout(&e.down.matrices[0])
	if exe.layout(&e.up.matrices[0]) != e.first {
		return false
	}
	if e.out = b.result(0, nil); e.out == nil || !slices.Equal(e.out.shape, x.shape) {
		return false
	}
	if _, _, _, ok := x.rows(); !ok {
		e.x = b.denseFloats(x)
	}
	pairs := e.tokens * e.perToken
	e.hidden, e.lifted = b.scratch(pairs*e.inner), b.scratch(pairs*e.inner)
	e.rows = b.scratch(pairs * e.width)
	e.pairs, e.order, e.starts = make([]int32, pairs), make([]int32, pairs), make([]int32, count+1)
	e.gathered, e.activations = b.activations(1), nil
	run := e.many
	if e.tokens == 1 {
		run = e.single()
	} else {
		e.prepareMany()
	}
	s := b.step("experts", func() error {
		if err := e.check(count); err != nil {
			return err
		}
		run()
		return nil
	})
	s.bytes = min(pairs, count) * (e.gate.matrices[0].Bytes(e.inner) + e.up.matrices[0].Bytes(e.inner) +
		e.down.matrices[0].Bytes(e.width))
	s.flops = 6 * pairs * e.inner * e.width
	return true
}

// takeOperands takes weights and sizes from the operation; it is false where there is no kernel for these operands.
func (e *experts) takeOperands() bool {
	op, exe := e.b.Op, e.b.x.exe
	e.gate, e.up, e.down = exe.weight(op.Input("gate")), exe.weight(op.Input("up")), exe.weight(op.Input("down"))
	if e.gate == nil || e.up == nil || e.down == nil || e.x == nil || !e.x.isFloats() ||
		len(e.x.shape) == 0 || e.indices == nil ||
		e.indices.kind != dense || e.indices.dtype.IsFloat() || !e.indices.isDense() {
		return false
	}
	if e.scores == nil || !e.scores.isFloats() || !e.scores.isDense() ||
		!slices.Equal(e.indices.shape, e.scores.shape) {
		return false
	}
	n, count := len(e.x.shape), len(e.gate.matrices)
	e.width, e.inner, e.perToken = e.x.shape[n-1], e.gate.rows, e.indices.shape[n-1]
	e.tokens = e.x.len() / max(e.width, 1)
	return e.gate.cols == e.width && e.up.rows == e.inner && e.up.cols == e.width && e.down.cols == e.inner &&
		e.down.rows == e.width &&
		len(e.up.matrices) == count && len(e.down.matrices) == count && e.indices.len() == e.tokens*e.perToken
}

// check reads the experts' numbers.
func (e *experts) check(count int) error {
	for i, at := range e.indices.ints()[:len(e.pairs)] {
		if at < 0 || at >= int64(count) {
			return fmt.Errorf("%s: indices[%d] is %d, there are %d experts", e.name, i, at, count)
		}
		e.pairs[i] = int32(at)
	}
	return nil
}

// single makes the function for one token: every expert's rows are read once, in three loops. It is long because its
// three loops share what they allot.
func (e *experts) single() func() {
	b := e.b
	acts := b.activations(1)[0]
	_, _, stride, _ := e.x.rows()
	inputs := make([]kernel.Activations, e.perToken)
	// The matrices of all experts are alike, so how they are cut does not depend on which are chosen.
	stack := make([]*kernel.Matrix, 2*e.perToken)
	for i := range stack {
		stack[i] = &e.gate.matrices[0]
	}
	liftPieces := pieces(stack, 1, e.first.RowStep(1), b.x.exe.pool.Threads())
	lift := func(lo, hi int) {
		for _, piece := range liftPieces[lo:hi] {
			pair, w, out := piece.matrix/2, e.gate, e.hidden.f
			if piece.matrix%2 == 1 {
				w, out = e.up, e.lifted.f
			}
			kernel.MatMul(out[pair*e.inner:(pair+1)*e.inner], e.inner, &w.matrices[e.pairs[pair]],
				acts, piece.lo, piece.hi)
		}
	}
	act := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			h := e.hidden.f[i*e.inner : (i+1)*e.inner]
			e.activate(h, h, e.lifted.f[i*e.inner:(i+1)*e.inner])
			inputs[i].Fill(h, e.inner, 0, 1)
		}
	}
	// Who finishes the last expert's part of the rows adds them up.
	fallRows, fallParts := expertParts(&e.down.matrices[0], e.perToken, e.second.RowStep(1),
		b.x.exe.pool.Threads())
	missing := make([]atomic.Int32, fallParts)
	fall := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			part, pair := i/e.perToken, i%e.perToken
			from := part * fallRows
			to := min(from+fallRows, e.width)
			kernel.MatMul(e.rows.f[pair*e.width:(pair+1)*e.width], e.width, &e.down.matrices[e.pairs[pair]],
				&inputs[pair], from, to)
			if missing[part].Add(-1) > 0 {
				continue
			}
			sum := e.out.slot.f[from:to]
			clear(sum)
			for p := range e.perToken {
				kernel.Axpy(sum, e.scores.floats()[p], e.rows.f[p*e.width+from:p*e.width+to])
			}
		}
	}
	run := b.x.run
	return func() {
		acts.Reset(e.first, 1, e.width)
		acts.Fill(e.x.floats(), stride, 0, 1)
		for i := range inputs {
			inputs[i].Reset(e.second, 1, e.inner)
		}
		for i := range missing {
			missing[i].Store(int32(e.perToken))
		}
		run(len(liftPieces), 1, lift)
		run(e.perToken, 1+e.perToken/4, act)
		run(fallParts*e.perToken, 1, fall)
	}
}

// expertParts divides the rows of a matrix into parts, of which threads claim those of experts matrices that are alike.
// There are as few as keep a thread that ends first from waiting long: some 6 of all matrices for each thread. They are
// multiples of step rows.
func expertParts(m *kernel.Matrix, experts, step, threads int) (rows, parts int) {
	bytes := m.Bytes(m.Rows)
	parts = min((6*threads+experts-1)/experts, bytes/smallestPiece)
	parts = max(parts, (bytes+largestPiece-1)/largestPiece, 1)
	rows = roundUp(roundUp((m.Rows+parts-1)/parts, 8), step)
	return rows, (m.Rows + rows - 1) / rows
}

// prepareMany makes room for the inputs of every expert.
func (e *experts) prepareMany() {
	count := len(e.gate.matrices)
	e.gathered, e.activations = make([]*kernel.Activations, count), make([]*kernel.Activations, count)
	pool := e.b.x.expertActivations(2 * count)
	for i := range count {
		e.gathered[i], e.activations[i] = pool[2*i], pool[2*i+1]
	}
}

// route sorts the token-expert pairs by expert: order lists them, those of expert i from starts[i] on.
func (e *experts) route() {
	clear(e.starts)
	for _, x := range e.pairs {
		e.starts[x+1]++
	}
	e.used = e.used[:0]
	for i := range e.starts[1:] {
		if e.starts[i+1] > 0 {
			e.used = append(e.used, int32(i))
		}
		e.starts[i+1] += e.starts[i]
	}
	next := slices.Clone(e.starts)
	for pair, x := range e.pairs {
		e.order[next[x]] = int32(pair)
		next[x]++
	}
}

// many computes chunks: the tokens of an expert are multiplied together. It is long because its loops share what they
// allot.
func (e *experts) many() {
	e.route()
	run := e.b.x.run
	acts := e.b.activations(1)[0]
	_, _, stride, _ := e.x.rows()
	acts.Reset(e.first, e.tokens, e.width)
	run(e.tokens, max(1, elementGrain/e.width),
		func(lo, hi int) { acts.Fill(e.x.floats()[lo*stride:], stride, lo, hi) })

	run(len(e.used), 1, func(lo, hi int) {
		for _, x := range e.used[lo:hi] {
			tokens := make([]int32, 0, 64)
			for _, pair := range e.order[e.starts[x]:e.starts[x+1]] {
				tokens = append(tokens, pair/int32(e.perToken))
			}
			e.gathered[x].Reset(e.first, len(tokens), e.width)
			e.gathered[x].Gather(acts, tokens, 0, len(tokens))
		}
	})
	e.firstPieces = e.cut(e.firstPieces[:0], e.inner, true)
	run(len(e.firstPieces), 1, func(lo, hi int) {
		for _, piece := range e.firstPieces[lo:hi] {
			from, to := int(e.starts[piece.expert])*e.inner, int(e.starts[piece.expert+1])*e.inner
			w, out := e.gate, e.hidden.f
			if piece.up {
				w, out = e.up, e.lifted.f
			}
			kernel.MatMul(out[from:to], e.inner, &w.matrices[piece.expert], e.gathered[piece.expert],
				int(piece.lo), int(piece.hi))
		}
	})
	run(len(e.used), 1, func(lo, hi int) {
		for _, x := range e.used[lo:hi] {
			from, to := int(e.starts[x])*e.inner, int(e.starts[x+1])*e.inner
			e.activate(e.hidden.f[from:to], e.hidden.f[from:to], e.lifted.f[from:to])
			n := int(e.starts[x+1] - e.starts[x])
			e.activations[x].Reset(e.second, n, e.inner)
			e.activations[x].Fill(e.hidden.f[from:to], e.inner, 0, n)
		}
	})
	e.secondPieces = e.cut(e.secondPieces[:0], e.width, false)
	run(len(e.secondPieces), 1, func(lo, hi int) {
		for _, piece := range e.secondPieces[lo:hi] {
			from, to := int(e.starts[piece.expert])*e.width, int(e.starts[piece.expert+1])*e.width
			kernel.MatMul(e.rows.f[from:to], e.width, &e.down.matrices[piece.expert], e.activations[piece.expert],
				int(piece.lo), int(piece.hi))
		}
	})
	// pairs becomes the place of each pair in the order.
	for at, pair := range e.order {
		e.pairs[pair] = int32(at)
	}
	run(e.tokens, max(1, elementGrain/(e.width*e.perToken)), func(lo, hi int) {
		for t := lo; t < hi; t++ {
			sum := e.out.slot.f[t*e.width : (t+1)*e.width]
			clear(sum)
			for i := t * e.perToken; i < (t+1)*e.perToken; i++ {
				at := int(e.pairs[i]) * e.width
				kernel.Axpy(sum, e.scores.floats()[i], e.rows.f[at:at+e.width])
			}
		}
	})
}

// cut divides the rows of the experts that have tokens, the largest first.
func (e *experts) cut(out []expertPiece, rows int, both bool) []expertPiece {
	panel := kernel.PanelRows()
	for _, x := range e.used {
		step := panel * max(1, 64/int(e.starts[x+1]-e.starts[x]))
		for lo := 0; lo < rows; lo += step {
			hi := min(lo+step, rows)
			out = append(out, expertPiece{x, false, int32(lo), int32(hi)})
			if both {
				out = append(out, expertPiece{x, true, int32(lo), int32(hi)})
			}
		}
	}
	return out
}
