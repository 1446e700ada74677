package gpu

import (
	"slices"
	"sync"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/strided"
)

// tuned notes that the last step can be launched in any of these variants, with the same operands. The step has the
// first of them until the tuner, if there is one, has chosen: in a chain it runs them on random numbers from -1 to 1,
// so that an operand that must be something else has an example.
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

// product is the steps of a plan that run one kernel at about one shape.
type product struct {
	key     string
	steps   []*step
	bytes   int  // that they read where they are measured
	inPlace bool // they are measured in their place in the plan
	// positions of a call are where they are measured; none where their time does not depend on that.
	positions []int
}

// variants are the launches of the steps' kernel at their shape, the default first.
func (t *product) variants() tune.Variants {
	w := t.steps[0].variants()
	w.InPlace, w.Positions = t.inPlace, t.positions
	return w
}

// of reports whether a step is one of the product's at the shape of the first of them.
func (t *product) of(s *step) bool {
	return s.launch.Groups == t.steps[0].launch.Groups && slices.Contains(t.steps, s)
}

// choose gives the steps the kernel that was chosen for one of them.
func (t *product) choose(choice kernels.Launch) {
	fitted := map[[3]int]kernels.Launch{} // by the default's threadgroups
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

// products groups the steps that can be tuned and are worth it.
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

// tune gives the steps of a plan the launches that are fastest on this device, if there is a tuner. The plan has its
// memory, and what kernels read of the call, but is not recorded yet. It fails where the plan would run to measure
// products in their place and must not.
func (x *instance) tune(p *boundPlan) error {
	if x.exe.tuner == nil {
		return nil
	}
	r := newRotation(x)
	w := &windows{rotation: r, plan: p}
	var open []*product
	var todo []tune.Product
	products := p.products(x.exe.tuner)
	x.makeVariants(products)
	for _, t := range products {
		if _, known := x.exe.choices[t.key]; !known {
			if l, kept := x.exe.tuner.Kept(t.variants()); kept {
				x.exe.choices[t.key] = l
			}
		}
		if x.choose(t) {
			continue
		}
		runs := func() []device.Dispatch { return r.runs(t) }
		if t.inPlace {
			runs = func() []device.Dispatch { return w.runs(t) }
		}
		open = append(open, t)
		todo = append(todo, tune.Product{Variants: t.variants(), Bytes: t.bytes, Runs: runs})
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
		reserve = 2.0 / 3 // a prompt comes first, but time is spent in the plan for one token, which is next
	}
	for i, l := range x.exe.tuner.Choose(todo, reserve) {
		x.exe.choices[open[i].key] = l
	}
	r.close()
	for _, t := range open {
		x.choose(t)
	}
	for i := range p.steps {
		p.steps[i].variants = nil // a plan is tuned once
	}
	return nil
}

// makeWays makes the ways of products whose choice may be kept, side by side: there are some hundred to each. A panic
// is the caller's, who knows what to do about it.
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

// choose gives a product's steps the kernel that was chosen for them. It is false where none was chosen yet.
func (x *instance) choose(t *product) bool {
	l, known := x.exe.choices[t.key]
	if known && !x.exe.selfTests.refuses(l) {
		t.choose(l)
	}
	return known
}

// single reports whether a plan is for one token.
func (p *boundPlan) single() bool {
	return !slices.ContainsFunc(p.shapes, func(shape []int) bool { return strided.Elements(shape) > 1 })
}

// sound reports whether a launch that is fast gives the right numbers. One that does not is passed over silently, as if
// it were slow.
func (x *executable) sound(l kernels.Launch) bool {
	if len(x.selfTests.tester.Test([]kernels.Launch{l}, x.kernel)) > 0 {
		x.selfTests.refused[l.Key()] = true
	}
	return !x.selfTests.refuses(l)
}
