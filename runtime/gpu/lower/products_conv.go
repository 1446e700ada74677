package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// convOf returns the kernel of a depthwise convolution, of which slot_conv is one of several sequences. It returns
// false where kernels cannot compute it, or x has another layout than they take.
func (g *graph) convOf(op *ir.Op) (k kernels.Conv, ok bool) {
	a, w, state := ir.Attrs[ir.BufferConvAttrs](op), op.Input("w"), op.Buffer
	l, ok := g.numbers(op.Input("x"))
	taps := shape(w)
	held, ok2 := plan.Sizes{}.Dims(state.Type)
	if !ok || !ok2 || !isConstant(w) || len(taps) != 3 || len(l.Shape) != 3 || l.Shape[0] != 1 || l.Shape[2] > 1 &&
		l.Strides[2] != 1 {
		return k, false
	}
	channels := l.Shape[2]
	want := []int{1, taps[1], channels}
	if a.ChannelFirst {
		want = []int{1, channels, taps[1]}
	}
	if ofSlots(op) && len(held) > 0 {
		want[0] = held[0]
	}
	of, ok := CacheType(state, g.Precision)
	if !ok || !slices.Equal(held, want) || !slices.Equal(taps, []int{channels, taps[1], 1}) || a.Activation != "" &&
		a.Activation != "silu" {
		return k, false
	}
	k = kernels.Conv{Channels: channels, Taps: taps[1], Token: l.Strides[1], SiLU: a.Activation == "silu", State: of,
		ChannelFirst: a.ChannelFirst, Weight: kernels.F32}
	if !ofSlots(op) && op.Input("reset") != nil {
		k.Reset = kernels.ResetFlag
	}
	return k, true
}

// convolved merges the convolution of one token, or of the only row of a call of several sequences, into the product
// whose first columns are its channels, together with the other products of the same row that one kernel computes.
func (g *graph) convolved(op *ir.Op) {
	x := op.Input("x")
	k, ok := g.convOf(op)
	l, _ := g.numbers(x)
	if !ok || l.Shape[1] != 1 || l.Base.Def == nil || l.Offset != 0 || ofSlots(op) && !knownTables(op) {
		return
	}
	of := l.Base.Def
	list := g.products(of)
	first := slices.IndexFunc(list, func(p *product) bool { return p.out == l.Base })
	if first < 0 || list[first].rows != 1 || list[first].bias != nil || k.Channels > list[first].form.rows {
		return
	}
	at := g.group(list, first, func(i int) bool { return len(g.readers[list[i].out]) > 0 })
	many := g.many(list, at)
	a := &ir.MatvecConvAttrs{Early: g.early(op), Channels: k.Channels,
		ConvActivation: ir.Attrs[ir.BufferConvAttrs](op).Activation, ChannelFirst: k.ChannelFirst}
	many.Conv, many.Early = &k, a.Early
	if ofSlots(op) {
		many.Slots = shape(op.Input("entries"))[0]
	}
	if a.Activation, a.Of, a.First, a.Rows = g.gateAhead(op, list, at); a.Activation != "" {
		activation, _ := kernels.ActivationNamed(a.Activation)
		many.Activated = kernels.Activated{Weight: a.Of, First: a.First, Rows: a.Rows, Activation: activation}
	}
	if !usable(g.Target, many.Tunings(g.Machine), many.Launch) {
		return
	}
	p := list[first]
	norm := g.normOf(p)
	var weight *ir.Value
	a.Norm, a.Eps, weight = normAttr(norm)
	var weights []*ir.Value
	for _, i := range at {
		weights = append(weights, list[i].w)
	}
	g.replace(op, func(b *ir.Builder) []*ir.Value {
		tables := []any{op.Input("w"), nil, nil, nil}
		if ofSlots(op) {
			tables[2], tables[3] = op.Input("entries"), op.Input("writes")
		} else {
			tables[1] = op.Input("reset")
		}
		n := b.BufferOp("matvec_conv", op.Buffer, a, append([]any{g.rowsOf(b, p.x, norm), weights, weight},
			tables...)...)
		for j, i := range at {
			g.stand(op, list[i].out, n.Results[j])
		}
		return n.Results[len(at) : len(at)+1]
	})
}

// early reports whether no operation before op writes its buffer, and the host knows the flag that resets it. Tables of
// slots are known.
func (g *graph) early(op *ir.Op) bool {
	early := !g.written(0, g.places[op], op.Buffer)
	if ofSlots(op) {
		return early
	}
	reset, ok := op.Arg("reset")
	return early && (!ok || known(reset))
}

// gateAhead looks for one row of a product's results that a later operation uses as its gate. It returns the gate's
// activation, the number of the product, the first result and the number of results. The product's kernel then also
// computes the activation, since there each result is computed only once.
func (g *graph) gateAhead(conv *ir.Op, list []*product, at []int) (activation string, of, first, rows int) {
	behind := false
	for _, op := range g.m.Entry.Body.Ops {
		if op == conv {
			behind = true
		}
		name := ""
		switch a := op.Attrs.(type) {
		case *ir.GLUAttrs:
			name = a.Activation
		case *ir.GatedNormAttrs:
			name = a.Activation
		}
		if !behind || name == "" || g.dead[op] {
			continue
		}
		l, ok := g.numbers(op.Input("gate"))
		if !ok || !l.IsDense() {
			continue
		}
		if i := slices.IndexFunc(at, func(i int) bool { return list[i].out == l.Base }); i >= 0 {
			return name, i, l.Offset, strided.Elements(l.Shape)
		}
	}
	return "", 0, 0, 0
}
