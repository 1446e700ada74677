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

// selfTests holds the results of self-tests for the kernels of a device. Callers have locked timeline.
type selfTests struct {
	tester *selftest.Tester // nil: kernels are used without a self-test
	// refused has the keys of the kernels that gave wrong numbers or did not run.
	refused map[string]bool
	// slow are the operations for which every kernel was refused: they run on reference kernels.
	slow map[slowKey]bool
}

// refuses reports whether a self-test has refused a kernel. Usually refused is empty, and then the long key is not
// computed.
func (k *selfTests) refuses(l kernels.Launch) bool { return len(k.refused) > 0 && k.refused[l.Key()] }

// slowKey identifies an operation in a plan for inputs of given shapes, since other chunk sizes use other kernels. The
// operation is given by its text: every plan has its own ir.Op.
type slowKey struct{ op, shapes string }

func (p *boundPlan) slowKey(op *ir.Op) slowKey {
	return slowKey{ir.Describe(p.module, op), fmt.Sprint(p.shapes)}
}

// slow reports whether op has to run on its reference kernel, by itself or as a part of a fused operation.
func (b *binder) slow(op *ir.Op) bool {
	k := &b.x.exe.selfTests
	return b.part != nil || len(k.slow) > 0 && k.slow[b.plan.slowKey(op)]
}

// errAnew says that a self-test has refused a kernel of a plan, so the plan has to be made again.
var errAnew = errors.New("the plan is to be made anew")

// selfTest runs the self-tests of those kernels of a plan that have not had theirs. If one fails, it returns errAnew.
// The new plan then uses another variant, another kernel, or in the end the reference kernel.
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
			return fmt.Errorf("%s, so that this process cannot use %s any more; the next start does without "+
				"this kernel", f, x.exe.device.Info().Description)
		}
		texts = append(texts, f.String())
		for _, key := range f.Keys {
			k.refused[key] = true
		}
	}
	x.exe.warn(fmt.Sprintf("%s: kernels that fail their self-tests are not used, and others take their place, if "+
		"need be reference kernels, slowly: %s. Please report it with what etc doctor prints",
		x.exe.device.Info().Description, strings.Join(texts, "; ")))
	return errAnew
}

// allowed returns the launch, or an error if its self-test has failed.
func (b *binder) allowed(l kernels.Launch, err error) (kernels.Launch, error) {
	if err == nil && b.x.exe.selfTests.refuses(l) {
		err = fmt.Errorf("kernel %s gives wrong numbers on this device", l.Key())
	}
	return l, err
}

// maxRefused is the number of variants of a kernel that may fail their self-tests before the kernel is given up.
const maxRefused = 3

// usable returns the first launch among variants that no self-test has refused. After maxRefused failures it returns an
// error.
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

// another replaces a step's launch, if its self-test has failed, by the next variant that has not.
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
