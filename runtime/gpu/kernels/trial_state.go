package kernels

// trialOf adds the buffers of a convolution of the first of so many channels, x being what it is given. Next is the state
// after, where kernels write it elsewhere. The results and that state must be those of the twin.
func (c Conv) trialOf(t *trial, channels, tokens int, x []float32, elsewhere bool, bound float64) ConvStepArguments[place] {
	w, state := t.random(c.Weight, c.Channels*c.Taps), t.random(c.State, c.Channels*c.Taps)
	wAt := t.add(channels*c.Taps*c.Weight.Size(), TrialPart{0, c.Weight.Bytes(w)})
	stateAt := t.spread(c.State, state, c.Channels, channels)
	if c.ChannelFirst {
		stateAt = t.add(channels*c.Taps*c.State.Size(), TrialPart{0, c.State.Bytes(state)})
	}
	y := make([]float32, tokens*c.Channels)
	c.Twin(tokens, 5, x, w, false, state, y)
	out := t.out(F32, tokens*channels)
	t.wants(out, F32, c.Channels, channels, y, bound)
	a, next := ConvStepArguments[place]{W: wAt, Reset: t.ints(0), State: stateAt, Y: out}, stateAt
	if elsewhere {
		next = t.out(c.State, channels*c.Taps)
		a.Next = next
	}
	if c.State == BF16 {
		bound = max(bound, roundedOnce)
	}
	if c.ChannelFirst {
		t.want(next, c.State, state, bound)
	} else {
		t.wants(next, c.State, c.Channels, channels, state, bound)
	}
	return a
}

func (c Conv) trialStep(l Launch) Trial {
	t := newTrial()
	x, xAt := t.floats(trialled * c.Token)
	a := c.trialOf(t, c.Channels, trialled, x, true, sums(1))
	a.X, a.Step = xAt, t.ints(trialled, 5)
	t.run(l, a)
	return t.Trial
}

// trialTokens is of both launches.
func (c Conv) trialTokens() Trial {
	const tokens = convTokens + 3
	outputs, state, _ := c.Launches(tokens)
	t := newTrial()
	x, xAt := t.floats(tokens * c.Token)
	a := c.trialOf(t, c.Channels, tokens, x, false, sums(1))
	step := t.ints(tokens, 5)
	t.run(outputs, ConvTokensArguments[place]{X: xAt, W: a.W, Reset: a.Reset, State: a.State, Y: a.Y, Step: step})
	t.run(state, ConvStateArguments[place]{X: xAt, Reset: a.Reset, State: a.State, Step: step})
	return t.Trial
}

// inputs adds the operands of the rule for so many tokens: q, k, v, g, β.
func (d Delta) inputs(t *trial, tokens int) (q, k, v, g, beta []float32, a DeltaStepArguments[place]) {
	add := func(at *place, stride, n int, f func(x float32) float32) []float32 {
		values := t.random(F32, (tokens-1)*stride+n)
		for i, x := range values {
			values[i] = f(x)
		}
		*at = t.hold(F32, values)
		return values
	}
	keys := func(x float32) float32 { return x / float32(d.DK/8) } // of a length below 1
	gate := func(x float32) float32 { return 0.5 + x/4 }
	q, k = add(&a.Q, d.QToken, d.KHeads*d.DK, keys), add(&a.K, d.KToken, d.KHeads*d.DK, keys)
	v = add(&a.V, d.VToken, d.Heads*d.DV, func(x float32) float32 { return x })
	g, beta = add(&a.G, d.GToken, d.Heads, gate), add(&a.Beta, d.BetaToken, d.Heads, gate)
	return q, k, v, g, beta, a
}

// trialOf compares the results and the state with the twin's. The state after is written to where it was, or elsewhere.
func (d Delta) trialOf(t *trial, tokens int, elsewhere bool, run func(a DeltaStepArguments[place])) {
	q, k, v, g, beta, a := d.inputs(t, tokens)
	qWeight, qAt := t.held(d.Norm, d.DK)
	kWeight, kAt := t.held(d.Norm, d.DK)
	bias, biasAt := t.held(d.Gates, d.Heads)
	rate := t.random(d.Gates, d.Heads)
	for i, x := range rate {
		rate[i] = d.Gates.store(-0.1 - x*x)
	}
	rateAt := t.hold(d.Gates, rate)
	state, stateAt := t.held(d.State, d.Heads*d.DV*d.DK)
	y := make([]float32, tokens*d.Heads*d.DV)
	d.Twin(tokens, 5, q, k, v, g, beta, qWeight, kWeight, bias, rate, false, state, y)
	out, next := t.out(F32, len(y)), stateAt
	if elsewhere {
		next = t.out(d.State, len(state))
	}
	a.QWeight, a.KWeight, a.Bias, a.Rate, a.Reset = qAt, kAt, biasAt, rateAt, t.ints(0)
	a.State, a.Y, a.Next, a.Step = stateAt, out, next, t.ints(int32(tokens), 5)
	run(a)
	bound := 5 * sums(d.DK)
	t.want(out, F32, y, bound)
	if d.State == BF16 {
		bound = roundedOnce
	}
	t.want(next, d.State, state, bound)
}

func (d Delta) trialStep(l Launch) Trial {
	t := newTrial()
	d.trialOf(t, trialled, true, func(a DeltaStepArguments[place]) { t.run(l, a) })
	return t.Trial
}

// trialChunks is of both launches.
func (d Delta) trialChunks() Trial {
	t := newTrial()
	tokens := d.Length + 5
	solve, scan, _ := d.Launches(tokens)
	d.trialOf(t, tokens, false, func(a DeltaStepArguments[place]) {
		sums, w, u := t.out(F32, tokens*d.Heads), t.out(F32, tokens*d.Heads*d.DK), t.out(F32, tokens*d.Heads*d.DV)
		m := t.out(F32, ceil(tokens, d.Length)*d.Heads*d.Length*d.Length)
		t.run(solve, DeltaSolveArguments[place]{Q: a.Q, K: a.K, V: a.V, G: a.G, Beta: a.Beta, Sums: sums, W: w, U: u, M: m, Step: a.Step})
		t.run(scan, DeltaScanArguments[place]{Q: a.Q, K: a.K, Sums: sums, W: w, U: u, M: m, Reset: a.Reset, State: a.State, Y: a.Y, Step: a.Step})
	})
	return t.Trial
}

func (d Delta) trialGates() Trial {
	t := newTrial()
	l, _ := d.GatesLaunch(trialled)
	x, xAt := t.floats((trialled-1)*d.GToken + d.Heads)
	b, bAt := t.floats((trialled-1)*d.BetaToken + d.Heads)
	bias, biasAt := t.held(d.Gates, d.Heads)
	rate, rateAt := t.held(d.Gates, d.Heads)
	g, beta := make([]float32, trialled*d.Heads), make([]float32, trialled*d.Heads)
	for i := range g {
		token, h := i/d.Heads, i%d.Heads
		g[i] = d.DecayTwin(x[token*d.GToken+h], bias[h], rate[h])
		beta[i] = float32(Sigmoid.of(float64(b[token*d.BetaToken+h])))
	}
	gAt, betaAt := t.out(F32, len(g)), t.out(F32, len(g))
	t.run(l, DeltaGatesArguments[place]{X: xAt, B: bAt, Bias: biasAt, Rate: rateAt, Decay: gAt, Beta: betaAt, Step: t.ints(trialled, 0)})
	t.want(gAt, F32, g, sums(1))
	t.want(betaAt, F32, beta, sums(1))
	return t.Trial
}
