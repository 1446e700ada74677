package gpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// bindAttentionStep binds the attention of one token together with the rotation and the cache writes before it: one
// kernel. Where a second kernel merges the partial results, it binds that one too.
func bindAttentionStep(b *binder) bool {
	k, ok := b.x.exe.target().AttentionStep(b.Op, b.view, b.cacheType())
	if !ok {
		return false
	}
	r := b.rotated(k.D, 1)
	position := b.checkPosition(k.Attention, 1)
	if r == nil || position == nil {
		return false
	}
	tunings := lower.StepTunings(k, b.x.exe.machine.Target)
	at := b.stepAt(1, position)
	for i, first := range tunings[:min(len(tunings), maxRefused)] {
		k.Step = first
		one, merge, blocks, err := k.Launches()
		if one, err = b.allowed(one, err); err == nil && !first.Last {
			merge, err = b.allowed(merge, nil)
		}
		if err != nil {
			continue
		}
		out := b.result(0, nil)
		gate, ok := b.gate()
		if !ok || out == nil {
			return false
		}
		variants := stepVariants(tunings[i:])
		for _, t := range variants {
			blocks = max(blocks, t.Blocks)
		}
		part, ml := b.scratch(4*k.Heads*blocks*k.D), b.scratch(8*k.Heads*blocks)
		args := kernels.AttentionStepArguments[operand]{Q: bytesOf(r.q), K: bytesOf(r.k), V: bytesOf(r.v),
			QWeight: r.qWeight, KWeight: r.kWeight, Angles: bytesOf(r.angles),
			Keys: whole(r.keys.slot), Values: whole(r.values.slot), Part: whole(part), ML: whole(ml), Gate: gate,
			Step: atPositions(at, k.Attention, 1)}
		if first.Last {
			args.Out, args.Arrivals = bytesOf(out), whole(b.arrivals(k.Heads))
		}
		b.launch("attention", one, nil, args)
		tuned(b, variants, func(t kernels.StepTuning) (kernels.Launch, error) { return launchOf(k, t) })
		b.readingCaches(k.Attention, 1)
		return first.Last || b.launch("attention merge", merge, nil,
			kernels.AttentionMergeArguments[operand]{Part: whole(part), ML: whole(ml), Gate: gate,
				Out: bytesOf(out), Step: at})
	}
	return false
}

// bindRowsAttentionStep is bindAttentionStep for the few rows of a call of several sequences, over blocks: one kernel.
// It is not tuned, since a measurement has no tables.
func bindRowsAttentionStep(b *binder) bool {
	k, ok := b.x.exe.target().AttentionStep(b.Op, b.view, b.cacheType())
	if !ok {
		return false
	}
	r := b.rotatedHeads(k.D)
	if r == nil || r.keys.slot == nil || r.values.slot == nil {
		return false
	}
	t, tunings := b.blockTables(r.keys.shape, k.Window), lower.StepTunings(k, b.x.exe.machine.Target)
	gate, ok := b.gate()
	if t == nil || t.rows != k.Rows || !ok {
		return false
	}
	if k.Rows > 1 {
		b.checkRuns()
	}
	for _, k.Step = range tunings[:min(len(tunings), maxRefused)] {
		one, _, blocks, err := k.Launches()
		if one, err = b.allowed(one, err); err != nil {
			continue
		}
		var strides []int
		if b.Op.Input("gate") == nil {
			strides = tokenMajor(k.Heads, k.Rows, k.D)
		}
		out := b.result(0, strides)
		if out == nil {
			return false
		}
		if attrs := ir.Attrs[ir.AttentionStepAttrs](b.Op); attrs.Prepared {
			out.round(attrs.Packed)
		}
		heads := k.Rows * k.Heads
		part, ml := b.scratch(4*heads*blocks*k.D), b.scratch(8*heads*blocks)
		return b.launch("attention", one, nil, kernels.AttentionStepArguments[operand]{Q: bytesOf(r.q),
			K: bytesOf(r.k), V: bytesOf(r.v), QWeight: r.qWeight, KWeight: r.kWeight, Angles: bytesOf(r.angles),
			Keys: whole(r.keys.slot), Values: whole(r.values.slot), Part: whole(part), ML: whole(ml), Gate: gate,
			Out: bytesOf(out), Arrivals: whole(b.arrivals(heads)), Positions: t.positions,
			Sequences: t.sequences, Blocks: t.blocks, Step: t.step})
	}
	return false
}

// stepVariants returns the tunings that may replace the first one. Where a second kernel merges partial results, they
// must divide the positions into the same parts as the first tuning does.
func stepVariants(tunings []kernels.StepTuning) (out []kernels.StepTuning) {
	first := tunings[0]
	for _, t := range tunings {
		if !first.Last {
			t.Blocks, t.Least = first.Blocks, first.Least
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// launchOf returns the first launch of a tuning. Its self-test covers all launches of the tuning.
func launchOf(k kernels.AttentionStep, t kernels.StepTuning) (kernels.Launch, error) {
	k.Step = t
	one, merge, _, err := k.Launches()
	if !t.Last {
		one.Case = merge.Case
	}
	return one, err
}

// arrivals returns n counters on the device for threadgroups to count arrivals with. They are 0 before a call and
// between kernels. All users share them, and so run one after the other.
func (b *binder) arrivals(n int) *slot {
	if b.counters == nil || b.counters.Size < 4*n {
		b.counters = b.uniform(4*n, func([]byte) error { return nil })
	}
	return b.counters
}
