package selftest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Options say where results of self-tests are stored.
type Options struct {
	// Dir is the folder in which a Tester stores the result of each self-test, a file for each kernel. "" stands for
	// the folder in the user's cache that also holds compiled kernels.
	Dir string
}

// Failure is a kernel that must not be used.
type Failure struct {
	// Launch is the launch whose self-test failed.
	Launch kernels.Launch
	// Keys are the keys of all kernels that the case runs: any of them may be the wrong one.
	Keys []string
	// Result says how wrong the results are, if Err is nil.
	Result Result
	// Err says why there are no results: the kernel does not compile, or does not run.
	Err error
	// Lost says that the failure has made the device unusable for this process.
	Lost bool
}

// String describes the failure.
func (f Failure) String() string {
	if f.Err != nil {
		return f.name() + doesNotRun + f.Err.Error()
	}
	return fmt.Sprintf("%s is off by %.2g of the largest number, where %.2g is allowed", f.name(),
		f.Result.Difference, f.Result.Bound)
}

const doesNotRun = " does not run: "

// name returns the names of the kernel's file and of the kernel.
func (f Failure) name() string { return f.Launch.File + "/" + f.Launch.Kernel }

// Tester runs the self-tests of a device's kernels. Its methods must not be called at the same time, nor while
// something else uses the device.
type Tester struct {
	device device.Device
	store  store
	done   map[string]bool    // keys of kernels that were tested, or are used untested
	failed map[string]Failure // by the key of the launch
}

// New returns the tester of a device. identity names the device and its driver.
func New(d device.Device, identity string, o Options) *Tester {
	return &Tester{device: d, store: newStore(o.Dir, identity, d.Info().Target), done: map[string]bool{},
		failed: map[string]Failure{}}
}

// Test tests those kernels that were not tested before. It gets compiled kernels from kernel, which it calls from
// several goroutines. It returns all failures, those of earlier calls too.
func (p *Tester) Test(launches []kernels.Launch, kernel func(kernels.Launch) (device.Kernel, error)) (out []Failure) {
	var todo, asked []kernels.Launch
	given := map[string]bool{}
	for _, l := range launches {
		key := l.Key()
		if f, failed := p.failed[key]; failed && !given[key] {
			given[key] = true
			out = append(out, f)
		}
		if p.done[key] || l.Case == nil {
			continue
		}
		p.done[key] = true
		asked = append(asked, l)
	}
	entries := p.store.readAll(asked)
	for i, l := range asked {
		switch e, known := entries[i].entry, entries[i].known; {
		case known && e.wrong == "" && !e.lost:
		case known && e.lost:
			f := Failure{Launch: l, Keys: keys(l.Case(kernels.Sizes{}))}
			f.Err = fmt.Errorf("%s (so found a start before this one; it is not tried again while there is %s)",
				strings.TrimPrefix(e.wrong, f.name()+doesNotRun), p.store.path(l))
			out = append(out, f)
			p.failed[l.Key()] = f
		default:
			todo = append(todo, l)
		}
	}
	if len(todo) == 0 {
		return out
	}
	if err := p.device.Wait(); err != nil {
		return out // not the kernels' fault; the next use of the device returns the error
	}
	ready := prepare(todo, kernel)
	for i, l := range todo {
		f := Failure{Launch: l, Keys: keys(ready[i].test), Err: ready[i].err}
		if f.Err == nil {
			f.Result, f.Err = Run(p.device, ready[i].test, kernel)
			f.Lost = errors.Is(f.Err, errLost)
		}
		switch {
		case errors.Is(f.Err, errMemory):
		case f.Err != nil || !f.Result.Passed():
			out = append(out, f)
			p.failed[l.Key()] = f
			p.store.keep(l, f.String(), f.Lost)
		default:
			p.store.keep(l, "", false)
		}
		if f.Lost {
			break // the device is lost
		}
	}
	return out
}

// prepared is a case of a launch with compiled kernels, or why they do not compile.
type prepared struct {
	test *kernels.Case
	err  error
}

// prepare makes the cases of launches and compiles their kernels, several at a time. The device then runs one case
// after the other.
func prepare(todo []kernels.Launch, kernel func(kernels.Launch) (device.Kernel, error)) []prepared {
	ready := make([]prepared, len(todo))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait fault.Group
	for i, l := range todo {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			ready[i].test = l.Case(kernels.Sizes{})
			ready[i].test.Wants()
			for _, x := range ready[i].test.Launches {
				if _, err := kernel(x.Launch); err != nil && ready[i].err == nil {
					ready[i].err = err
				}
			}
		})
	}
	wait.Wait()
	return ready
}

// keys returns the keys of the kernels of a case.
func keys(c *kernels.Case) (out []string) {
	for _, x := range c.Launches {
		out = append(out, x.Launch.Key())
	}
	return out
}
