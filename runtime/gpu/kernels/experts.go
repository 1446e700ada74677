package kernels

import "fmt"

// Experts is a mixture of experts for a few tokens: every token's experts are read on their own. Gate and up
// are [Count, Inner, Hidden], down is [Count, Hidden, Inner].
type Experts struct {
	Format
	Count, Top    int
	Hidden, Inner int
	Activation    Activation
	// Norm is that of the input.
	Norm Norm
	Eps  float32
	// Residual says that extra is added to the result.
	Residual bool
}

// up are the vectors of the first product, down those of the second: the results of a token's experts, one
// behind the other.
func (e Experts) up() Vectors   { return Vectors{e.Format, e.Hidden, 1, e.Norm, e.Eps} }
func (e Experts) down() Vectors { return Vectors{e.Format, e.Top * e.Inner, 1, NoNorm, 0} }

// Tunings are the ways to divide the two products, the default first.
func (e Experts) Tunings(target Target) (up, down []Tuning) {
	return e.up().Tunings(target, e.Inner*e.Top, 1), e.down().Tunings(target, e.Hidden, e.Top)
}

// LaunchUp is the first dispatch: h = activation(gate[e]·x) ⊙ up[e]·x for the experts e of up to tokens tokens.
// Buffers: w, scales, biases of gate and then of up (w again where there are none), experts i32 [T, Top], x f32
// [T, Hidden], norm [Hidden] (x again where there is none), h f32 [T, Top, Inner], step.
func (e Experts) LaunchUp(t Tuning, tokens int) (Launch, error) {
	v := e.up()
	err := v.check(v.K)
	if err == nil {
		t, err = v.tune(t, 2, 1)
	}
	if err != nil {
		return Launch{}, fmt.Errorf("experts_up %d×%d×%d: %w", e.Count, e.Inner, e.Hidden, err)
	}
	l := Launch{
		File: "experts", Kernel: "experts_up",
		Defines: append(v.matvecDefines(t, e.Inner), define("EXPERTS_TOP", e.Top, "EXPERTS_N", e.Inner, "MATVEC_EXPERTS", e.Count, "EXPERTS_ACTIVATION", int(e.Activation))...),
		Groups:  [3]int{ceil(e.Inner, t.block()), tokens * e.Top, 1}, Threads: [3]int{t.threads(), 1, 1},
	}
	l.Trial = func() Trial { return e.trialUp(l, t.block()) }
	return l, nil
}

// LaunchDown is the second dispatch: y = Σ scores[j] · down[e_j]·h_j, plus extra. Buffers: w, scales, biases,
// experts i32 [T, Top], scores f32 [T, Top], h, extra f32 [T, Hidden] (h again where there is none), y f32 [T, Hidden],
// step.
func (e Experts) LaunchDown(t Tuning, tokens int) (Launch, error) {
	v := e.down()
	err := v.check(e.Inner)
	if err == nil {
		t, err = v.tune(t, 1, e.Top)
	}
	if err != nil {
		return Launch{}, fmt.Errorf("experts_down %d×%d×%d: %w", e.Count, e.Hidden, e.Inner, err)
	}
	l := Launch{
		File: "experts", Kernel: "experts_down",
		Defines: append(v.matvecDefines(t, e.Hidden), define("EXPERTS_TOP", e.Top, "EXPERTS_N", e.Hidden, "MATVEC_EXPERTS", e.Count, "EXPERTS_RESIDUAL", e.Residual)...),
		Groups:  [3]int{ceil(e.Hidden, t.block()), tokens, 1}, Threads: [3]int{t.threads(), 1, 1},
	}
	l.Trial = func() Trial { return e.trialDown(l, t.block()) }
	return l, nil
}

// Twin computes both: h [T, Top, Inner] and y [T, Hidden] for T = len(h)/(Top·Inner) tokens. Weights have the
// rows of all experts.
func (e Experts) Twin(gate, up, down *Weight, experts []int32, scores, x, norm, extra, h, y []float32) {
	v := e.up()
	for pair := range len(h) / e.Inner {
		token, expert := pair/e.Top, int(experts[pair])
		row := v.normed(x[token*e.Hidden:(token+1)*e.Hidden], norm)
		for n := range e.Inner {
			var g, u float64
			for k, a := range row {
				g += a * gate.At(expert*e.Inner+n, k)
				u += a * up.At(expert*e.Inner+n, k)
			}
			h[pair*e.Inner+n] = float32(e.Activation.of(g) * u)
		}
	}
	for token := range len(h) / e.Inner / e.Top {
		for n := range e.Hidden {
			sum := 0.0
			if e.Residual {
				sum = float64(extra[token*e.Hidden+n])
			}
			for pair := token * e.Top; pair < (token+1)*e.Top; pair++ {
				part := 0.0
				for k := range e.Inner {
					part += float64(h[pair*e.Inner+k]) * down.At(int(experts[pair])*e.Hidden+n, k)
				}
				sum += float64(scores[pair]) * part
			}
			y[token*e.Hidden+n] = float32(sum)
		}
	}
}
