package gpu

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// segment is a part of a plan's program: a recorded sequence of kernels, or one step of the host.
type segment struct {
	sequence device.Sequence
	steps    []*step // of the sequence
	host     *step
}

func (s *segment) close() error {
	if s.sequence == nil {
		return nil
	}
	return s.sequence.Close()
}

// record makes the program of a plan. All kernels between two steps of the host are recorded as one sequence.
func (x *instance) record(p *boundPlan) (program []segment, err error) {
	if err := x.exe.compile(p.steps); err != nil {
		return nil, err
	}
	for _, list := range p.parts() {
		if list[0].host != nil {
			program = append(program, segment{host: list[0]})
			continue
		}
		dispatches, steps, err := x.dispatches(p, list)
		if err != nil {
			return program, err
		}
		s, err := x.exe.device.Record(dispatches)
		if err != nil {
			return program, err
		}
		program = append(program, segment{sequence: s, steps: steps})
	}
	return program, nil
}

// parts splits the steps of a plan into segments: a step of the host alone, or all kernels up to the next step of the
// host.
func (p *boundPlan) parts() (out [][]*step) {
	for i := range p.steps {
		s := &p.steps[i]
		if last := len(out) - 1; last >= 0 && s.host == nil && out[last][0].host == nil {
			out[last] = append(out[last], s)
		} else {
			out = append(out, []*step{s})
		}
	}
	return out
}

// access is a range of bytes of a buffer that a kernel reads or writes.
type access struct {
	buffer device.Buffer
	lo, hi int
	write  bool
}

func (a access) conflicts(b access) bool {
	return (a.write || b.write) && a.buffer == b.buffer && a.lo < b.hi && b.lo < a.hi
}

// dispatches returns the dispatches of a sequence, in levels with a barrier between them, and their steps. A step goes
// to the first level after all steps that it depends on. Steps of one level run at the same time.
func (x *instance) dispatches(p *boundPlan, list []*step) ([]device.Dispatch, []*step, error) {
	all := make([]device.Dispatch, len(list))
	touched := make([][]access, len(list))
	levels := make([]int, len(list))
	order := make([]int, len(list))
	for i, s := range list {
		var err error
		if all[i], touched[i], err = x.dispatch(p, s); err != nil {
			return nil, nil, p.failed(s.op, err)
		}
		order[i] = i
		// The last steps stand on the highest levels. So the loop can stop early: a step that is already after them
		// depends on no level further up.
		for j := i - 1; j >= 0; j-- {
			if levels[j] >= levels[i] && depends(touched[i], touched[j]) {
				levels[i] = levels[j] + 1
			}
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return levels[i] - levels[j] })
	out, steps := make([]device.Dispatch, len(list)), make([]*step, len(list))
	for at, i := range order {
		out[at], steps[at] = all[i], list[i]
		out[at].Barrier = at > 0 && levels[i] != levels[order[at-1]]
	}
	return out, steps, nil
}

// dispatch returns the dispatch of a step, and the ranges of bytes that it touches in memory that kernels write.
func (x *instance) dispatch(p *boundPlan, s *step) (d device.Dispatch, touched []access, err error) {
	kernel := s.kernel
	if kernel == nil {
		if kernel, err = x.exe.kernel(s.launch); err != nil {
			return d, nil, err
		}
	}
	d = device.Dispatch{Label: s.kind, Kernel: kernel, Groups: s.launch.Groups, Threads: s.launch.Threads,
		Memory: s.launch.Memory}
	for _, o := range s.operands {
		buffer, offset := x.place(o, p.doubleBuffered())
		d.Arguments = append(d.Arguments, device.Argument{Binding: device.Binding{Buffer: buffer, Offset: offset}})
		if !o.slot.fixed {
			touched = append(touched, access{buffer, offset, offset + o.size, o.write})
		}
	}
	if s.launch.Params != nil {
		d.Arguments = append(d.Arguments, device.Argument{Bytes: s.launch.Params})
	}
	return d, touched, nil
}

func depends(a, b []access) bool {
	for _, x := range a {
		for _, y := range b {
			if x.conflicts(y) {
				return true
			}
		}
	}
	return false
}

// compile compiles the kernels that were not compiled yet, several at a time.
func (x *executable) compile(steps []step) error {
	todo := map[string]kernels.Launch{}
	for i := range steps {
		if steps[i].host == nil && steps[i].kernel == nil {
			todo[steps[i].launch.Key()] = steps[i].launch
		}
	}
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait fault.Group
	var mu sync.Mutex
	var failed error
	for _, l := range todo {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if _, err := x.kernel(l); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return failed
}

// kernel compiles a kernel when it is first used.
func (x *executable) kernel(l kernels.Launch) (device.Kernel, error) {
	key := l.Key()
	x.mu.Lock()
	k := x.kernels[key]
	x.mu.Unlock()
	if k != nil {
		return k, nil
	}
	fail := func(err error) (device.Kernel, error) { return nil, fmt.Errorf("kernel %s: %w", key, err) }
	text, err := l.Source(x.machine.Target)
	if err != nil {
		return fail(err)
	}
	library, err := x.device.Compile(device.Source{Name: l.File, Text: text})
	if err != nil {
		return fail(err)
	}
	k, err = library.Kernel(l.Kernel)
	if err != nil {
		library.Close()
		return fail(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if other := x.kernels[key]; other != nil {
		k.Close()
		library.Close()
		return other, nil
	}
	x.kernels[key] = k
	x.libraries = append(x.libraries, library)
	return k, nil
}
