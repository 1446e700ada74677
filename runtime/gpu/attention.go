package gpu

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// angleKey tells which angles a rope uses; those of all layers are the same as a rule.
type angleKey struct {
	offset *cell
	freqs  *ir.Value
	attrs  ir.RopeAttrs
	tokens int
}

// headsOf is a value [1, H, T, D] as heads of tokens.
type headsOf struct {
	heads, tokens, width int
	strides              kernels.Rows
}

func (v *value) heads() (h headsOf, ok bool) {
	if len(v.shape) != 4 || v.shape[0] != 1 || v.shape[3] > 1 && v.stride[3] != 1 {
		return h, false
	}
	return headsOf{v.shape[1], v.shape[2], v.shape[3], kernels.Rows{Token: v.stride[2], Row: v.stride[1]}}, true
}

// ropeOf is a rotation that is deferred: of queries until attention reads them, of keys until they are written
// to their cache.
type ropeOf struct {
	x      *value  // [1, H, T, D]
	norm   *normOf // of x, where it is a part of this
	out    *value
	dims   int
	pairs  bool // (2i, 2i+1) are rotated together
	angles *slot
}

func (r *ropeOf) emit(b *binder) {
	h, _ := r.x.heads()
	k := kernels.Rope{D: h.width, Dims: r.dims, Traditional: r.pairs, QHeads: h.heads, Q: h.strides}
	a := kernels.RopeArguments[operand]{Q: bytesOf(r.x), Angles: whole(r.angles), QOut: bytesOf(r.out), Step: b.stepAt(h.tokens, nil)}
	k.QNorm, k.Eps, a.QWeight = r.norm.of(k.Eps)
	if k.QNorm == kernels.WeightedHeadNorm {
		k.Weight = kernels.F32
	}
	l, err := k.Launch(h.tokens)
	b.launch("rope", l, err, a)
}

// of tells kernels of heads about a normalization, which may be nil, with its weight, which may be absent.
func (n *normOf) of(eps float32) (kernels.HeadNorm, float32, operand) {
	switch {
	case n == nil:
		return kernels.NoHeadNorm, eps, operand{}
	case n.weight == nil:
		return kernels.PlainHeadNorm, n.eps, operand{}
	}
	return kernels.WeightedHeadNorm, n.eps, bytesOf(n.weight)
}

// headNorm takes over a deferred normalization of heads that only this operation reads; x is then its input.
func (b *binder) headNorm(x *value, operand string) (*value, *normOf) {
	n, ok := x.slot.pending.(*normOf)
	if !ok || !b.only(operand) || n.out.offset != x.offset || n.out.len() != x.len() || len(x.shape) != 4 {
		return x, nil
	}
	// n.out has the heads of x, perhaps transposed; n.x lies in memory in its own way.
	width := x.shape[3]
	if n.out.shape[len(n.out.shape)-1] != width {
		return x, nil
	}
	tokens, heads := x.shape[2], x.shape[1]
	if x.stride[2] != heads*width || x.stride[1] != width || x.shape[0] != 1 {
		return x, nil
	}
	stride, ok := strided.Reshape(n.x.shape, n.x.stride, []int{tokens, heads, width})
	if !ok || stride[2] != 1 && width > 1 {
		return x, nil
	}
	v := *n.x
	v.shape, v.stride = x.shape, []int{0, stride[1], stride[0], 1}
	b.take(x.slot)
	return &v, n
}

// bindRope rotates pairs of x [1, H, T, D] by angles that follow from the position of the first token.
func bindRope(b *binder) bool {
	attrs, x, offset := *ir.Attrs[ir.RopeAttrs](b.op), b.floats("x"), b.register("offset")
	if x == nil || offset == nil {
		return false
	}
	h, ok := x.heads()
	if !ok || attrs.Dims <= 0 || attrs.Dims%2 != 0 || attrs.Dims > h.width {
		return false
	}
	if _, err := (kernels.Rope{D: h.width, Dims: attrs.Dims, QHeads: h.heads}).Launch(h.tokens); err != nil {
		return false
	}
	if shape, ok := b.dims(b.op.Result().Type); !ok || !slices.Equal(shape, x.shape) {
		return false
	}
	angles := b.angleTable(attrs, offset, h.tokens)
	if angles == nil {
		return false
	}
	r := &ropeOf{dims: attrs.Dims, pairs: attrs.Traditional, angles: angles}
	r.x, r.norm = b.headNorm(x, "x")
	if r.norm == nil {
		b.flush(x.slot)
	}
	// The result lies token by token.
	r.out = b.result(0, []int{h.tokens * h.heads * h.width, h.width, h.heads * h.width, 1})
	b.later(r.out.slot, r, r.x)
	return true
}

// angleTable adds the computation of angles, once for each kind, as the reference kernel computes them:
// (offset + t)·scale / freq in float32.
func (b *binder) angleTable(attrs ir.RopeAttrs, offset *cell, tokens int) *slot {
	half := attrs.Dims / 2
	freqs := b.op.Input("freqs")
	key := angleKey{offset: offset, freqs: freqs, attrs: attrs, tokens: tokens}
	if s := b.angles[key]; s != nil {
		return s
	}
	l, err := kernels.RopeAngles{Dims: attrs.Dims, Scale: attrs.Scale}.Launch(tokens)
	if err != nil {
		return nil
	}
	inverse := make([]float32, half)
	if freqs != nil {
		v := b.input("freqs")
		if v == nil || v.place != onHost || !v.cell.constant || len(v.shape) != 1 || v.shape[0] != half {
			return nil
		}
		c, err := v.cell.fixed()
		if err != nil || c.Tensor == nil || len(c.Tensor.F) != half {
			return nil
		}
		for i, f := range c.Tensor.F {
			inverse[i] = 1 / f
		}
	} else {
		step := numeric.Log32(attrs.Base) / float32(half)
		for i := range inverse {
			inverse[i] = numeric.Exp32(-float32(i) * step)
		}
	}
	table := b.x.exe.upload(encode(f32, eval.Floats(ir.F32, []int{half}, inverse)))
	if table == nil {
		return nil
	}
	s := b.scratch(8 * tokens * half)
	if !b.launch("angles", l, nil, kernels.RopeAnglesArguments[operand]{Inverse: whole(table), Angles: whole(s), Step: b.stepAt(tokens, offset)}) {
		return nil
	}
	b.angles[key] = s
	return s
}

// cacheWrite is a write of keys or values that is deferred until attention reads the cache.
type cacheWrite struct {
	s     *state
	x     *value // [1, H, T, D]
	rope  *ropeOf
	norm  *normOf
	start *cell
	at    *ir.Expr // which start is
	ring  bool
}

func (w *cacheWrite) emit(b *binder) {
	x := w.x
	switch {
	case w.rope != nil:
		x = w.rope.out
		b.later(x.slot, w.rope)
	case w.norm != nil:
		n := *w.norm
		x = n.out
		b.later(x.slot, &n)
	}
	if w.norm != nil || w.rope != nil {
		x = w.heads4(x)
	}
	h, _ := x.heads()
	k := kernels.CacheWrite{D: h.width, Heads: h.heads, X: h.strides, Cache: w.s.format.kernelType(), Slots: w.s.shape[2], Ring: w.ring}
	l, err := k.Launch(h.tokens)
	b.launch("cache write", l, err, kernels.CacheWriteArguments[operand]{X: bytesOf(x), Cache: whole(w.s.slot), Step: b.stepAt(h.tokens, w.start)})
}

// heads4 sees what a norm or a rope made, token by token, as [1, H, T, D].
func (w *cacheWrite) heads4(made *value) *value {
	v := *made
	heads, tokens, width := w.s.shape[1], made.len()/(w.s.shape[1]*w.s.shape[3]), w.s.shape[3]
	v.shape, v.stride = []int{1, heads, tokens, width}, []int{0, width, heads * width, 1}
	return &v
}

// bindCacheWrite defers a write of keys or values. Positions that the cache has no room for are an error,
// before anything runs.
func bindCacheWrite(b *binder) bool {
	s, u, start := b.x.states[b.op.Buffer], b.floats("update"), b.register("start")
	if s == nil || s.slot == nil || u == nil || start == nil || len(s.shape) != 4 || len(u.shape) != 4 {
		return false
	}
	ring := b.op.Def.Name == "buffer_ring_update"
	axis, ok := 2, true
	if ring {
		axis = ir.Attrs[ir.AxisAttrs](b.op).Axis
	} else if axis, ok = b.integer("axis"); ir.Attrs[ir.StepAttrs](b.op).Step != 1 {
		return false
	}
	h, heads := u.heads()
	if !ok || axis != 2 && axis != -2 || !heads || s.shape[0] != 1 || s.shape[1] != h.heads || s.shape[3] != h.width || h.tokens > s.shape[2] {
		return false
	}
	slots, name := s.shape[2], b.op.Buffer.Name
	if ring {
		b.check(start, func() error {
			if n := start.content.Int; n < 0 || n >= 1<<30 {
				return fmt.Errorf("buffer_ring_update @%s: position %d", name, n)
			}
			return nil
		})
	} else {
		stop := b.register("stop")
		if stop == nil {
			return false
		}
		b.check(stop, func() error {
			from, to := start.content.Int, stop.content.Int
			if from < 0 || to > int64(slots) || to-from != int64(h.tokens) {
				return fmt.Errorf("buffer_slice_update @%s: positions %d to %d for %d tokens, the cache has %d slots", name, from, to, h.tokens, slots)
			}
			return nil
		})
	}
	b.flush(s.slot)
	if u.slot.state {
		return false // a cache that is written of another is none of a model
	}
	w := &cacheWrite{s: s, x: u, start: start, at: b.expr("start"), ring: ring}
	if r, ok := u.slot.pending.(*ropeOf); ok && b.only("update") && u.slot == r.out.slot && u.len() == r.out.len() && slices.Equal(u.shape, r.out.shape) {
		b.take(u.slot)
		w.rope = r
	} else if _, ok := u.slot.pending.(*normOf); ok {
		w.x, w.norm = b.headNorm(u, "update")
	}
	if w.rope == nil && w.norm == nil {
		b.flush(u.slot)
	}
	b.later(s.slot, w, w.x)
	return true
}

// expr is the int in an operand, for the shapes of the plan.
func (b *binder) expr(operand string) *ir.Expr {
	a, _ := b.op.Arg(operand)
	if a.Kind == ir.IntArg {
		return ir.Const(a.Int)
	}
	return a.Value.Type.Int.Substitute(func(s *ir.Symbol) *ir.Expr {
		if n, ok := b.symbols[s]; ok {
			return ir.Const(n)
		}
		return nil // it stays
	})
}

// check adds a check of a cell for every call.
func (b *binder) check(c *cell, f func() error) {
	c.need()
	b.plan.checks = append(b.plan.checks, f)
}

// cacheOf is the buffer whose content an operand is, and its heads.
func (b *binder) cacheOf(operand string) *state {
	v, load := b.input(operand), b.op.Input(operand)
	for load != nil && load.Def != nil && load.Def.Def.Name == "astype" {
		load = load.Def.Input("x")
	}
	if v == nil || v.place != onDevice || load.Def == nil || load.Def.Def.Name != "load" || !b.held[load.Def] || len(v.shape) != 4 {
		return nil
	}
	s := b.x.states[load.Def.Buffer]
	if s == nil || s.slot == nil || v.slot != s.slot {
		return nil
	}
	return s
}

// mergeOf is the second half of attention, or all of it, deferred until the output is multiplied with its gate.
type mergeOf struct {
	a        kernels.Attention
	tokens   int
	part, ml *slot
	tiles    *attentionTiles
	tuning   kernels.ChunkTuning
	one      *attentionStep
	step     operand
	out      *value
}

// attentionTiles are the operands of attention by tiles, which is one kernel.
type attentionTiles struct {
	q    *value
	k, v *state
}

func (m *mergeOf) emit(b *binder) { m.run(b, nil, m.out) }

// run writes the output, times sigmoid(gate) where that is set.
func (m *mergeOf) run(b *binder, gate *value, out *value) bool {
	a := m.a
	var g operand
	if gate != nil {
		rows, ok := gate.gridAs(grid{tokens: m.tokens, rows: a.Heads, width: a.D})
		if !ok {
			return false
		}
		a.Gated, a.Gates, g = true, rows, bytesOf(gate)
	}
	if m.one != nil {
		return m.one.run(b, a, g, out, m.step)
	}
	if m.tiles != nil {
		launch := func(t kernels.ChunkTuning) (kernels.Launch, error) { return a.ChunkLaunch(m.tokens, t) }
		l, err := launch(m.tuning)
		args := kernels.AttentionChunkArguments[operand]{Q: bytesOf(m.tiles.q), Keys: whole(m.tiles.k.slot), Values: whole(m.tiles.v.slot), Gate: g, Out: bytesOf(out),
			Step: atPositions(m.step, a, m.tokens)}
		if !b.launch("attention", l, err, args) {
			return false
		}
		tuned(b, a.ChunkTunings(b.x.exe.machine.Target), launch)
		b.readingCaches(a, m.tokens)
		return true
	}
	_, l, _, err := a.Launches(m.tokens)
	return b.launch("attention merge", l, err, kernels.AttentionMergeArguments[operand]{Part: whole(m.part), ML: whole(m.ml), Gate: g, Out: bytesOf(out), Step: m.step})
}

// bindAttention attends to what caches hold.
func bindAttention(b *binder) bool {
	attrs, q, position := ir.Attrs[ir.CachedAttentionAttrs](b.op), b.floats("q"), b.register("position")
	k, v := b.cacheOf("k"), b.cacheOf("v")
	if q == nil || k == nil || v == nil || position == nil || k.format != v.format {
		return false
	}
	h, ok := q.heads()
	if !ok || h.heads%max(k.shape[1], 1) != 0 || k.shape[0] != 1 || !slices.Equal(k.shape, v.shape) || k.shape[3] != h.width {
		return false
	}
	a := kernels.Attention{D: h.width, Heads: h.heads, KVHeads: k.shape[1], Slots: k.shape[2], Window: attrs.Window, Scale: attrs.Scale, Cache: k.format.kernelType()}
	tunings := a.Tunings(b.x.exe.machine.Target, h.tokens > 1)
	if len(tunings) == 0 {
		tunings = []kernels.AttentionTuning{{}}
	}
	a.Tuning = tunings[0]
	part, _, blocks, err := a.Launches(h.tokens)
	if err != nil {
		return false
	}
	tokens, slots, window := h.tokens, k.shape[2], attrs.Window
	b.check(position, func() error {
		if err := eval.CheckCache(int(position.content.Int), tokens, slots, window); err != nil {
			return fmt.Errorf("cached_attention: %w", err)
		}
		return nil
	})
	if r := b.pendingRope(q, k, v); r != nil && tokens == 1 && b.only("q") && r.writesAt(b.expr("position")) {
		if one := r.step(b, a, q, k, v); one != nil {
			if out := b.result(0, nil); out != nil && slices.Equal(out.shape, []int{1, h.heads, 1, h.width}) {
				r.take(b, q, k, v)
				b.later(out.slot, &mergeOf{a: a, tokens: 1, one: one, step: b.stepAt(1, position), out: out})
				b.later(k.slot, &alongOf{out.slot})
				b.later(v.slot, &alongOf{out.slot})
				return true
			}
			return false
		}
	} else if r != nil {
		r.run(b, q, k, v)
	}
	b.flush(q.slot)
	b.flush(k.slot)
	b.flush(v.slot)
	// Queries token by token.
	if q.stride[1] != h.width && h.heads > 1 || q.stride[2] != h.heads*h.width && h.tokens > 1 {
		t := *q
		t.shape, t.stride = []int{1, h.tokens, h.heads, h.width}, []int{0, h.strides.Token, h.strides.Row, 1}
		if q = b.dense(&t); q == nil {
			return false
		}
	}
	out := b.result(0, []int{h.tokens * h.heads * h.width, h.width, h.heads * h.width, 1})
	if out == nil || !slices.Equal(out.shape, []int{1, h.heads, h.tokens, h.width}) {
		return false
	}
	m := &mergeOf{a: a, tokens: h.tokens, step: b.stepAt(h.tokens, position), out: out}
	if tunings := a.ChunkTunings(b.x.exe.machine.Target); len(tunings) > 0 {
		m.tuning = tunings[0]
	}
	if _, err := b.allowed(a.ChunkLaunch(h.tokens, m.tuning)); err == nil && b.tiled(h.tokens) {
		m.tiles = &attentionTiles{q, k, v}
	} else {
		m.part, m.ml = b.scratch(4*h.tokens*h.heads*blocks*h.width), b.scratch(8*h.tokens*h.heads*blocks)
		b.launch("attention", part, nil, kernels.AttentionPartArguments[operand]{Q: bytesOf(q), Keys: whole(k.slot), Values: whole(v.slot), Part: whole(m.part), ML: whole(m.ml),
			Step: atPositions(m.step, a, h.tokens)})
		tuned(b, tunings, func(t kernels.AttentionTuning) (kernels.Launch, error) { return partOf(a, t, h.tokens) })
		b.readingCaches(a, h.tokens)
	}
	b.later(out.slot, m)
	return true
}

// partOf is the first launch of attention in another way than a's, with the known answer of both. The second one is a's: it is to
// find positions divided into as many blocks.
func partOf(a kernels.Attention, t kernels.AttentionTuning, tokens int) (kernels.Launch, error) {
	if t.Blocks != a.Tuning.Blocks || t.Least != a.Tuning.Least {
		return kernels.Launch{}, fmt.Errorf("%d blocks of %d positions or more, want %d of %d", t.Blocks, t.Least, a.Tuning.Blocks, a.Tuning.Least)
	}
	a.Tuning = t
	part, merge, _, err := a.Launches(tokens)
	part.Trial = merge.Trial
	return part, err
}

// tiled reports whether products of so many rows go by tiles of bf16, which precision mixed allows.
func (b *binder) tiled(rows int) bool {
	return rows > 8 && b.x.exe.precision == eval.Mixed && !b.x.exe.exact
}
