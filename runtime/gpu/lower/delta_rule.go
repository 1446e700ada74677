package lower

import (
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// delta holds the operands of a delta rule. The norms, decay and rate are set where the kernel computes them too.
type delta struct {
	op          *ir.Op
	qn, kn      *ir.Op
	decay, rate *ir.Op
	early       bool
	slots       bool // slot_delta_rule: several sequences, each with its state in a slot
}

// deltaRule replaces a gated delta rule by the operation for chunks, or by the one that takes one token after the
// other. The latter also normalizes q and k and computes the gates. For several sequences both operations take
// sequences with few rows token by token.
func (g *graph) deltaRule(op *ir.Op) {
	tokens, ok := g.deltaTokens(op)
	if !ok {
		return
	}
	d := &delta{op: op, early: !g.written(0, g.places[op], op.Buffer), slots: ofSlots(op)}
	if !g.isFew(op, tokens) {
		if b := g.draft(); g.deltaKernel(d.chunks(b, g)) {
			g.put(b, op)
			return
		}
	}
	if d.slots || g.isFew(op, tokens) { // with slots, sequences may have few rows each
		d.takeNorms(g)
		d.takeGates(g)
	}
	if b := g.draft(); g.deltaKernel(d.step(b, g)) {
		g.put(b, op)
	}
}

// ofSlots reports whether a delta rule is one of several sequences, each with its state in a slot.
func ofSlots(op *ir.Op) bool { return strings.HasPrefix(op.Def.Name, "slot_") }

// knownTables reports whether the host knows the tables of an operation on slots before a call.
func knownTables(op *ir.Op) bool {
	return len(shape(op.Input("entries"))) == 2 && known(ir.Use(op.Input("entries"))) &&
		known(ir.Use(op.Input("writes")))
}

// deltaTokens returns the number of tokens. It returns false where the operands are not what the kernels take.
func (g *graph) deltaTokens(op *ir.Op) (tokens int, ok bool) {
	q, ok := g.floats(op.Input("q"))
	k, ok2 := g.floats(op.Input("k"))
	v, ok3 := g.floats(op.Input("v"))
	decay, ok4 := g.floats(op.Input("g"))
	beta, ok5 := g.floats(op.Input("beta"))
	state, static := op.Buffer.Type.Static()
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !static || len(q.Shape) != 4 || len(v.Shape) != 4 ||
		len(decay.Shape) != 3 || len(state) != 4 || q.Shape[0] != 1 {
		return 0, false
	}
	tokens, keyHeads, keyWidth := q.Shape[1], q.Shape[2], q.Shape[3]
	heads, width := v.Shape[2], v.Shape[3]
	if ofSlots(op) {
		if !knownTables(op) {
			return 0, false
		}
		state = append([]int64{1}, state[1:]...)
	} else if r := op.Input("reset"); r != nil && (r.Type.DType != ir.Bool || !known(ir.Use(r))) {
		return 0, false
	}
	return tokens, slices.Equal(k.Shape, q.Shape) && slices.Equal(v.Shape, []int{1, tokens, heads, width}) &&
		slices.Equal(decay.Shape, []int{1, tokens, heads}) &&
		slices.Equal(beta.Shape, decay.Shape) &&
		slices.Equal(state, []int64{1, int64(heads), int64(width), int64(keyWidth)}) &&
		keyHeads > 0 && heads%keyHeads == 0
}

// takeNorms makes the kernel normalize q and k, where they come from norms with weights.
func (d *delta) takeNorms(g *graph) {
	q, k := g.keyNorm(d.op.Input("q")), g.keyNorm(d.op.Input("k"))
	if q != nil && k != nil && ir.Attrs[ir.NormAttrs](q).Eps == ir.Attrs[ir.NormAttrs](k).Eps {
		d.qn, d.kn = q, k
	}
}

// keyNorm returns the norm of heads with a weight whose result is x, if nothing else reads that; else nil.
func (g *graph) keyNorm(x *ir.Value) *ir.Op {
	l, _ := g.Layout(x)
	op := g.defined(x, "rms_norm")
	if op == nil || !g.only(x) || op.Input("weight") == nil || !isVector(op.Input("weight"), l.Shape[3]) {
		return nil
	}
	of, _ := g.Layout(op.Result())
	in, ok := g.floats(op.Input("x"))
	if !ok || len(of.Shape) == 0 || of.Shape[len(of.Shape)-1] != l.Shape[3] {
		return nil
	}
	if stride, ok := strided.Reshape(in.Shape, in.Strides, l.Shape); !ok || stride[3] != 1 {
		return nil
	}
	return op
}

// takeGates makes the kernel compute the decays and update rates.
func (d *delta) takeGates(g *graph) {
	decay, rate := g.defined(d.op.Input("g"), "delta_decay"), g.defined(d.op.Input("beta"), "sigmoid")
	if decay == nil || rate == nil {
		return
	}
	shape := g.views(d.op.Input("g")).Shape
	for _, x := range []*ir.Value{decay.Input("x"), rate.Input("x")} {
		l, ok := g.floats(x)
		if !ok {
			return
		}
		if _, ok := strided.Reshape(l.Shape, l.Strides, shape); !ok {
			return
		}
	}
	if heads := shape[2]; isVector(decay.Input("bias"), heads) && isVector(decay.Input("rate"), heads) {
		d.decay, d.rate = decay, rate
	}
}

// rows returns x [1, T, n, width] in a layout that the kernels can read, copied if necessary: the n rows of a token are
// contiguous. With fours, rows start at multiples of four elements, so that they can be read as float4.
func (g *graph) rows(b *ir.Builder, x *ir.Value, fours bool) *ir.Value {
	l, _ := g.Layout(x)
	apart := l.Shape[3] != 1 && l.Strides[3] != 1 || l.Shape[2] != 1 && l.Strides[2] != l.Shape[3]
	if apart || fours && (l.Offset%4 != 0 || l.Shape[1] != 1 && l.Strides[1]%4 != 0) {
		return b.Value("copy", nil, x)
	}
	return x
}

func (d *delta) step(b *ir.Builder, g *graph) *ir.Op {
	q, k, decay, beta := d.op.Input("q"), d.op.Input("k"), d.op.Input("g"), d.op.Input("beta")
	attrs := &ir.DeltaStepAttrs{Norm: d.qn != nil, Gates: d.decay != nil, Early: d.early}
	var qWeight, kWeight, bias, rate *ir.Value
	if attrs.Norm {
		attrs.Eps, qWeight, kWeight = ir.Attrs[ir.NormAttrs](d.qn).Eps, d.qn.Input("weight"), d.kn.Input("weight")
		shape := g.views(q).Shape
		q, k = reshaped(b, d.qn.Input("x"), shape), reshaped(b, d.kn.Input("x"), shape)
	}
	if attrs.Gates {
		bias, rate = d.decay.Input("bias"), d.decay.Input("rate")
		shape := g.views(decay).Shape
		decay, beta = reshaped(b, d.decay.Input("x"), shape), reshaped(b, d.rate.Input("x"), shape)
	}
	q, k, v := g.rows(b, q, true), g.rows(b, k, true), g.rows(b, d.op.Input("v"), false)
	if d.slots {
		return b.BufferOp("slot_delta_step", d.op.Buffer, attrs, q, k, v, decay, beta, d.op.Input("entries"),
			d.op.Input("writes"), qWeight, kWeight, bias, rate)
	}
	return b.BufferOp("delta_step", d.op.Buffer, attrs, q, k, v, decay, beta, d.op.Input("reset"),
		qWeight, kWeight, bias, rate)
}

func (d *delta) chunks(b *ir.Builder, g *graph) *ir.Op {
	q, k, v := g.rows(b, d.op.Input("q"), true), g.rows(b, d.op.Input("k"), true), g.rows(b, d.op.Input("v"), false)
	if d.slots {
		return b.BufferOp("slot_delta_chunks", d.op.Buffer, nil, q, k, v, d.op.Input("g"), d.op.Input("beta"),
			d.op.Input("entries"), d.op.Input("writes"))
	}
	return b.BufferOp("delta_chunks", d.op.Buffer, nil, q, k, v, d.op.Input("g"),
		d.op.Input("beta"), d.op.Input("reset"))
}

// SlotDeltaRule returns the kernel of slot_delta_step or slot_delta_chunks, and the number of rows.
func SlotDeltaRule(op *ir.Op, view Views, state kernels.DType) (d kernels.SlotDelta, rows int, ok bool) {
	d.Entries = shape(op.Input("entries"))[0]
	if op.Def.Name == "slot_delta_chunks" {
		d.Most = FewTokens
	}
	d.Delta, rows, ok = DeltaRule(op, view, state)
	return d, rows, ok
}

// DeltaRule returns the kernel of delta_step or delta_chunks on a state of a dtype, and the number of tokens.
func DeltaRule(op *ir.Op, view Views, state kernels.DType) (d kernels.Delta, tokens int, ok bool) {
	q, k, v, g, beta := view(op.Input("q")), view(op.Input("k")), view(op.Input("v")),
		view(op.Input("g")), view(op.Input("beta"))
	if len(q.Shape) != 4 || len(v.Shape) != 4 || len(g.Shape) != 3 || len(beta.Shape) != 3 {
		return d, 0, false
	}
	tokens, heads := q.Shape[1], v.Shape[2]
	if heads > 1 && (g.Strides[2] != 1 || beta.Strides[2] != 1) {
		return d, 0, false
	}
	d = kernels.Delta{DK: q.Shape[3], DV: v.Shape[3], KHeads: q.Shape[2], Heads: heads, State: state,
		GToken: heads, BetaToken: heads}
	if tokens > 1 { // with one token, its distance to the next is meaningless
		d.QToken, d.KToken, d.VToken, d.GToken, d.BetaToken = q.Strides[1], k.Strides[1], v.Strides[1],
			g.Strides[1], beta.Strides[1]
	}
	if !ofSlots(op) && op.Input("reset") != nil {
		d.Reset = kernels.ResetFlag
	}
	if attrs, ok := op.Attrs.(*ir.DeltaStepAttrs); ok {
		d.Early = attrs.Early
		if attrs.Norm {
			d.Norm, d.Eps = kernels.F32, attrs.Eps
		}
		if attrs.Gates {
			d.Gates = kernels.F32
		}
	}
	return d, tokens, true
}

// deltaKernel reports whether the device has kernels for an operation that deltaRule makes.
func (g *graph) deltaKernel(op *ir.Op) bool {
	state, ok := CacheType(op.Buffer, g.Precision)
	if !ok {
		return false
	}
	if ofSlots(op) {
		return g.slotDeltaKernel(op, state)
	}
	d, tokens, ok := DeltaRule(op, g.views, state)
	if !ok {
		return false
	}
	if op.Def.Name == "delta_step" {
		return g.Allowed(d.StepLaunch())
	}
	solve, scan, err := d.Launches(tokens)
	return g.Allowed(solve, err) && g.Allowed(scan, err)
}

// slotDeltaKernel is deltaKernel for several sequences.
func (g *graph) slotDeltaKernel(op *ir.Op, state kernels.DType) bool {
	d, rows, ok := SlotDeltaRule(op, g.views, state)
	if !ok || !g.Allowed(d.StepLaunch(rows)) {
		return false
	}
	if op.Def.Name == "slot_delta_step" {
		return true
	}
	solve, scan, err := d.Launches(rows)
	return g.Allowed(solve, err) && g.Allowed(scan, err)
}
