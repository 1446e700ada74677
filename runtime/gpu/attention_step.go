package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// ropeAll rotates queries and keys and writes both caches in one kernel.
type ropeAll struct {
	kernel           kernels.Rope
	tokens           int
	q, k, v          *value
	qWeight, kWeight operand // absent where there are none
	angles           *slot
	rotated          *value // queries
	start            *cell
	at               *ir.Expr // which start is
}

// pendingRope is the rotation of queries and keys and the writes of both caches, where all that is deferred.
func (b *binder) pendingRope(q *value, k, v *state) *ropeAll {
	qr, ok := q.slot.pending.(*ropeOf)
	kw, ok2 := k.slot.pending.(*cacheWrite)
	vw, ok3 := v.slot.pending.(*cacheWrite)
	if !ok || !ok2 || !ok3 || kw.rope == nil || vw.rope != nil || kw.start != vw.start || kw.ring != vw.ring ||
		kw.rope.angles != qr.angles || kw.rope.dims != qr.dims || kw.rope.pairs != qr.pairs || vw.norm != nil && vw.norm.weight != nil {
		return nil
	}
	var eps *float32
	for _, n := range []*normOf{qr.norm, kw.rope.norm, vw.norm} {
		if n != nil && eps != nil && n.eps != *eps {
			return nil
		}
		if n != nil {
			eps = &n.eps
		}
	}
	qh, _ := qr.x.heads()
	kh, _ := kw.rope.x.heads()
	vh, ok := vw.x.heads()
	if !ok || qh.tokens != kh.tokens || kh.tokens != vh.tokens || kh.heads != vh.heads || qh.width != kh.width || kh.width != vh.width {
		return nil
	}
	a := &ropeAll{tokens: qh.tokens, q: qr.x, k: kw.rope.x, v: vw.x, angles: qr.angles, rotated: qr.out, start: kw.start, at: kw.at}
	r := &a.kernel
	*r = kernels.Rope{D: qh.width, Dims: qr.dims, Traditional: qr.pairs, QHeads: qh.heads, KVHeads: kh.heads, Q: qh.strides, K: kh.strides, V: vh.strides,
		Cache: k.format.kernelType(), Slots: k.shape[2], Ring: kw.ring}
	r.QNorm, r.Eps, a.qWeight = qr.norm.of(r.Eps)
	r.KNorm, r.Eps, a.kWeight = kw.rope.norm.of(r.Eps)
	r.VNorm, r.Eps, _ = vw.norm.of(r.Eps)
	if a.qWeight.slot != nil || a.kWeight.slot != nil {
		r.Weight = kernels.F32
	}
	if _, err := r.Launch(a.tokens); err != nil {
		return nil
	}
	return a
}

// take takes over what is deferred.
func (a *ropeAll) take(b *binder, q *value, k, v *state) {
	b.take(q.slot)
	b.take(k.slot)
	b.take(v.slot)
}

// writesAt reports whether the first token goes to the slot of a position.
func (a *ropeAll) writesAt(position *ir.Expr) bool {
	return a.at.Equal(position) || a.kernel.Ring && a.at.Equal(position.Mod(ir.Const(int64(a.kernel.Slots))))
}

// run adds the kernel.
func (a *ropeAll) run(b *binder, q *value, k, v *state) {
	a.take(b, q, k, v)
	l, err := a.kernel.Launch(a.tokens)
	b.launch("rope", l, err, kernels.RopeArguments[operand]{Q: bytesOf(a.q), K: bytesOf(a.k), V: bytesOf(a.v), QWeight: a.qWeight, KWeight: a.kWeight,
		Angles: whole(a.angles), QOut: bytesOf(a.rotated), KCache: whole(k.slot), VCache: whole(v.slot), Step: b.stepAt(a.tokens, a.start)})
}

// attentionStep is attention of one token, with the rotation and the writes before it.
type attentionStep struct {
	*ropeAll
	queries      *value
	keys, values *state
	tunings      []kernels.StepTuning
}

// step makes the rotation and the writes a part of attention of one token; nil where there is no kernel for that.
func (a *ropeAll) step(b *binder, of kernels.Attention, q *value, k, v *state) *attentionStep {
	s := &attentionStep{ropeAll: a, queries: q, keys: k, values: v}
	s.tunings = kernels.AttentionStep{Attention: of, Rope: a.kernel}.StepTunings(b.x.exe.machine.Target)
	if len(s.tunings) == 0 {
		return nil
	}
	return s
}

// run adds the kernel, and that which puts blocks together where it is one of its own. If there is none that may be used,
// rotation, attention and the rest are kernels of their own.
func (s *attentionStep) run(b *binder, a kernels.Attention, gate operand, out *value, step operand) bool {
	s.take(b, s.queries, s.keys, s.values)
	k := kernels.AttentionStep{Attention: a, Rope: s.kernel, Early: b.unwritten(s.keys.slot, s.values.slot)}
	for i, first := range s.tunings[:min(len(s.tunings), maxRefused)] {
		k.Step = first
		one, merge, blocks, err := k.Launches()
		if one, err = b.allowed(one, err); err == nil && !k.Step.Last {
			merge, err = b.allowed(merge, nil)
		}
		if err != nil {
			continue
		}
		ways := s.ways(i)
		for _, t := range ways {
			blocks = max(blocks, t.Blocks)
		}
		part, ml := b.scratch(4*a.Heads*blocks*a.D), b.scratch(8*a.Heads*blocks)
		args := kernels.AttentionStepArguments[operand]{Q: bytesOf(s.q), K: bytesOf(s.k), V: bytesOf(s.v), QWeight: s.qWeight, KWeight: s.kWeight, Angles: whole(s.angles),
			Keys: whole(s.keys.slot), Values: whole(s.values.slot), Part: whole(part), ML: whole(ml), Gate: gate, Step: atPositions(step, a, 1)}
		if k.Step.Last {
			args.Out, args.Arrivals = bytesOf(out), whole(b.arrivals(a.Heads))
		}
		b.launch("attention", one, nil, args)
		tuned(b, ways, func(t kernels.StepTuning) (kernels.Launch, error) { return launchOf(k, t) })
		b.readingCaches(a, 1)
		if !k.Step.Last {
			b.launch("attention merge", merge, nil, kernels.AttentionMergeArguments[operand]{Part: whole(part), ML: whole(ml), Gate: gate, Out: bytesOf(out), Step: step})
		}
		return true
	}
	s.ropeAll.run(b, s.queries, s.keys, s.values)
	part, merge, blocks, err := a.Launches(1)
	if err != nil {
		return false
	}
	parts, ml := b.scratch(4*a.Heads*blocks*a.D), b.scratch(8*a.Heads*blocks)
	b.launch("attention", part, nil, kernels.AttentionPartArguments[operand]{Q: bytesOf(s.rotated), Keys: whole(s.keys.slot), Values: whole(s.values.slot),
		Part: whole(parts), ML: whole(ml), Step: step})
	return b.launch("attention merge", merge, nil, kernels.AttentionMergeArguments[operand]{Part: whole(parts), ML: whole(ml), Gate: gate, Out: bytesOf(out), Step: step})
}

// ways are those of the step from number i on. Where another kernel puts blocks together, they divide the positions as that expects.
func (s *attentionStep) ways(i int) (out []kernels.StepTuning) {
	first := s.tunings[i]
	for _, t := range s.tunings[i:] {
		if !first.Last {
			t.Blocks, t.Least = first.Blocks, first.Least
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// launchOf is the first launch of a way, with the known answer of all.
func launchOf(k kernels.AttentionStep, t kernels.StepTuning) (kernels.Launch, error) {
	k.Step = t
	one, merge, _, err := k.Launches()
	if !t.Last {
		one.Trial = merge.Trial
	}
	return one, err
}

// arrivals are counters that are 0 before a call, and between the kernels that use them, which thereby depend on each other.
func (b *binder) arrivals(n int) *slot {
	if b.counters == nil || b.counters.size < 4*n {
		b.counters = b.word(4*n, func([]byte) error { return nil })
	}
	return b.counters
}

// alongOf is what is filled along with another slot.
type alongOf struct{ slot *slot }

func (a *alongOf) emit(b *binder) { b.flush(a.slot) }
