package kernels

import (
	"math"
	"slices"
)

func (r RopeAngles) trial() Trial {
	t := newTrial()
	const position = 20
	l, _ := r.Launch(trialled)
	inverse := t.random(F32, r.Dims/2)
	for i, x := range inverse {
		inverse[i] = x * x / 4
	}
	inverseAt := t.hold(F32, inverse)
	angles := make([]float32, trialled*r.Dims)
	r.Twin(trialled, position, inverse, angles)
	out := t.out(F32, len(angles))
	t.run(l, RopeAnglesArguments[place]{Inverse: inverseAt, Angles: out, Step: t.ints(trialled, position)})
	t.want(out, F32, angles, sums(1))
	return t.Trial
}

// start is the position of trials over a cache, and the number of tokens, which it takes.
func start(slots, position, tokens int) (int, int) {
	tokens = min(tokens, slots)
	return min(position, slots-tokens), tokens
}

func (r Rope) trial() Trial {
	t := newTrial()
	position, tokens := 0, trialled
	few := r // the twin has a cache of what the tokens are written to
	if r.KVHeads > 0 {
		position, tokens = start(r.Slots, 5, trialled)
		few.Slots = position + tokens
	}
	l, _ := r.Launch(tokens)
	q, qAt := t.floats(r.Q.span(tokens, max(r.QHeads, 1), r.D))
	k, kAt := t.floats(r.K.span(tokens, max(r.KVHeads, 1), r.D))
	v, vAt := t.floats(r.V.span(tokens, max(r.KVHeads, 1), r.D))
	qWeight, qWeightAt := t.held(r.Weight, r.D)
	kWeight, kWeightAt := t.held(r.Weight, r.D)
	angles := make([]float32, tokens*r.Dims)
	RopeAngles{Dims: r.Dims, Scale: 1}.Twin(tokens, position, t.random(F32, r.Dims/2), angles)
	anglesAt := t.hold(F32, angles)
	out := make([]float32, tokens*r.QHeads*r.D)
	keys, values := make([]float32, r.KVHeads*few.Slots*r.D), make([]float32, r.KVHeads*few.Slots*r.D)
	few.Twin(tokens, position, q, k, v, qWeight, kWeight, angles, out, keys, values)
	outAt, keysAt, valuesAt := t.out(F32, len(out)), t.cache(r.Cache, r.KVHeads*r.Slots*r.D), t.cache(r.Cache, r.KVHeads*r.Slots*r.D)
	t.run(l, RopeArguments[place]{Q: qAt, K: kAt, V: vAt, QWeight: qWeightAt, KWeight: kWeightAt, Angles: anglesAt,
		QOut: outAt, KCache: keysAt, VCache: valuesAt, Step: t.ints(int32(tokens), int32(position))})
	t.want(outAt, F32, out, sums(1))
	bound := sums(1)
	if r.Cache == BF16 {
		bound = roundedOnce
	}
	for h := range r.KVHeads {
		n := few.Slots * r.D // those before the position are zeros
		t.wantAt(keysAt, h*r.Slots*r.D, r.Cache, keys[h*n:][:n], bound)
		t.wantAt(valuesAt, h*r.Slots*r.D, r.Cache, values[h*n:][:n], bound)
	}
	return t.Trial
}

// cache adds a cache of n zeros.
func (t *trial) cache(d DType, n int) place { return t.add(max(16, n*d.Size())) }

func (c CacheWrite) trial() Trial {
	t := newTrial()
	position, tokens := start(c.Slots, 5, trialled)
	l, _ := c.Launch(tokens)
	few := c
	few.Slots = position + tokens
	x, xAt := t.floats(c.X.span(tokens, c.Heads, c.D))
	cache := make([]float32, c.Heads*few.Slots*c.D)
	few.Twin(tokens, position, x, cache)
	out := t.cache(c.Cache, c.Heads*c.Slots*c.D)
	t.run(l, CacheWriteArguments[place]{X: xAt, Cache: out, Step: t.ints(int32(tokens), int32(position))})
	t.wants(out, c.Cache, few.Slots*c.D, c.Slots*c.D, cache, 0)
	return t.Trial
}

// context adds queries, keys, values and gates of tokens at a position, and gives what attention makes of them.
func (a Attention) context(t *trial, tokens, position int) (q, keys, values, gate place, want []float32) {
	few := a
	few.Slots = position + tokens
	// Scores of a deviation of 1, as models have them: where one of them is 20, as many numbers of 1 make at a scale of 1,
	// rounding a query to bf16 changes its probability by some percent, and no kernel is at fault.
	queries := t.random(F32, tokens*a.Heads*a.D)
	for i := range queries {
		queries[i] *= float32(min(1, 1/(math.Abs(float64(a.Scale))*math.Sqrt(float64(a.D)))))
	}
	q = t.hold(F32, queries)
	k, v := t.random(a.Cache, a.KVHeads*few.Slots*a.D), t.random(a.Cache, a.KVHeads*few.Slots*a.D)
	spread := func(x []float32) place { return t.spread(a.Cache, x, few.Slots*a.D, a.Slots*a.D) }
	keys, values = spread(k), spread(v)
	gates, gate := t.floats(a.Gates.span(tokens, a.Heads, a.D))
	want = make([]float32, tokens*a.Heads*a.D)
	few.Twin(tokens, position, queries, k, v, gates, want)
	return q, keys, values, gate, want
}

// trial is of both launches, for one token or for many.
func (a Attention) trial(many bool) Trial {
	t := newTrial()
	capacity := 1
	if many {
		capacity = 3
	}
	position, tokens := start(a.Slots, 100, capacity)
	part, merge, blocks, _ := a.Launches(capacity)
	q, keys, values, gate, want := a.context(t, tokens, position)
	step := t.ints(int32(tokens), int32(position))
	parts, ml := t.out(F32, capacity*a.Heads*blocks*a.D), t.out(F32, capacity*a.Heads*blocks*2)
	out := t.out(F32, capacity*a.Heads*a.D)
	t.run(part, AttentionPartArguments[place]{Q: q, Keys: keys, Values: values, Part: parts, ML: ml, Step: step})
	t.run(merge, AttentionMergeArguments[place]{Part: parts, ML: ml, Gate: gate, Out: out, Step: step})
	t.want(out, F32, want, 2*sums(a.D))
	return t.Trial
}

func (a Attention) trialChunk(tuning ChunkTuning) Trial {
	t := newTrial()
	position, tokens := start(a.Slots, 40, 19)
	l, _ := a.ChunkLaunch(tokens, tuning)
	q, keys, values, gate, want := a.context(t, tokens, position)
	out := t.out(F32, len(want))
	t.run(l, AttentionChunkArguments[place]{Q: q, Keys: keys, Values: values, Gate: gate, Out: out, Step: t.ints(int32(tokens), int32(position))})
	t.want(out, F32, want, 2*roundedAll)
	return t.Trial
}

// trial is of all launches.
func (a AttentionStep) trial() Trial {
	t := newTrial()
	one, merge, blocks, _ := a.Launches()
	full, _ := a.tuning()
	position, _ := start(a.Slots, max(100, full.Short+30), 1)
	few := a
	few.Attention.Slots, few.Rope.Slots = position+1, position+1
	r, n := a.Rope, (position+1)*a.D
	q, qAt := t.floats(r.Q.span(1, a.Heads, a.D))
	k, kAt := t.floats(r.K.span(1, a.KVHeads, a.D))
	v, vAt := t.floats(r.V.span(1, a.KVHeads, a.D))
	qWeight, qWeightAt := t.held(r.Weight, a.D)
	kWeight, kWeightAt := t.held(r.Weight, a.D)
	angles := make([]float32, r.Dims)
	RopeAngles{Dims: r.Dims, Scale: 1}.Twin(1, position, t.random(F32, r.Dims/2), angles)
	anglesAt := t.hold(F32, angles)
	keys, values := t.random(a.Cache, a.KVHeads*n), t.random(a.Cache, a.KVHeads*n)
	keysAt, valuesAt := t.spread(a.Cache, keys, n, a.Slots*a.D), t.spread(a.Cache, values, n, a.Slots*a.D)
	gate, gateAt := t.floats(a.Gates.span(1, a.Heads, a.D))
	out := make([]float32, a.Heads*a.D)
	parts, ml, arrivals := t.out(F32, a.Heads*blocks*a.D), t.out(F32, a.Heads*blocks*2), t.add(4*max(a.Heads, 4))
	bound, result := sums(1), 2*sums(a.D)
	if a.Cache == BF16 {
		bound, result = roundedOnce, 2*roundedAll // a key that is rounded the other way changes the scores
	}
	at := []int{position}
	if full.Short > 0 {
		at = append(at, min(position, full.Short)/2) // few positions have a form of their own
	}
	for _, position := range at {
		few.Twin(position, q, k, v, qWeight, kWeight, angles, keys, values, gate, out)
		outAt, step := t.out(F32, len(out)), t.ints(1, int32(position))
		t.run(one, AttentionStepArguments[place]{Q: qAt, K: kAt, V: vAt, QWeight: qWeightAt, KWeight: kWeightAt, Angles: anglesAt, Keys: keysAt, Values: valuesAt,
			Part: parts, ML: ml, Gate: gateAt, Out: outAt, Arrivals: arrivals, Step: step})
		if !full.Last {
			t.run(merge, AttentionMergeArguments[place]{Part: parts, ML: ml, Gate: gateAt, Out: outAt, Step: step})
		}
		t.want(outAt, F32, slices.Clone(out), result)
	}
	t.wants(keysAt, a.Cache, n, a.Slots*a.D, keys, bound)
	t.wants(valuesAt, a.Cache, n, a.Slots*a.D, values, bound)
	return t.Trial
}
