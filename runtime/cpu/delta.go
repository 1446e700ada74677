package cpu

import (
	"slices"

	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// deltaRule is buffer_delta_rule bound to a plan. A part is some rows of the states of the value heads that
// share a key head.
type deltaRule struct {
	q, k, v, g, beta, reset, out *value
	state                        *state
	steps, keyHeads, keyWidth    int
	group, width                 int // value heads of a key head, rows of their states
	partRows, parts              int // rows of a part, parts of a key head
}

// deltaRows is the number of rows of a part for few tokens.
const deltaRows = 64

// deltaShare is the least number of parts for each thread, if rows are enough, so that all end together.
const deltaShare = 4

// bindDeltaRule runs the gated delta rule over the tokens of a call, on the state that a buffer holds.
func bindDeltaRule(b *binder) bool {
	s := b.floatState()
	reset, ok := b.flag()
	d := &deltaRule{q: b.Input("q"), k: b.Input("k"), v: b.Input("v"), g: b.Input("g"), beta: b.Input("beta"), reset: reset, state: s}
	for i, x := range []*value{d.q, d.k, d.v, d.g, d.beta} {
		rank := []int{4, 4, 4, 3, 3}[i]
		if x == nil || !x.isFloats() || len(x.shape) != rank || x.stride[1] < 0 || rank == 4 && x.stride[3] != 1 {
			return false
		}
	}
	if !ok || s == nil || len(s.shape) != 4 {
		return false
	}
	batch, heads := d.v.shape[0], d.v.shape[2]
	d.steps, d.width, d.keyHeads, d.keyWidth = d.v.shape[1], d.v.shape[3], d.q.shape[2], d.q.shape[3]
	if !slices.Equal(d.q.shape, []int{batch, d.steps, d.keyHeads, d.keyWidth}) || !slices.Equal(d.k.shape, d.q.shape) ||
		!slices.Equal(d.g.shape, d.v.shape[:3]) || !slices.Equal(d.beta.shape, d.g.shape) ||
		!slices.Equal(s.shape, []int{batch, heads, d.width, d.keyWidth}) || d.keyHeads == 0 || heads%d.keyHeads != 0 || d.keyWidth == 0 || d.steps == 0 {
		return false
	}
	if d.out = b.result(0, nil); d.out == nil || !slices.Equal(d.out.shape, d.v.shape) {
		return false
	}
	d.group = heads / d.keyHeads
	d.cut(batch, b.x.exe.pool.Threads())
	st := b.do("delta rule", b.parallel(batch*d.keyHeads*d.parts, 1, func(lo, hi int) {
		w := getWork()
		for i := lo; i < hi; i++ {
			d.run(w, i/d.parts/d.keyHeads, i/d.parts%d.keyHeads, i%d.parts)
		}
		putWork(w)
	}))
	st.bytes, st.flops = 8*s.size, 7*s.size*d.steps
	return true
}

// cut chooses the parts. In chunks what is computed of the keys is computed for each part, so that they are as
// large as threads allow.
func (d *deltaRule) cut(batch, threads int) {
	rows := d.group * d.width
	d.partRows = max(min(deltaRows, rows), 1)
	if panel := kernel.PanelRows(); kernel.InDeltaChunks(d.steps) {
		for d.partRows = max(rows, 1); d.partRows > panel && batch*d.keyHeads*(rows/d.partRows) < deltaShare*threads; {
			d.partRows = (d.partRows/2 + panel - 1) / panel * panel
		}
	}
	d.parts = (rows + d.partRows - 1) / d.partRows
}

// run goes through the tokens for a part of key head key of row n of the batch.
func (d *deltaRule) run(w *work, n, key, part int) {
	first, last := part*d.partRows, min((part+1)*d.partRows, d.group*d.width)
	at, size := ((n*d.keyHeads+key)*d.group*d.width+first)*d.keyWidth, (last-first)*d.keyWidth
	var state []float32
	if d.state.half == nil {
		state = d.state.slot.f[at : at+size]
	} else {
		w.acc = grow(w.acc, size)
		state = w.acc
	}
	switch {
	case d.reset.isSet():
		clear(state)
	case d.state.half != nil:
		d.state.get(state, at)
	}
	heads := w.delta.Heads[:0]
	for row := first; row < last; {
		end := min(row-row%d.width+d.width, last)
		head := key*d.group + row/d.width
		of := func(x *value) []float32 { return x.floats()[n*x.stride[0]+head*x.stride[2]:] }
		heads = append(heads, kernel.DeltaHead{Rows: end - row, State: state[(row-first)*d.keyWidth : (end-first)*d.keyWidth],
			V: of(d.v)[row%d.width:], Y: of(d.out)[row%d.width:], Decay: of(d.g), Beta: of(d.beta)})
		row = end
	}
	w.delta = kernel.DeltaRun{Tokens: d.steps, Keys: d.keyWidth, Heads: heads,
		Q: d.q.floats()[n*d.q.stride[0]+key*d.q.stride[2]:], K: d.k.floats()[n*d.k.stride[0]+key*d.k.stride[2]:],
		QStride: d.q.stride[1], KStride: d.k.stride[1], VStride: d.v.stride[1], YStride: d.out.stride[1],
		DecayStride: d.g.stride[1], BetaStride: d.beta.stride[1]}
	kernel.DeltaRule(&w.delta)
	if d.state.half != nil {
		d.state.put(at, state)
	}
	clear(heads)
	w.delta = kernel.DeltaRun{Heads: heads[:0]}
}
