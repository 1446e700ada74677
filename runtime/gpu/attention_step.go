package gpu

import (
	"slices"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

// bindAttentionStep attends for one token, with the rotation and the writes before it, in one kernel, and one more that
// puts blocks together where that is one of its own.
func bindAttentionStep(b *binder) bool {
	k, ok := lower.AttentionStep(b.Op, b.view, b.cacheType())
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

// stepWays are those of the tunings that can take the place of the first. Where another kernel puts blocks together,
// they divide the positions as that expects.
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

// launchOf is the first launch of a variant, with the self-test of all.
func launchOf(k kernels.AttentionStep, t kernels.StepTuning) (kernels.Launch, error) {
	k.Step = t
	one, merge, _, err := k.Launches()
	if !t.Last {
		one.Case = merge.Case
	}
	return one, err
}

// arrivals are counters that are 0 before a call, and between the kernels that use them, which thereby depend on each
// other.
func (b *binder) arrivals(n int) *slot {
	if b.counters == nil || b.counters.Size < 4*n {
		b.counters = b.uniform(4*n, func([]byte) error { return nil })
	}
	return b.counters
}
