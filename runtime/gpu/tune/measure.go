package tune

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

const (
	// repeats is how often a variant is measured. The shortest time counts.
	repeats = 3
	// warming is how long the device works before measurements count, because its clock rises under load.
	warming = 10 * time.Millisecond
)

// candidate is a compiled launch with the sequence that measures it.
type candidate struct {
	library  device.Library
	kernel   device.Kernel
	sequence device.Sequence
	submits  int // how often a measurement submits the sequence
}

// close frees the candidate. The next use of the device returns its errors.
func (c *candidate) close() {
	if c.sequence != nil {
		_ = c.sequence.Close()
	}
	if c.kernel != nil {
		_ = c.kernel.Close()
	}
	if c.library != nil {
		_ = c.library.Close()
	}
	*c = candidate{}
}

// compile compiles launches in parallel, until end.
func (t *Tuner) compile(todo []job, end time.Time) {
	work := make(chan job)
	var wait sync.WaitGroup
	for range min(len(todo), runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for j := range work {
				w := &j.search.variants[j.variant]
				err := fault.Run("compiling a kernel", func() error {
					w.open(t.device, j.search.Launches[j.variant])
					return nil
				})
				w.failed = err != nil || w.kernel == nil
			}
		})
	}
	for _, j := range todo {
		if !t.before(end) {
			break
		}
		work <- j
	}
	close(work)
	wait.Wait()
}

// open compiles a launch. If that fails, kernel stays nil.
func (c *candidate) open(d device.Device, l kernels.Launch) {
	text, err := l.Source(d.Info().Target)
	if err != nil {
		return
	}
	if c.library, err = d.Compile(device.Source{Name: l.File, Text: text}); err != nil {
		c.library = nil
		return
	}
	if c.kernel, err = c.library.Kernel(l.Kernel); err != nil {
		c.kernel = nil
	}
}

// record records the sequence of a candidate, if it has none yet.
func (t *Tuner) record(c *candidate, l kernels.Launch, runs []device.Dispatch) error {
	if c.sequence != nil {
		return nil
	}
	list := slices.Clone(runs)
	for i := range list {
		if d := &list[i]; d.Kernel == nil {
			if l.Params != nil {
				d.Arguments = append(slices.Clip(d.Arguments), device.Argument{Bytes: l.Params})
			}
			d.Label, d.Kernel, d.Groups, d.Threads, d.Memory = "tuning", c.kernel, l.Groups, l.Threads, l.Memory
		}
	}
	s, err := t.device.Record(list)
	if err == nil {
		c.sequence, c.submits = s, 1
	}
	return err
}

// measure returns the shortest time of variant i over several measurements, or over one if it is hopeless against the
// best so far.
func (t *Tuner) measure(s *search, i int) (time.Duration, error) {
	c, by, best := &s.variants[i].candidate, s.comparison(), s.variants[s.best].time
	if err := t.record(c, s.Launches[i], s.runs); err != nil {
		return 0, err
	}
	c.submits = 1
	if _, err := t.time(c); err != nil { // an untimed run first: code is copied to the device, pages are mapped
		return 0, err
	}
	once, err := t.time(c)
	if err != nil {
		return 0, err
	}
	c.submits = int(min(100, max(1, by.long/max(1, once))))
	var least time.Duration
	for range repeats {
		took, err := t.time(c)
		if err != nil {
			return 0, err
		}
		if least == 0 || took < least {
			least = took
		}
		if best > 0 && float64(least) > by.hopeless*float64(best) {
			break
		}
	}
	return max(1, least), nil
}

// warm keeps the device busy for a while with the sequences that are measured next.
func (t *Tuner) warm(products []*search) {
	for _, s := range products {
		w := &s.variants[s.best]
		if w.kernel == nil {
			continue
		}
		if err := t.record(&w.candidate, s.Launches[s.best], s.runs); err != nil {
			continue
		}
		for end := t.clock().Add(warming); t.before(end); {
			if _, err := t.time(&w.candidate); err != nil {
				break
			}
		}
		return
	}
}

// time submits a candidate's sequence and returns its duration. Everything that was submitted before has been waited
// for, so an error is the candidate's; others can be measured after it. Where the device does not recover, its next use
// returns the error.
func (t *Tuner) time(c *candidate) (time.Duration, error) {
	start := t.clock()
	if err := t.submit(c); err != nil {
		_ = t.device.Recover()
		return 0, err
	}
	return t.clock().Sub(start) / time.Duration(c.submits), nil
}

// submit runs a candidate's sequence.
func (t *Tuner) submit(c *candidate) error {
	for range c.submits {
		if err := c.sequence.Submit(); err != nil {
			return err
		}
	}
	return t.device.Wait()
}
