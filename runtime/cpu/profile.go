package cpu

import "time"

// Profile collects where the time of calls goes.
type Profile struct {
	// Steps holds the totals by kind of step.
	Steps map[string]*Total
}

// Total is what steps of a kind took.
type Total struct {
	Count      int
	Time       time.Duration
	Bytes      int // of weights that were read
	Operations int // floating-point
}

// run runs a step and counts it.
func (p *Profile) run(s *step) error {
	start := time.Now()
	err := s.run()
	t := p.Steps[s.kind]
	if t == nil {
		t = &Total{}
		p.Steps[s.kind] = t
	}
	t.Count++
	t.Time += time.Since(start)
	t.Bytes += s.bytes
	t.Operations += s.flops
	return err
}
