package cpu

import (
	"time"

	"github.com/etc-ml/etc/runtime/engine"
)

// Profile collects where the time of an instance's calls goes.
type Profile struct {
	// Steps holds the totals by kind of step.
	Steps map[string]*Total
	// Now is the clock; nil is that of the wall.
	Now func() time.Duration

	start time.Time
}

// Total is what the steps of a kind took.
type Total struct {
	// Count is the number of steps.
	Count int
	// Time is how long they took in all.
	Time time.Duration
	// Bytes is what they read of weights and state.
	Bytes int
	// Operations is the number of their floating-point multiplications and additions, products only.
	Operations int
}

// StartProfile begins to collect for an instance of this engine; of another it gives nil.
func StartProfile(x engine.Instance) *Profile {
	n, ok := x.(*instance)
	if !ok {
		return nil
	}
	n.profile = &Profile{Steps: map[string]*Total{}, start: time.Now()}
	return n.profile
}

func (p *Profile) now() time.Duration {
	if p.Now != nil {
		return p.Now()
	}
	return time.Since(p.start)
}

// run runs a step and counts it.
func (p *Profile) run(s *step) error {
	start := p.now()
	err := s.run()
	t := p.Steps[s.kind]
	if t == nil {
		t = &Total{}
		p.Steps[s.kind] = t
	}
	t.Count++
	t.Time += p.now() - start
	t.Bytes += s.bytes
	t.Operations += s.flops
	return err
}
