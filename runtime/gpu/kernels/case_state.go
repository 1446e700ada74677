package kernels

// add adds the buffers of a convolution to a case: weights, old and new state, and the results of tokens tokens. all
// describes all channels of the launch; the convolution has the first of them.
func (c Conv) add(to *Case, all, tokens int) (a ConvStepArguments[*Buffer]) {
	a.W = to.sparse(c.Weight, []int{0}, 1, c.Channels*c.Taps, all*c.Taps)
	if a.State = to.spread(c.State, c.Taps, c.Channels, all); c.ChannelFirst {
		a.State.starts, a.State.width = []int{0}, c.Channels*c.Taps
	}
	a.State.Content = Kept
	a.Reset, a.Y = to.flag(), to.out(F32, tokens*all)
	if a.Next = a.State; to.Elsewhere {
		a.Next = to.out(c.State, all*c.Taps)
	}
	return a
}

// answer adds the expected results of the convolution of x.
func (c Conv) answer(to *Case, a ConvStepArguments[*Buffer], all int, x []float32, outputs, state Bounds) {
	rows, n, stride := c.Taps, c.Channels, all
	if c.ChannelFirst {
		rows, n, stride = 1, c.Channels*c.Taps, all*c.Taps
	}
	next, y := to.wantRows(a.Next, state, rows, n, stride), to.wantRows(a.Y, outputs, to.Tokens, c.Channels, all)
	c.Reference(to.Tokens, to.Position, x, a.W.Values(), to.Reset, after(next, a.State), y)
}

// newCase returns the case of the launch for few tokens, or (many) of the two for many.
func (c Conv) newCase(s Sizes, many bool) *Case {
	tokens := caseTokens
	if many {
		tokens = convTokens + 3
	}
	to := newCase(s, tokens, 5)
	to.Elsewhere = to.Elsewhere && !many
	x, step := to.random(F32, to.Tokens*c.Token), to.step()
	a := c.add(to, c.Channels, to.Capacity)
	if many {
		outputs, state, _ := c.Launches(to.Capacity)
		to.run(outputs, ConvTokensArguments[*Buffer]{X: x, W: a.W, Reset: a.Reset, State: a.State, Y: a.Y, Step: step})
		to.run(state, ConvStateArguments[*Buffer]{X: x, Reset: a.Reset, State: a.State, Step: step})
	} else {
		l, _ := c.StepLaunch()
		a.X, a.Step = x, step
		to.run(l, a)
	}
	to.reference = func() {
		state := Bounds{0, sums(1)}
		if c.State == BF16 {
			state.SelfTest = roundedOnce
		}
		c.answer(to, a, c.Channels, x.Values(), Bounds{1e-6, sums(1)}, state)
	}
	return to
}

// operands adds the operands of the rule: q, k with a length below 1, v, g, β.
func (d Delta) operands(c *Case) (a DeltaStepArguments[*Buffer]) {
	d = d.filled()
	add := func(stride, n int, f func(i int, x float32) float32) *Buffer {
		return c.random(F32, (max(1, c.Tokens)-1)*stride+n).each(f)
	}
	key := func(_ int, x float32) float32 { return x / float32(d.DK/8) }
	gate := func(_ int, x float32) float32 { return 0.5 + x/4 }
	decay := func(i int, x float32) float32 {
		if c.Whole && i == 0 {
			return 0 // forgets all
		}
		return gate(i, x)
	}
	a.Q, a.K = add(d.QToken, d.KHeads*d.DK, key), add(d.KToken, d.KHeads*d.DK, key)
	a.V = add(d.VToken, d.Heads*d.DV, func(_ int, x float32) float32 { return x })
	a.G, a.Beta = add(d.GToken, d.Heads, decay), add(d.BetaToken, d.Heads, gate)
	return a
}

// inputs adds the operands of the rule, and buffers for its results.
func (d Delta) inputs(c *Case) (a DeltaStepArguments[*Buffer]) {
	a = d.operands(c)
	a.State, a.Next = c.state(d.State, d.Heads*d.DV*d.DK)
	a.Reset, a.Y, a.Step = c.flag(), c.out(F32, c.Capacity*d.Heads*d.DV), c.step()
	return a
}

// answer adds the expected results and the expected new state.
func (d Delta) answer(c *Case, a DeltaStepArguments[*Buffer], bound Bounds) {
	state := after(c.want(a.Next, stored(d.State, bound), d.Heads*d.DV*d.DK), a.State)
	d.Reference(c.Tokens, c.Position, a.Q.Values(), a.K.Values(), a.V.Values(), a.G.Values(), a.Beta.Values(),
		a.QWeight.Values(), a.KWeight.Values(),
		a.Bias.Values(), a.Rate.Values(), c.Reset, state, c.want(a.Y, bound, c.Tokens*d.Heads*d.DV))
}

func (d Delta) stepCase(s Sizes) *Case {
	c := newCase(s, caseTokens, 5)
	l, _ := d.StepLaunch()
	a := d.inputs(c)
	a.QWeight, a.KWeight, a.Bias, a.Rate = d.weights(c)
	c.run(l, a)
	c.reference = func() { d.answer(c, a, Bounds{2e-6, 5 * sums(d.DK)}) }
	return c
}

// weights adds the weights of the norms and of the gates.
func (d Delta) weights(c *Case) (qWeight, kWeight, bias, rate *Buffer) {
	qWeight, kWeight = c.random(d.Norm, d.DK), c.random(d.Norm, d.DK)
	if c.Whole {
		kWeight.each(func(_ int, x float32) float32 { return x * 8 / float32(d.DK) })
	}
	bias = c.random(d.Gates, d.Heads)
	rate = c.random(d.Gates, d.Heads).each(func(_ int, x float32) float32 { return -0.1 - x*x })
	return qWeight, kWeight, bias, rate
}

// chunksCase returns the case of both launches.
func (d Delta) chunksCase(s Sizes) *Case {
	d = d.filled()
	c := newCase(s, d.Length+5, 5)
	c.Elsewhere = false
	solve, scan, _ := d.Launches(c.Capacity)
	n, a := c.Capacity*d.Heads, d.inputs(c)
	first := DeltaSolveArguments[*Buffer]{Q: a.Q, K: a.K, V: a.V, G: a.G, Beta: a.Beta, Sums: c.scratch(F32, n),
		W: c.scratch(F32, n*d.DK),
		U: c.scratch(F32, n*d.DV), M: c.scratch(F32, ceil(c.Capacity, d.Length)*d.Heads*d.Length*d.Length),
		Step: a.Step}
	c.run(solve, first)
	c.run(scan, DeltaScanArguments[*Buffer]{Q: a.Q, K: a.K, Sums: first.Sums, W: first.W, U: first.U, M: first.M,
		Reset: a.Reset, State: a.State, Y: a.Y, Step: a.Step})
	c.reference = func() { d.answer(c, a, Bounds{1e-5, 5 * sums(d.DK)}) }
	return c
}

func (d Delta) gatesCase(s Sizes) *Case {
	d = d.filled()
	c := newCase(s, caseTokens, 0)
	l, _ := d.GatesLaunch(c.Capacity)
	x, b := c.random(F32, (c.Tokens-1)*d.GToken+d.Heads), c.random(F32, (c.Tokens-1)*d.BetaToken+d.Heads)
	bias, rate := c.random(d.Gates, d.Heads), c.random(d.Gates, d.Heads)
	if c.Whole {
		x.each(func(_ int, x float32) float32 { return 17 * x })
		rate.each(func(_ int, x float32) float32 { return -9 * x * x })
	}
	decay, beta := c.out(F32, c.Capacity*d.Heads), c.out(F32, c.Capacity*d.Heads)
	c.run(l, DeltaGatesArguments[*Buffer]{X: x, B: b, Bias: bias, Rate: rate, Decay: decay, Beta: beta, Step: c.step()})
	c.reference = func() {
		wantDecay, wantBeta := c.want(decay, Bounds{2e-6, sums(1)}, c.Tokens*d.Heads),
			c.want(beta, Bounds{1e-6, sums(1)}, c.Tokens*d.Heads)
		for i := range wantDecay {
			token, h := i/d.Heads, i%d.Heads
			wantDecay[i] = d.ReferenceDecay(x.Values()[token*d.GToken+h], bias.Values()[h], rate.Values()[h])
			wantBeta[i] = float32(Sigmoid.of(float64(b.Values()[token*d.BetaToken+h])))
		}
	}
	return c
}
