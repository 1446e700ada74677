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
	// repeats is how often a variant is measured; the least time counts.
	repeats = 3
	// warming is how long the device works before measurements count: its clock rises with work.
	warming = 10 * time.Millisecond
)

// candidate is a compiled launch, recorded on all runs.
type candidate struct {
	library  device.Library
	kernel   device.Kernel
	sequence device.Sequence
	submits  int // of the sequence in a measurement
}

// close frees what a candidate holds. Errors are those of the device, which come up again in its next use.
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

// compile compiles launches side by side, until the time is over.
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
		if !t.clock().Before(end) {
			break
		}
		work <- j
	}
	close(work)
	wait.Wait()
}

// open compiles a launch. Without success there is no kernel.
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

// record makes the sequence of a candidate, if it has none yet.
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

// measure gives the least time of a product's runs in a variant, of several measurements, or of one where it is
// hopeless against the best so far.
func (t *Tuner) measure(s *search, i int) (time.Duration, error) {
	c, by, best := &s.variants[i].candidate, s.comparison(), s.variants[s.best].time
	if err := t.record(c, s.Launches[i], s.runs); err != nil {
		return 0, err
	}
	c.submits = 1
	if _, err := t.time(c); err != nil { // what is done once: code is brought to the device, pages are read
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

// warm lets the device work on what is measured next.
func (t *Tuner) warm(products []*search) {
	for _, s := range products {
		w := &s.variants[s.best]
		if w.kernel == nil {
			continue
		}
		if err := t.record(&w.candidate, s.Launches[s.best], s.runs); err != nil {
			continue
		}
		for start := t.clock(); t.clock().Sub(start) < warming; {
			if _, err := t.time(&w.candidate); err != nil {
				break
			}
		}
		return
	}
}

// time submits a candidate's sequence and gives the time that it takes. An error of the device is the candidate's, for
// what was submitted before all of them was waited for: others can be measured after it. Where the device does not
// recover, its next use says so.
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
