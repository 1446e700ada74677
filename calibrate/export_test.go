package calibrate

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
