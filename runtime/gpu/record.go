package gpu

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// segment is a part of a program: kernels that are recorded, or a step of the host between them.
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

// record makes the program of a plan: the kernels between two steps of the host become one sequence.
func (x *instance) record(p *plan) (program []segment, err error) {
	if err := x.exe.compile(p.steps); err != nil {
		return nil, err
	}
	r := &recorder{x: x}
	end := func() error {
		if len(r.dispatches) == 0 {
			return nil
		}
		s, err := x.exe.device.Record(r.dispatches)
		if err != nil {
			return err
		}
		program = append(program, segment{sequence: s, steps: r.steps})
		r = &recorder{x: x}
		return nil
	}
	for i := range p.steps {
		s := &p.steps[i]
		if s.host == nil {
			err = r.add(s)
		} else if err = end(); err == nil {
			program = append(program, segment{host: s})
		}
		if err != nil {
			return program, x.failed(s.op, err)
		}
	}
	return program, end()
}

// recorder collects kernels, with a barrier where one depends on those before it.
type recorder struct {
	x          *instance
	dispatches []device.Dispatch
	steps      []*step
	// since are the ranges that kernels since the last barrier touch.
	since []access
}

// access is a range of bytes that a kernel touches.
type access struct {
	buffer device.Buffer
	lo, hi int
	write  bool
}

func (a access) conflicts(b access) bool {
	return (a.write || b.write) && a.buffer == b.buffer && a.lo < b.hi && b.lo < a.hi
}

func (r *recorder) add(s *step) error {
	l := s.launch
	kernel, err := r.x.exe.kernel(l)
	if err != nil {
		return err
	}
	d := device.Dispatch{Label: s.kind, Kernel: kernel, Groups: l.Groups, Threads: l.Threads}
	touched := make([]access, 0, len(s.operands))
	for _, o := range s.operands {
		buffer, offset := r.x.locate(o.slot)
		offset += o.at
		d.Arguments = append(d.Arguments, device.Argument{Binding: device.Binding{Buffer: buffer, Offset: offset}})
		if !o.slot.fixed {
			touched = append(touched, access{buffer, offset, offset + o.size, o.write})
		}
	}
	if l.Params != nil {
		d.Arguments = append(d.Arguments, device.Argument{Bytes: l.Params})
	}
	if r.depends(touched) {
		d.Barrier = true
		r.since = r.since[:0]
	}
	r.since = append(r.since, touched...)
	r.dispatches, r.steps = append(r.dispatches, d), append(r.steps, s)
	return nil
}

func (r *recorder) depends(touched []access) bool {
	for _, t := range touched {
		for _, s := range r.since {
			if t.conflicts(s) {
				return true
			}
		}
	}
	return false
}

// compile compiles what was not compiled yet, several kernels at a time.
func (x *executable) compile(steps []step) error {
	todo := map[string]kernels.Launch{}
	for i := range steps {
		if steps[i].host == nil {
			todo[steps[i].launch.Key()] = steps[i].launch
		}
	}
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, l := range todo {
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wait.Done() }()
			if _, err := x.kernel(l); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		}()
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
	text, err := l.Source(x.target)
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
