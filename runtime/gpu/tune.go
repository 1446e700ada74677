package gpu

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/strided"
)

// tuned notes that the last step can be launched in any of these variants, with the same operands. It has the first of
// them until the tuner, if there is one, has chosen. Measurements give operands random numbers from -1 to 1, so an
// operand that must hold something else needs a synthetic content.
func tuned[T interface{ Near(T) bool }](b *binder, tunings []T, launch func(T) (kernels.Launch, error)) {
	last := &b.plan.steps[len(b.plan.steps)-1]
	last.variants = sync.OnceValue(func() tune.Variants {
		var w tune.Variants
		var fit []T
		for _, t := range tunings {
			if l, err := launch(t); err == nil {
				w.Launches, fit = append(w.Launches, l), append(fit, t)
			}
		}
		w.Near = func(i, j int) bool { return fit[i].Near(fit[j]) }
		return w
	})
	b.another(last)
}

// product is a group of steps that run the same kernel at about the same shape. The tuner chooses for the group.
type product struct {
	key     string
	steps   []*step
	bytes   int  // that all its steps read where they are measured
	inPlace bool // measured among the neighbouring steps of the plan: see inPlaceBenchmark
	// positions are the positions of calls at which it is measured; nil where its time does not depend on them.
	positions []int
}

// variants returns the launches that the group's kernel has at the shape of its first step, the default first.
func (t *product) variants() tune.Variants {
	w := t.steps[0].variants()
	w.InPlace, w.Positions = t.inPlace, t.positions
	return w
}

// of reports whether s is a step of the group with the shape of its first step.
func (t *product) of(s *step) bool {
	return s.launch.Groups == t.steps[0].launch.Groups && slices.Contains(t.steps, s)
}

// choose gives the steps of the group the launch that was chosen for its first step. A step of another shape gets the
// corresponding variant.
func (t *product) choose(choice kernels.Launch) {
	fitted := map[[3]int]kernels.Launch{} // by the threadgroups of the default launch
	for _, s := range t.steps {
		groups, params := s.launch.Groups, s.launch.Params
		l, ok := fitted[groups]
		if !ok {
			l = s.launch
			if l.Key() != choice.Key() {
				w := s.variants()
				if i, found := w.Find(choice); found {
					l = w.Launches[i]
				}
			}
			fitted[groups] = l
		}
		s.launch = l
		s.launch.Params = params
	}
}

// products groups the steps of the plan that have variants. It leaves out groups that are too small to be worth tuning.
func (p *boundPlan) products(t *tune.Tuner) (out []*product) {
	at, inPlace := map[string]*product{}, p.inPlace()
	for i := range p.steps {
		s := &p.steps[i]
		if s.variants == nil {
			continue
		}
		positions := s.positions()
		key := tune.Key(s.launch, inPlace, positions)
		if at[key] == nil {
			at[key] = &product{key: key, inPlace: inPlace, positions: positions}
			out = append(out, at[key])
		}
		at[key].steps = append(at[key].steps, s)
		at[key].bytes += s.bytes + s.caches
	}
	return slices.DeleteFunc(out, func(q *product) bool { return !t.Worth(q.bytes) })
}

// tune gives the steps of a plan the fastest launches on this device, if there is a tuner. The plan has its memory
// and its uniforms, but is not recorded yet. Measuring in place runs the plan, so tune returns an error where a
// self-test refuses one of its kernels.
func (x *instance) tune(p *boundPlan) error {
	if x.exe.tuner == nil {
		return nil
	}
	r := newColdCacheBenchmark(x)
	w := &inPlaceBenchmark{coldCacheBenchmark: r, plan: p}
	var open []*product
	var todo []tune.Product
	products := p.products(x.exe.tuner)
	x.makeVariants(products)
	for _, t := range products {
		resumes := false
		if _, known := x.exe.choices[t.key]; !known || x.tuning {
			l, more, kept := x.exe.tuner.Kept(t.variants())
			if resumes = more; kept && !known {
				x.exe.choices[t.key] = l
			}
		}
		if x.choose(t) && !resumes {
			continue
		}
		runs := func() []device.Dispatch { return r.runs(t) }
		if t.inPlace {
			runs = func() []device.Dispatch { return w.runs(t) }
		}
		open = append(open, t)
		todo = append(todo, tune.Product{Variants: t.variants(), Bytes: t.bytes, Runs: runs})
	}
	if len(open) > 0 && x.exe.tuneLater && !x.tuning && !p.measuredInPools() {
		p.untuned = true
		return nil
	}
	if len(open) > 0 {
		for _, t := range products {
			r.add(t.steps)
		}
	}
	if len(open) > 0 && open[0].inPlace {
		if err := x.selfTest(p); err != nil {
			return err
		}
	}
	reserve := 0.0
	if !p.single() {
		reserve = 2.0 / 3 // keep time for the plan of one token, which is made after the prompt's
	}
	chosen := x.exe.tuner.Choose(todo, reserve)
	r.close()
	if x.exe.tuner.Stops() {
		p.untuned = true
		return nil
	}
	for i, t := range open {
		x.exe.choices[t.key] = chosen[i]
		x.choose(t)
	}
	for i := range p.steps {
		p.steps[i].variants = nil // a plan is tuned once, so they are no longer needed
	}
	return nil
}

// Tune measures the products of plans that calls have run with kernels that were not measured: see engine.Tunable.
func (x *instance) Tune(ctx context.Context) error {
	x.exe.timeline.Lock()
	defer x.exe.timeline.Unlock()
	if err := x.dropPending(); err != nil {
		return err
	}
	x.tuning = true
	defer func() { x.tuning = false }()
	if t := x.exe.tuner; t != nil {
		t.Stopped = func() bool { return ctx.Err() != nil }
		defer func() { t.Stopped = nil }()
	}
	for _, p := range x.allPlans() { // of each entry the one that was used last, that of a token, comes first
		if !p.untuned {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p.untuned = false
		if err := errors.Join(x.exe.device.Wait(), p.forget(), x.tune(p)); err != nil {
			return err
		}
		if p.untuned { // the context has ended meanwhile: another call of Tune measures all of the plan
			return ctx.Err()
		}
	}
	return nil
}

// makeVariants makes the variants of all groups without a known choice, several groups at a time: each has some
// hundred. A panic in one of them is passed on to the caller.
func (x *instance) makeVariants(products []*product) {
	var wait fault.Group
	for _, t := range products {
		if _, known := x.exe.choices[t.key]; known {
			continue
		}
		wait.Go(func() { t.steps[0].variants() })
	}
	wait.Wait()
}

// choose gives the steps of a group the launch that was chosen for it. It returns false where none was chosen yet.
func (x *instance) choose(t *product) bool {
	l, known := x.exe.choices[t.key]
	if known && !x.exe.selfTests.refuses(l) {
		t.choose(l)
	}
	return known
}

// single reports whether the plan is for one token, which is the first input. Later ones may be larger: the tables
// of a call of one row among many sequences are.
func (p *boundPlan) single() bool { return len(p.shapes) == 0 || strided.Elements(p.shapes[0]) <= 1 }

// sound reports whether a launch passes its self-test. The tuner leaves out those that do not, without a message.
func (x *executable) sound(l kernels.Launch) bool {
	if len(x.selfTests.tester.Test([]kernels.Launch{l}, x.kernel)) > 0 {
		x.selfTests.refused[l.Key()] = true
	}
	return !x.selfTests.refuses(l)
}
