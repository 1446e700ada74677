package gpu

import (
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/tune"
)

// tuned notes that the last step can be launched in any of these ways, with the same operands. The step has the
// first of them until the tuner, if there is one, has chosen.
func tuned[T interface{ Near(T) bool }](b *binder, tunings []T, launch func(T) (kernels.Launch, error)) {
	b.plan.steps[len(b.plan.steps)-1].ways = func() tune.Ways {
		var w tune.Ways
		var fit []T
		for _, t := range tunings {
			if l, err := launch(t); err == nil {
				w.Launches, fit = append(w.Launches, l), append(fit, t)
			}
		}
		w.Near = func(i, j int) bool { return fit[i].Near(fit[j]) }
		return w
	}
}
