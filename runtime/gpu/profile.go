package gpu

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Profile collects the device's time by kind of kernel.
type Profile struct {
	times map[string]time.Duration
	count map[string]int
	bytes map[string]int
}

// Measure makes an instance of this engine measure its kernels, one by one; it gives nil for instances of
// others.
func Measure(i engine.Instance) *Profile {
	x, ok := i.(*instance)
	if !ok {
		return nil
	}
	x.profile = &Profile{times: map[string]time.Duration{}, count: map[string]int{}, bytes: map[string]int{}}
	return x.profile
}

func (p *Profile) run(s *segment) error {
	timed, ok := s.sequence.(device.Timed)
	if !ok {
		return s.sequence.Submit()
	}
	times, err := timed.Times()
	if err != nil {
		return err
	}
	for i, t := range times {
		kind := s.steps[i].kind
		p.times[kind] += t
		p.count[kind]++
		p.bytes[kind] += s.steps[i].bytes
	}
	return nil
}

// Write writes the kinds of kernels, the slowest first, for a number of calls.
func (p *Profile) Write(w io.Writer, calls int) {
	kinds := slices.SortedFunc(maps.Keys(p.times), func(a, b string) int { return cmp.Compare(p.times[b], p.times[a]) })
	var total time.Duration
	for _, k := range kinds {
		total += p.times[k]
	}
	for _, k := range kinds {
		t := p.times[k]
		rate := ""
		if p.bytes[k] > 0 {
			rate = fmt.Sprintf("%7.0f GB/s", float64(p.bytes[k])/float64(t.Nanoseconds()))
		}
		fmt.Fprintf(w, "%-20s %5d  %9.1f us  %5.1f %%  %s\n", k, p.count[k]/calls, float64(t.Nanoseconds())/1e3/float64(calls), 100*float64(t)/float64(total), rate)
	}
	fmt.Fprintf(w, "%-20s        %9.1f us\n", "all", float64(total.Nanoseconds())/1e3/float64(calls))
}
