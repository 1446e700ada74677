package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Experts is a mixture of experts for a few tokens: the weights of each token's experts are read for that token alone.
// Gate and up are [Count, Inner, Hidden], down is [Count, Hidden, Inner].
type Experts struct {
	Format
	Count, Top    int
	Hidden, Inner int
	Activation    Activation
	// Norm is the norm of the input.
	Norm Norm
	Eps  float32
	// Router, if its Top is set, says that the first product chooses the experts itself: Top of Count.
	Router Router
	// Shared says that there is a shared expert, which stands before the chosen ones. It has weights of its own with
	// the same Inner and Format, and its score is the sigmoid of a number. It requires a Router.
	Shared bool
	// Ahead says that the first product, after choosing, prefetches the weights that the second one reads.
	Ahead bool
	// Residual says that extra is added to the result.
	Residual bool
}

// Parts returns the number of experts of a token, including a shared one.
func (e Experts) Parts() int {
	if e.Shared {
		return e.Top + 1
	}
	return e.Top
}

// up returns the vectors of the first product. down returns those of the second: for each token the results of its
// experts, concatenated.
func (e Experts) up() Vectors {
	return Vectors{Format: e.Format, K: e.Hidden, M: 1, Norm: e.Norm, Eps: e.Eps}
}
func (e Experts) down() Vectors { return Vectors{Format: e.Format, K: e.Parts() * e.Inner, M: 1} }

// Tunings returns the variants of the two products on a machine, the default first.
func (e Experts) Tunings(m Machine) (up, down []Tuning) {
	both := expertsWays.of(expertsKey{e, m}, func() [2][]Tuning {
		up, down := e.makeVariants(m)
		return [2][]Tuning{slices.Clip(up), slices.Clip(down)}
	})
	return both[0], both[1]
}

// makeVariants returns the variants on a machine.
func (e Experts) makeVariants(m Machine) (up, down []Tuning) {
	up, down = e.tunings(m.Target)
	residentUp, residentDown := e.residentTunings(m)
	return among(residentUp, up), among(residentDown, down)
}

// expertsKey has everything that the variants depend on.
type expertsKey struct {
	experts Experts
	machine Machine
}

var expertsWays remembered[expertsKey, [2][]Tuning]

// tunings returns the variants whose weights are not resident.
func (e Experts) tunings(target Target) (up, down []Tuning) {
	up = e.up().tunings(target, e.Inner*e.Parts(), 1)
	if target == CUDA && e.Shared {
		// Small threadgroups: many of them can wait for the choice on a multiprocessor, and each that is done makes
		// room for the next.
		t := Tuning{Rows: 2, Lanes: up[0].Lanes, Split: 1, Sets: 4, Bytes: up[0].Bytes, Permute: true}
		isNear := func(o Tuning) int {
			if o.Near(t) {
				return 0
			}
			return 1
		}
		// For 9 parts of 512 rows, 9 and 6 sets give grids of 29 and 43 blocks for each part, which can all wait on the
		// multiprocessors at once, two or three on each. 4 sets give 64 blocks, of which some 50 would have to wait
		// until others are done.
		early := []Tuning{t, t, t}
		early[1].Sets, early[2].Sets = 9, 6
		up = slices.DeleteFunc(up, func(o Tuning) bool { return slices.Contains(early, o) })
		slices.SortStableFunc(up, func(a, b Tuning) int { return isNear(a) - isNear(b) })
		up = slices.Concat(early, up)
	}
	up = slices.DeleteFunc(up, func(t Tuning) bool {
		_, err := e.LaunchUp(t, 1)
		return err != nil
	})
	return up, e.downTunings(target)
}

// downTunings prefers variants in which all lanes that share a row have columns in every step: with a shared expert the
// number of parts is odd.
func (e Experts) downTunings(target Target) []Tuning {
	v := e.down()
	out := v.tunings(target, e.Hidden, e.Parts())
	if !e.Shared || target != CUDA {
		return out
	}
	var fit []Tuning
	for _, bytes := range []int{out[0].Bytes, 8} {
		for _, lanes := range []int{16, 32} {
			split := ceil(v.K, bytes*8/v.Bits*lanes)
			for _, sets := range []int{2, 1, 4} {
				for _, rows := range []int{2, 4, 1} {
					t := Tuning{Rows: rows, Lanes: lanes, Split: split, Sets: sets, Bytes: bytes,
						Permute: out[0].Permute}
					if _, err := v.tune(t, 1, e.Parts()); err == nil && split*sets <= 20 && !slices.Contains(fit, t) {
						fit = append(fit, t)
					}
				}
			}
		}
	}
	return append(fit, out...)
}

// mostChosen is the largest number of experts among which the first product can choose: 16 for each lane.
const mostChosen = 512

// check returns an error where there are no kernels for these experts.
func (e Experts) check() error {
	switch {
	case e.Router.Top == 0 && e.Shared:
		return fmt.Errorf("a shared expert beside experts that are given, want them chosen")
	case e.Router.Top == 0:
		return nil
	case e.Router.Top != e.Top || e.Router.Experts != e.Count:
		return fmt.Errorf("a router that chooses %d of %d experts for %d of %d", e.Router.Top,
			e.Router.Experts, e.Top, e.Count)
	}
	return e.Router.check(mostChosen)
}

// LaunchUp is the first dispatch: h = activation(gate[e]·x) ⊙ up[e]·x for the experts e of up to tokens tokens.
// It takes ExpertsUpArguments: gate W0 and up W1, Experts i32 [T, Top], X f32 [T, Hidden], Norm [Hidden], Y, which is
// h, f32 [T, Top, Inner].
//
// With a Router it takes ExpertsChooseArguments: W0 and W1 as before, V0 and V1 of the shared expert, down D and the
// shared expert's E, Logits f32 [T, Count], ExpertScales [Count], Gates f32 [T] of the shared expert, and what is
// written: Experts i32 and Scores f32 [T, Parts], the shared expert's number being 0, and Y f32 [T, Parts, Inner].
func (e Experts) LaunchUp(t Tuning, tokens int) (Launch, error) {
	switch t.form() {
	case byOnce:
		return e.launchOnce(t, tokens)
	case byStream:
		return e.launchResidentUp(t, tokens)
	}
	v := e.up()
	err := e.check()
	if err == nil {
		err = v.check(v.K)
	}
	if err == nil {
		t, err = v.tune(t, 2, 1)
	}
	kernel, more := "experts_up", []Define(nil)
	if err == nil && e.Router.Top > 0 {
		kernel, more = "experts_choose", append(e.Router.defines(), define("EXPERTS_AHEAD", e.Ahead)...)
		if used, most := v.memory(t, 2)+4*(2*(e.Count+36)+2*e.Top+16), 32<<10; used > most {
			err = fmt.Errorf("tuning: %d bytes of threadgroup memory with the choice of experts, there are %d", used,
				most)
		}
	}
	if err != nil {
		return Launch{}, fmt.Errorf("experts_up %d×%d×%d: %w", e.Count, e.Inner, e.Hidden, err)
	}
	l := Launch{
		File: "experts", Kernel: kernel,
		Defines: slices.Concat(v.matvecDefines(t, e.Inner), define("EXPERTS_ACTIVATION", int(e.Activation)),
			e.defines(e.Inner, tokens), more),
		Groups: [3]int{ceil(e.Inner, t.block()), tokens * e.Parts(), 1}, Threads: [3]int{t.threads(), 1, 1},
	}
	l.Case = func(s Sizes) *Case { return e.upCase(l, t.block(), s) }
	return l, nil
}

// LaunchDown is the second dispatch: y = Σ scores[j] · down[e_j]·h_j, plus extra. It takes ExpertsDownArguments, or
// with a shared expert ExpertsJoinArguments: X, which is h, Experts i32 and Scores f32 [T, Parts], Extra and Y f32 [T,
// Hidden]. With a Router the first dispatch, which writes experts, is the one before in the sequence.
func (e Experts) LaunchDown(t Tuning, tokens int) (Launch, error) {
	if t.Stream != (Stream{}) {
		return e.launchResidentDown(t, tokens)
	}
	v := e.down()
	err := e.check()
	if err == nil {
		err = v.check(e.Inner)
	}
	if err == nil {
		t, err = v.tune(t, 1, e.Parts())
	}
	if err != nil {
		return Launch{}, fmt.Errorf("experts_down %d×%d×%d: %w", e.Count, e.Hidden, e.Inner, err)
	}
	kernel, more := "experts_down", define("EXPERTS_RESIDUAL", e.Residual)
	if e.Shared {
		kernel, more = "experts_join", append(more, define("MATVEC_APART", true)...)
	}
	l := Launch{
		File: "experts", Kernel: kernel,
		Defines: slices.Concat(v.matvecDefines(t, e.Hidden), e.defines(e.Hidden, tokens), more),
		Groups:  [3]int{ceil(e.Hidden, t.block()), tokens, 1}, Threads: [3]int{t.threads(), 1, 1},
	}
	l.Case = func(s Sizes) *Case { return e.downCase(l, t.block(), s) }
	return l, nil
}

// defines returns the definitions that both products have, for matrices with rows rows.
func (e Experts) defines(rows, tokens int) []Define {
	return define("EXPERTS_TOP", e.Top, "EXPERTS_SHARED", e.Shared, "EXPERTS_N", rows, "EXPERTS_TOKENS", min(tokens, 2),
		"MATVEC_EXPERTS", e.Count)
}

// ReferenceChoice computes what the first dispatch chooses from logits, the experts' scales and the shared expert's
// gate: experts and scores [T, Parts].
func (e Experts) ReferenceChoice(logits, scales, gate []float32, experts []int32, scores []float32) {
	for t := range len(logits) / e.Count {
		to := (t+1)*e.Parts() - e.Top
		e.Router.Reference(logits[t*e.Count:(t+1)*e.Count], scales, experts[to:to+e.Top], scores[to:to+e.Top])
		if e.Shared {
			experts[to-1], scores[to-1] = 0, float32(1/(1+math.Exp(-float64(gate[t]))))
		}
	}
}
