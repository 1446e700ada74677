package cpu

import (
	"slices"

	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// deltaRule is buffer_delta_rule bound to a plan. The work is divided into parts: some state rows of the value heads
// that share a key head.
type deltaRule struct {
	q, k, v, g, beta, reset, out *value
	state                        *state
	steps, keyHeads, keyWidth    int
	group, width                 int // value heads for each key head, rows of their states
	partRows, parts              int // rows of a part, parts of a key head
}

// deltaRows is the number of rows of a part for few tokens.
const deltaRows = 64

// deltaShare is the minimum number of parts for each thread, if there are enough rows, so that all threads end at about
// the same time.
const deltaShare = 4

// deltaOperands collects the operands of a gated delta rule, except for its state and its result.
func (b *binder) deltaOperands() (*deltaRule, bool) {
	d := &deltaRule{q: b.Input("q"), k: b.Input("k"), v: b.Input("v"), g: b.Input("g"),
		beta: b.Input("beta"), state: b.floatState()}
	for i, x := range []*value{d.q, d.k, d.v, d.g, d.beta} {
		rank := []int{4, 4, 4, 3, 3}[i]
		if x == nil || !x.isFloats() || len(x.shape) != rank || x.stride[1] < 0 || rank == 4 && x.stride[3] != 1 {
			return nil, false
		}
	}
	if d.state == nil || len(d.state.shape) != 4 {
		return nil, false
	}
	batch, heads := d.v.shape[0], d.v.shape[2]
	d.steps, d.width, d.keyHeads, d.keyWidth = d.v.shape[1], d.v.shape[3], d.q.shape[2], d.q.shape[3]
	if !slices.Equal(d.q.shape, []int{batch, d.steps, d.keyHeads, d.keyWidth}) || !slices.Equal(d.k.shape, d.q.shape) ||
		!slices.Equal(d.g.shape, d.v.shape[:3]) || !slices.Equal(d.beta.shape, d.g.shape) ||
		d.keyHeads == 0 || heads%d.keyHeads != 0 || d.keyWidth == 0 || d.steps == 0 {
		return nil, false
	}
	d.group = heads / d.keyHeads
	return d, true
}

// bindDeltaRule binds the gated delta rule over the tokens of a call.
func bindDeltaRule(b *binder) bool {
	reset, ok := b.flag()
	d, ok2 := b.deltaOperands()
	if !ok || !ok2 {
		return false
	}
	d.reset = reset
	batch, s := d.v.shape[0], d.state
	if !slices.Equal(s.shape, []int{batch, d.v.shape[2], d.width, d.keyWidth}) {
		return false
	}
	if d.out = b.result(0, nil); d.out == nil || !slices.Equal(d.out.shape, d.v.shape) {
		return false
	}
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

// cut chooses the size of the parts. In chunks, what depends on the keys alone is computed again for each part, so
// parts are as large as the number of threads allows.
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

// run computes all tokens for a part of key head key in row n of the batch.
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
	d.tokens(w, state, n, key, first, last, 0, d.steps)
	if d.state.half != nil {
		d.state.put(at, state)
	}
}

// tokens computes n tokens of a row of the batch, from number token on, for rows [first, last) of the states that
// belong to key head key.
func (d *deltaRule) tokens(w *work, state []float32, batch, key, first, last, token, n int) {
	of := func(x *value, head int) []float32 {
		return x.floats()[batch*x.stride[0]+token*x.stride[1]+head*x.stride[2]:]
	}
	heads := w.delta.Heads[:0]
	for row := first; row < last; {
		end := min(row-row%d.width+d.width, last)
		head := key*d.group + row/d.width
		heads = append(heads, kernel.DeltaHead{Rows: end - row,
			State: state[(row-first)*d.keyWidth : (end-first)*d.keyWidth],
			V:     of(d.v, head)[row%d.width:], Y: of(d.out, head)[row%d.width:], Decay: of(d.g, head),
			Beta: of(d.beta, head)})
		row = end
	}
	w.delta = kernel.DeltaRun{Tokens: n, Keys: d.keyWidth, Heads: heads, Q: of(d.q, key), K: of(d.k, key),
		QStride: d.q.stride[1], KStride: d.k.stride[1], VStride: d.v.stride[1], YStride: d.out.stride[1],
		DecayStride: d.g.stride[1], BetaStride: d.beta.stride[1]}
	kernel.DeltaRule(&w.delta)
	clear(heads)
	w.delta = kernel.DeltaRun{Heads: heads[:0]}
}
