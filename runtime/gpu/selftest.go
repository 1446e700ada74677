package gpu

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
)

// selfTests is what self-tests have told of the kernels of a device. Calls that use it have the timeline.
type selfTests struct {
	tester *selftest.Tester // nil takes all kernels on trust
	// refused are the keys of kernels that give wrong numbers or do not run.
	refused map[string]bool
	// slow are the operations that no other kernel computes: they run on reference kernels.
	slow map[slowKey]bool
}

// refuses reports whether a kernel must not be used. Mostly there are none such, and keys are long.
func (k *selfTests) refuses(l kernels.Launch) bool { return len(k.refused) > 0 && k.refused[l.Key()] }

// slowKey is an operation in a plan for these shapes: other sizes of a chunk have other kernels. The operation is told
// by its text, since every plan has operations of its own.
type slowKey struct{ op, shapes string }

func (p *boundPlan) slowKey(op *ir.Op) slowKey {
	return slowKey{ir.Describe(p.module, op), fmt.Sprint(p.shapes)}
}

// slow reports whether op is to run on its reference kernel: alone, or as a part of what has no kernel.
func (b *binder) slow(op *ir.Op) bool {
	k := &b.x.exe.selfTests
	return b.part != nil || len(k.slow) > 0 && k.slow[b.plan.slowKey(op)]
}

// errAnew says that a plan has kernels that must not be used: it is to be made anew.
var errAnew = errors.New("the plan is to be made anew")

// selfTest tries the kernels of a plan that were not tried before. Where one fails, the plan is to be made anew, which
// then takes others: another way to divide the work, another kernel, or in the end the operation's reference kernel.
func (x *instance) selfTest(p *boundPlan) error {
	k := &x.exe.selfTests
	if k.tester == nil {
		return nil
	}
	var launches []kernels.Launch
	slow := map[slowKey]bool{}
	for i := range p.steps {
		s := &p.steps[i]
		switch {
		case s.host != nil || s.kernel != nil:
		case !k.refuses(s.launch):
			launches = append(launches, s.launch)
		case k.slow[p.slowKey(s.op)]:
			return p.failed(s.op, fmt.Errorf(
				"kernel %s gives wrong numbers on this device, and nothing else does its work; use another --device",
				s.launch.Key()))
		default:
			slow[p.slowKey(s.op)] = true
		}
	}
	if len(slow) > 0 {
		maps.Copy(k.slow, slow)
		return errAnew
	}
	failures := k.tester.Test(launches, x.exe.kernel)
	if len(failures) == 0 {
		return nil
	}
	var texts []string
	for _, f := range failures {
		if f.Lost {
			return fmt.Errorf("%s, so that this process cannot use %s any more; the next start does without this kernel", f, x.exe.device.Info().Description)
		}
		texts = append(texts, f.String())
		for _, key := range f.Keys {
			k.refused[key] = true
		}
	}
	x.exe.warn(fmt.Sprintf("%s: kernels that fail their self-tests are not used, and others take their place, if need be reference kernels, slowly: %s. Please report it with what etc doctor prints",
		x.exe.device.Info().Description, strings.Join(texts, "; ")))
	return errAnew
}

// allowed passes a launch on, unless its kernel has failed its self-test: then there is none.
func (b *binder) allowed(l kernels.Launch, err error) (kernels.Launch, error) {
	if err == nil && b.x.exe.selfTests.refuses(l) {
		err = fmt.Errorf("kernel %s gives wrong numbers on this device", l.Key())
	}
	return l, err
}

// maxRefused is the number of ways to divide the work of a product that may fail before none of them is taken.
const maxRefused = 3

// usable is the first of the ways to launch a product whose kernel has not failed; where several have, it is an error.
func usable[T any](b *binder, variants []T, launch func(T) (kernels.Launch, error)) (l kernels.Launch, err error) {
	for _, t := range variants[:min(len(variants), maxRefused)] {
		if l, err = launch(t); err != nil {
			return l, err
		}
		if l, err = b.allowed(l, nil); err == nil {
			return l, nil
		}
	}
	return l, err
}

// another gives a step whose kernel has failed another of its variants, unless several have failed.
func (b *binder) another(s *step) {
	k := &b.x.exe.selfTests
	if !k.refuses(s.launch) {
		return
	}
	all := s.variants().Launches
	for _, l := range all[:min(len(all), maxRefused)] {
		if !k.refuses(l) {
			s.launch = l
			return
		}
	}
}
