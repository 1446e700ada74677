package gpu

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// view returns the strided view (slot, offset, shape, strides) of v on the device, where it copies v if it is a host
// value. It returns an empty view where v cannot be there.
func (b *binder) view(v *ir.Value) plan.View {
	n, err := b.Value(v)
	if err != nil {
		return plan.View{}
	}
	if n = b.device(v, n); n == nil {
		return plan.View{}
	}
	return n.view()
}

// tokenMajor returns the strides of a tensor [1, H, T, D] of heads whose memory order is [T, H, D].
func tokenMajor(heads, tokens, width int) []int {
	return []int{tokens * heads * width, width, heads * width, 1}
}

// bindRopeAngles computes angles as the reference kernel does: (position + t)·scale / freq in float32.
func bindRopeAngles(b *binder) bool {
	attrs, position := ir.Attrs[ir.RopeAnglesAttrs](b.Op), b.register("position")
	l, err := kernels.RopeAngles{Dims: attrs.Dims, Scale: attrs.Scale}.Launch(attrs.Tokens)
	inverse := b.inverseFreqs(attrs)
	if err != nil || position == nil || inverse == nil {
		return false
	}
	table := b.x.exe.upload(encode(f32, eval.Floats(ir.F32, []int{len(inverse)}, inverse)))
	out := b.result(0, nil)
	return table != nil && out != nil &&
		b.launch("angles", l, nil, kernels.RopeAnglesArguments[operand]{Inverse: whole(table), Angles: bytesOf(out),
			Step: b.stepAt(attrs.Tokens, position)})
}

// inverseFreqs returns the reciprocals of the operation's rotation frequencies, or nil where it has none of its own.
func (b *binder) inverseFreqs(attrs *ir.RopeAnglesAttrs) []float32 {
	half := attrs.Dims / 2
	inverse := make([]float32, half)
	if b.Op.Input("freqs") == nil {
		step := numeric.Log32(attrs.Base) / float32(half)
		for i := range inverse {
			inverse[i] = numeric.Exp32(-float32(i) * step)
		}
		return inverse
	}
	v := b.Input("freqs")
	if v == nil || v.place != onHost || !v.hostValue.constant || len(v.shape) != 1 || v.shape[0] != half {
		return nil
	}
	c, err := v.hostValue.fixed()
	if err != nil || c.Tensor == nil || len(c.Tensor.F) != half {
		return nil
	}
	for i, f := range c.Tensor.F {
		inverse[i] = 1 / f
	}
	return inverse
}

// weight returns the weight vector [n] of a norm as an operand of a kernel. The IR operand may be absent. It returns
// false where the operand is not a constant vector.
func (b *binder) weight(name string, n int) (w operand, ok bool) {
	if b.Op.Input(name) == nil {
		return w, true
	}
	v := b.vector(name, n)
	if v == nil {
		return w, false
	}
	return bytesOf(v), true
}

// bindRopeHeads normalizes the heads of queries and keys and rotates pairs of their elements.
func bindRopeHeads(b *binder) bool {
	x, angles := b.floats("x"), b.floats("angles")
	if x == nil || angles == nil {
		return false
	}
	k, tokens, ok := lower.RopeHeads(b.Op, b.view)
	if !ok {
		return false
	}
	l, err := k.Launch(tokens)
	weight, ok := b.weight("weight", k.D)
	out := b.result(0, tokenMajor(k.QHeads, tokens, k.D))
	return ok && out != nil && b.launch("rope", l, err, kernels.RopeArguments[operand]{Q: bytesOf(x), QWeight: weight,
		Angles: bytesOf(angles), QOut: bytesOf(out), Step: b.stepAt(tokens, nil)})
}

// rotated holds the operands that the kernels of rotation and cache writes have in common: heads, weights of norms,
// angles and caches.
type rotated struct {
	q, k, v, angles  *value
	qWeight, kWeight operand
	keys, values     *state
	start            *hostValue
}

// rotated collects the operands of an operation whose heads have width elements each. It returns nil where no kernel
// takes them. It adds a check, run for every call, that the positions lie inside the caches.
func (b *binder) rotated(width, tokens int) *rotated {
	r := b.rotatedHeads(width)
	if r == nil {
		return nil
	}
	if r.start = b.register("start"); r.start == nil {
		return nil
	}
	for _, name := range []string{b.Op.Buffer.Name, b.Op.Second.Name} {
		if !b.checkSlots(r.start, name, r.keys.shape[2], tokens) {
			return nil
		}
	}
	return r
}

// rotatedHeads collects what rotated does, without positions and caches.
func (b *binder) rotatedHeads(width int) *rotated {
	r := &rotated{q: b.floats("q"), k: b.floats("k"), v: b.floats("v"), angles: b.floats("angles"),
		keys: b.x.states[b.Op.Buffer], values: b.x.states[b.Op.Second]}
	if r.q == nil || r.k == nil || r.v == nil || r.angles == nil {
		return nil
	}
	var ok, ok2 bool
	r.qWeight, ok = b.weight("q_weight", width)
	if r.kWeight, ok2 = b.weight("k_weight", width); !ok || !ok2 {
		return nil
	}
	return r
}

// checkSlots adds a check that runs for every call: the positions that the operation writes must fit its cache. An
// operation with a stop position writes the slots from start to stop. There must be as many of them as there are
// tokens, and none may lie after the last slot. An operation without a stop position writes a ring buffer, where
// positions wrap around; there the check is only that start is from 0 to 2^30 - 1. checkSlots returns false where the
// host does not know stop.
func (b *binder) checkSlots(start *hostValue, name string, slots, tokens int) bool {
	if b.Op.Def.Name == "buffer_ring_update" ||
		b.Op.Def.Name != "buffer_slice_update" && len(b.Op.Operand("stop")) == 0 {
		b.check(start, func() error {
			if n := start.content.Int; n < 0 || n >= 1<<30 {
				return fmt.Errorf("buffer_ring_update @%s: position %d", name, n)
			}
			return nil
		})
		return true
	}
	stop := b.register("stop")
	if stop == nil {
		return false
	}
	b.check(stop, func() error {
		from, to := start.content.Int, stop.content.Int
		if from < 0 || to > int64(slots) || to-from != int64(tokens) {
			return fmt.Errorf("buffer_slice_update @%s: positions %d to %d for %d tokens, the cache has %d slots", name,
				from, to, tokens, slots)
		}
		return nil
	})
	return true
}

// check adds f to the checks that run before every call, after c is computed.
func (b *binder) check(c *hostValue, f func() error) {
	c.need()
	b.plan.checks = append(b.plan.checks, f)
}

// bindRopeWrite rotates queries and keys and writes both caches in one kernel.
func bindRopeWrite(b *binder) bool {
	k, tokens, ok := lower.RopeWrite(b.Op, b.view, b.cacheType())
	if !ok {
		return false
	}
	r := b.rotated(k.D, tokens)
	if r == nil {
		return false
	}
	l, err := k.Launch(tokens)
	out := b.result(0, tokenMajor(k.QHeads, tokens, k.D))
	return out != nil && b.launch("rope", l, err, kernels.RopeArguments[operand]{Q: bytesOf(r.q), K: bytesOf(r.k),
		V: bytesOf(r.v), QWeight: r.qWeight, KWeight: r.kWeight,
		Angles: bytesOf(r.angles), QOut: bytesOf(out), KCache: whole(r.keys.slot), VCache: whole(r.values.slot),
		Step: b.stepAt(tokens, r.start)})
}

// cacheType returns the dtype in which the operation's buffer is stored.
func (b *binder) cacheType() kernels.DType {
	d, _ := lower.CacheType(b.Op.Buffer, b.x.exe.precision)
	return d
}

// bindCacheWrite binds the write of keys or values into a cache. A position outside the cache is an error before
// anything runs.
func bindCacheWrite(b *binder) bool {
	s, u, start := b.x.states[b.Op.Buffer], b.floats("update"), b.register("start")
	if s == nil || s.slot == nil || u == nil || start == nil || len(s.shape) != 4 || len(u.shape) != 4 {
		return false
	}
	ring := b.Op.Def.Name == "buffer_ring_update"
	axis, ok := 2, true
	if ring {
		axis = ir.Attrs[ir.AxisAttrs](b.Op).Axis
	} else if axis, ok = b.Integer("axis"); ir.Attrs[ir.StepAttrs](b.Op).Step != 1 {
		return false
	}
	h, heads := lower.HeadsOf(u.view())
	if !ok || axis != 2 && axis != -2 || !heads || s.shape[0] != 1 || s.shape[1] != h.Heads || s.shape[3] != h.Width ||
		h.Tokens > s.shape[2] || u.slot.state ||
		!b.checkSlots(start, b.Op.Buffer.Name, s.shape[2], h.Tokens) {
		return false
	}
	k := kernels.CacheWrite{D: h.Width, Heads: h.Heads, X: h.Strides, Cache: s.format.kernelType(),
		Slots: s.shape[2], Ring: ring}
	l, err := k.Launch(h.Tokens)
	return b.launch("cache write", l, err, kernels.CacheWriteArguments[operand]{X: bytesOf(u), Cache: whole(s.slot),
		Step: b.stepAt(h.Tokens, start)})
}

// cacheOf returns the state whose whole content the operand is, or nil.
func (b *binder) cacheOf(operand string) *state {
	v, load := b.Input(operand), b.Op.Input(operand)
	for load != nil && load.Def != nil && load.Def.Def.Name == "astype" {
		load = load.Def.Input("x")
	}
	if v == nil || v.place != onDevice || load.Def == nil || load.Def.Def.Name != "load" ||
		!b.InPlaceLoads[load.Def] || len(v.shape) != 4 {
		return nil
	}
	s := b.x.states[load.Def.Buffer]
	if s == nil || s.slot == nil || v.slot != s.slot {
		return nil
	}
	return s
}

// checkPosition adds a check for every call: the caches must hold every position that the call's tokens attend to. It
// returns the host value of the first position.
func (b *binder) checkPosition(a kernels.Attention, tokens int) *hostValue {
	position := b.register("position")
	if position != nil {
		b.check(position, func() error {
			if err := eval.CheckCache(int(position.content.Int), tokens, a.Slots, a.Window); err != nil {
				return fmt.Errorf("cached_attention: %w", err)
			}
			return nil
		})
	}
	return position
}

// bindAttention binds attention of queries over caches. Many rows take one kernel that works in tiles. A few rows take
// a kernel that computes parts of the positions, and a second one that merges the parts.
func bindAttention(b *binder) bool {
	q, keys, values := b.floats("q"), b.cacheOf("k"), b.cacheOf("v")
	if q == nil || keys == nil || values == nil || keys.format != values.format {
		return false
	}
	a, tokens, ok := lower.Attention(b.Op, b.view, keys.format.kernelType())
	if !ok {
		return false
	}
	position := b.checkPosition(a, tokens)
	var strides []int
	gate, ok := b.gate()
	if b.Op.Input("gate") == nil {
		strides = tokenMajor(a.Heads, tokens, a.D)
	}
	out := b.result(0, strides)
	if !ok || position == nil || out == nil {
		return false
	}
	at := b.stepAt(tokens, position)
	if ir.Attrs[ir.AttentionAttrs](b.Op).Tiles {
		launch := func(t kernels.ChunkTuning) (kernels.Launch, error) { return a.ChunkLaunch(tokens, t) }
		variants := b.x.exe.target().ByTiles(a.ChunkTunings(b.x.exe.machine), launch)
		if len(variants) == 0 {
			return false
		}
		l, err := launch(variants[0])
		if !b.launch("attention", l, err,
			kernels.AttentionChunkArguments[operand]{Q: bytesOf(q), Keys: whole(keys.slot), Values: whole(values.slot),
				Gate: gate, Out: bytesOf(out),
				Step: atPositions(at, a, tokens)}) {
			return false
		}
		tuned(b, variants, launch)
		b.readingCaches(a, tokens)
		return true
	}
	variants := a.Tunings(b.x.exe.machine.Target, tokens > 1)
	if len(variants) == 0 {
		variants = []kernels.AttentionTuning{{}}
	}
	a.Tuning = variants[0]
	part, merge, blocks, err := a.Launches(tokens)
	if err != nil {
		return false
	}
	parts, ml := b.scratch(4*tokens*a.Heads*blocks*a.D), b.scratch(8*tokens*a.Heads*blocks)
	b.launch("attention", part, nil, kernels.AttentionPartArguments[operand]{Q: bytesOf(q), Keys: whole(keys.slot),
		Values: whole(values.slot), Part: whole(parts), ML: whole(ml),
		Step: atPositions(at, a, tokens)})
	tuned(b, variants, func(t kernels.AttentionTuning) (kernels.Launch, error) { return lower.PartOf(a, t, tokens) })
	b.readingCaches(a, tokens)
	return b.launch("attention merge", merge, nil, kernels.AttentionMergeArguments[operand]{Part: whole(parts),
		ML: whole(ml), Gate: gate, Out: bytesOf(out), Step: at})
}

// gate returns the operand that attention's result is gated by. It may be absent. It returns false where the gate is
// not on the device.
func (b *binder) gate() (gate operand, ok bool) {
	if b.Op.Input("gate") == nil {
		return gate, true
	}
	v := b.floats("gate")
	if v == nil {
		return gate, false
	}
	return bytesOf(v), true
}
