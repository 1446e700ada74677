package calibrate

import "github.com/etc-ml/etc/ir"

// Bytes returns the memory for arrays that a run has reckoned with, and the most that it held.
func (r *Result) Bytes() (planned, held int64) { return r.planned, r.held }

// OnDisk returns the number of values that lay on disk.
func (r *Result) OnDisk() int { return r.onDisk }

// Observed has f called with the bytes that are held, at places where no worker runs.
func (o Options) Observed(f func(held int64)) Options {
	o.observe = f
	return o
}

// ArrayBytes returns the memory for arrays within a limit.
func ArrayBytes(limit int64) int64 { return arrayBytes(limit) }

// Planned returns the memory for arrays that a run would reckon with, and the number of values that would lie on disk.
func Planned(m *ir.Module, o Options) (bytes int64, onDisk int, err error) {
	p, err := newPlan(m, o)
	if err == nil {
		err = p.fit(o.MaxRAM)
	}
	if err != nil {
		return 0, 0, err
	}
	return p.most(), len(p.onDisk), nil
}
