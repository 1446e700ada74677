package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// deltaRules makes gated delta rules those of chunks, or those that take one token after the other: with few of them these do
// what comes before, too, the normalization of q and k, and the gates.
func deltaRules(m *ir.Module, t *Target) error {
	return ir.Build(func() {
		e := newEdit(m, t)
		for _, op := range m.Entry.Body.Ops {
			if op.Def.Name == "buffer_delta_rule" {
				e.deltaRule(op)
			}
		}
		must(e.finish())
	})
}

// delta are the operands of a delta rule. Norms, decay and rate are set where they are a part of it.
type delta struct {
	op          *ir.Op
	q, k, v     *ir.Value
	qn, kn      *ir.Op
	decay, rate *ir.Op
	early       bool
}

func (e *edit) deltaRule(op *ir.Op) {
	d := &delta{op: op, early: !e.written(0, e.index(op), op.Buffer)}
	tokens, ok := e.t.deltaRule(op)
	if !ok {
		return
	}
	if tokens > FewTokens {
		if e.t.deltaKernel(d.chunks(e.trial(), e.t)) {
			e.replace(op, func(b *ir.Builder) []*ir.Value { return d.chunks(b, e.t).Results })
			return
		}
	} else {
		d.takeNorms(e)
		d.takeGates(e.t)
	}
	if e.t.deltaKernel(d.step(e.trial(), e.t)) {
		e.replace(op, func(b *ir.Builder) []*ir.Value { return d.step(b, e.t).Results })
	}
}

// deltaRule reports whether the operands are such as the kernels take, for so many tokens.
func (t *Target) deltaRule(op *ir.Op) (tokens int, ok bool) {
	q, ok := t.floats(op.Input("q"))
	k, ok2 := t.floats(op.Input("k"))
	v, ok3 := t.floats(op.Input("v"))
	g, ok4 := t.floats(op.Input("g"))
	beta, ok5 := t.floats(op.Input("beta"))
	state, static := op.Buffer.Type.Static()
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !static || len(q.Shape) != 4 || len(v.Shape) != 4 || len(g.Shape) != 3 || len(state) != 4 || q.Shape[0] != 1 {
		return 0, false
	}
	if r := op.Input("reset"); r != nil && (r.Type.DType != ir.Bool || !t.known(ir.Use(r))) {
		return 0, false
	}
	tokens, keyHeads, keyWidth := q.Shape[1], q.Shape[2], q.Shape[3]
	heads, width := v.Shape[2], v.Shape[3]
	return tokens, slices.Equal(k.Shape, q.Shape) && slices.Equal(v.Shape, []int{1, tokens, heads, width}) && slices.Equal(g.Shape, []int{1, tokens, heads}) &&
		slices.Equal(beta.Shape, g.Shape) && slices.Equal(state, []int64{1, int64(heads), int64(width), int64(keyWidth)}) && keyHeads > 0 && heads%keyHeads == 0
}

// takeNorms makes the normalizations of q and k, with weights, a part of the rule.
func (d *delta) takeNorms(e *edit) {
	q, k := e.keyNorm(d.op.Input("q")), e.keyNorm(d.op.Input("k"))
	if q != nil && k != nil && ir.Attrs[ir.NormAttrs](q).Eps == ir.Attrs[ir.NormAttrs](k).Eps {
		d.qn, d.kn = q, k
	}
}

// keyNorm is the normalization of heads with a weight that x is the result of, where nothing else reads that; else nil.
func (e *edit) keyNorm(x *ir.Value) *ir.Op {
	l, _ := e.t.Layout(x)
	op := e.t.defined(x, "rms_norm")
	if op == nil || !e.only(x) || op.Input("weight") == nil || !isVector(op.Input("weight"), l.Shape[3]) {
		return nil
	}
	of, _ := e.t.Layout(op.Result())
	in, ok := e.t.floats(op.Input("x"))
	if !ok || len(of.Shape) == 0 || of.Shape[len(of.Shape)-1] != l.Shape[3] {
		return nil
	}
	if stride, ok := strided.Reshape(in.Shape, in.Strides, l.Shape); !ok || stride[3] != 1 {
		return nil
	}
	return op
}

// takeGates makes the decays and the update rates a part of the rule.
func (d *delta) takeGates(t *Target) {
	decay, rate := t.defined(d.op.Input("g"), "delta_decay"), t.defined(d.op.Input("beta"), "sigmoid")
	if decay == nil || rate == nil {
		return
	}
	shape := t.views(d.op.Input("g")).Shape
	for _, x := range []*ir.Value{decay.Input("x"), rate.Input("x")} {
		l, ok := t.floats(x)
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

// rows gives x [1, T, n, width] such that the kernels can read it, copied where they cannot: the n rows of a token lie one after
// the other, and those of vectors of four begin where such may.
func (t *Target) rows(b *ir.Builder, x *ir.Value, fours bool) *ir.Value {
	l, _ := t.Layout(x)
	apart := l.Shape[3] != 1 && l.Strides[3] != 1 || l.Shape[2] != 1 && l.Strides[2] != l.Shape[3]
	if apart || fours && (l.Offset%4 != 0 || l.Shape[1] != 1 && l.Strides[1]%4 != 0) {
		return b.Value("copy", nil, x)
	}
	return x
}

func (d *delta) step(b *ir.Builder, t *Target) *ir.Op {
	q, k, g, beta := d.op.Input("q"), d.op.Input("k"), d.op.Input("g"), d.op.Input("beta")
	attrs := &ir.DeltaStepAttrs{Norm: d.qn != nil, Gates: d.decay != nil, Early: d.early}
	var qWeight, kWeight, bias, rate *ir.Value
	if attrs.Norm {
		attrs.Eps, qWeight, kWeight = ir.Attrs[ir.NormAttrs](d.qn).Eps, d.qn.Input("weight"), d.kn.Input("weight")
		shape := t.views(q).Shape
		q, k = reshaped(b, d.qn.Input("x"), shape), reshaped(b, d.kn.Input("x"), shape)
	}
	if attrs.Gates {
		bias, rate = d.decay.Input("bias"), d.decay.Input("rate")
		shape := t.views(g).Shape
		g, beta = reshaped(b, d.decay.Input("x"), shape), reshaped(b, d.rate.Input("x"), shape)
	}
	q, k, v := t.rows(b, q, true), t.rows(b, k, true), t.rows(b, d.op.Input("v"), false)
	return b.BufferOp("delta_step", d.op.Buffer, attrs, q, k, v, g, beta, d.op.Input("reset"), qWeight, kWeight, bias, rate)
}

func (d *delta) chunks(b *ir.Builder, t *Target) *ir.Op {
	q, k, v := t.rows(b, d.op.Input("q"), true), t.rows(b, d.op.Input("k"), true), t.rows(b, d.op.Input("v"), false)
	return b.BufferOp("delta_chunks", d.op.Buffer, nil, q, k, v, d.op.Input("g"), d.op.Input("beta"), d.op.Input("reset"))
}

// DeltaRule is the kernel of delta_step or delta_chunks, on a state of a dtype, for so many tokens.
func DeltaRule(op *ir.Op, view Views, state kernels.DType) (d kernels.Delta, tokens int, ok bool) {
	q, k, v, g, beta := view(op.Input("q")), view(op.Input("k")), view(op.Input("v")), view(op.Input("g")), view(op.Input("beta"))
	if len(q.Shape) != 4 || len(v.Shape) != 4 || len(g.Shape) != 3 || len(beta.Shape) != 3 {
		return d, 0, false
	}
	tokens, heads := q.Shape[1], v.Shape[2]
	if heads > 1 && (g.Strides[2] != 1 || beta.Strides[2] != 1) {
		return d, 0, false
	}
	d = kernels.Delta{DK: q.Shape[3], DV: v.Shape[3], KHeads: q.Shape[2], Heads: heads, State: state, GToken: heads, BetaToken: heads}
	if tokens > 1 { // the distance of tokens means nothing where there is one
		d.QToken, d.KToken, d.VToken, d.GToken, d.BetaToken = q.Strides[1], k.Strides[1], v.Strides[1], g.Strides[1], beta.Strides[1]
	}
	if op.Input("reset") != nil {
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

// deltaKernel reports whether kernels do a delta_step or delta_chunks.
func (t *Target) deltaKernel(op *ir.Op) bool {
	state, ok := CacheType(op.Buffer, t.Precision)
	if !ok {
		return false
	}
	d, tokens, ok := DeltaRule(op, t.views, state)
	if !ok {
		return false
	}
	if op.Def.Name == "delta_step" {
		return t.Allowed(d.StepLaunch())
	}
	solve, scan, err := d.Launches(tokens)
	return t.Allowed(solve, err) && t.Allowed(scan, err)
}
