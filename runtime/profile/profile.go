package profile

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/etc-ml/etc/runtime/engine"
)

// Ceiling is what a machine can do; zeros are not known.
type Ceiling struct {
	// Threads is the number of threads that it was measured with.
	Threads int
	// BytesPerSecond is how fast memory can be read, OperationsPerSecond how fast matrices multiply: the
	// floating-point multiplications and additions that they stand for.
	BytesPerSecond, OperationsPerSecond float64
}

// Share returns the part of the ceiling that a step reaches: the time that it would take if it only read its bytes, or
// only multiplied, whichever is longer (the roofline of Williams, Waterman and Patterson, 2009), over its time.
// It is 0 where neither is known.
func (c Ceiling) Share(t Total) float64 {
	if t.Time <= 0 {
		return 0
	}
	least := 0.0
	if c.BytesPerSecond > 0 {
		least = float64(t.Bytes) / c.BytesPerSecond
	}
	if c.OperationsPerSecond > 0 {
		least = max(least, float64(t.Operations)/c.OperationsPerSecond)
	}
	return least / t.Time.Seconds()
}

// Total sums up steps.
type Total struct {
	// Count is the number of steps, Time how long they took.
	Count int
	Time  time.Duration
	// Bytes and Operations are sums over the steps.
	Bytes, Operations int
}

func (t *Total) add(s *engine.Step) {
	t.Count++
	t.Time += s.Time
	t.Bytes += s.Bytes
	t.Operations += s.Operations
}

// Phase sums up the calls of one kind: calls of single tokens, or of chunks.
type Phase struct {
	// Calls sums up the calls, Tokens the tokens of them.
	Calls  Total
	Tokens int
	// Kinds and Layers sum up the steps.
	Kinds  map[string]*Total
	Layers map[int]*Total
}

// Profile sums up steps. It is safe for concurrent use.
type Profile struct {
	mu sync.Mutex
	// Token is of the calls of single tokens, Chunk of all others.
	Token, Chunk Phase
}

// Observe adds a step.
func (p *Profile) Observe(s *engine.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := &p.Chunk
	if s.Tokens == 1 {
		x = &p.Token
	}
	if s.Kind == engine.Call {
		x.Calls.add(s)
		x.Tokens += s.Tokens
		return
	}
	addTo(&x.Kinds, s.Kind, s)
	addTo(&x.Layers, s.Layer, s)
}

func addTo[K comparable](totals *map[K]*Total, key K, s *engine.Step) {
	if *totals == nil {
		*totals = map[K]*Total{}
	}
	t := (*totals)[key]
	if t == nil {
		t = &Total{}
		(*totals)[key] = t
	}
	t.add(s)
}

// WriteText writes tables: for chunks and for single tokens the kinds of steps, those that took longest
// first, and the layers.
func (p *Profile) WriteText(w io.Writer, c Ceiling) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if c.BytesPerSecond > 0 || c.OperationsPerSecond > 0 {
		fmt.Fprintf(t, "ceiling of %d threads: %.1f GB/s read, %.0f GFLOP/s in products\n", c.Threads,
			c.BytesPerSecond/1e9, c.OperationsPerSecond/1e9)
	}
	for _, x := range []struct {
		name string
		*Phase
	}{{"chunks", &p.Chunk}, {"single tokens", &p.Token}} {
		if x.Calls.Count == 0 {
			continue
		}
		fmt.Fprintf(t, "\n%s: %d calls, %d tokens, %s\n", x.name, x.Calls.Count, x.Tokens,
			x.Calls.Time.Round(time.Microsecond))
		fmt.Fprint(t, "kind\tsteps\tms\tpart\tMB\tGB/s\tGFLOP\tGFLOP/s\tof ceiling\t\n")
		for _, r := range sorted(x.Kinds, func(a, b *Total) int { return cmp.Compare(b.Time, a.Time) }) {
			x.row(t, c, r.key, r.total)
		}
		fmt.Fprint(t, "layer\tsteps\tms\tpart\tMB\tGB/s\tGFLOP\tGFLOP/s\tof ceiling\t\n")
		rest := Total{Time: x.Calls.Time}
		for _, total := range x.Layers {
			rest.Time -= total.Time
		}
		for _, r := range sorted(x.Layers, nil) {
			name := "none"
			if r.key != engine.NoLayer {
				name = strconv.Itoa(r.key)
			}
			x.row(t, c, name, r.total)
		}
		fmt.Fprintf(t, "between steps\t\t%.3f\t%.1f %%\t\t\t\t\t\t\n", milliseconds(rest.Time), 100*x.part(&rest))
	}
	return t.Flush()
}

// entry is a line of a table.
type entry[K any] struct {
	key   K
	total *Total
}

// sorted lists totals in an order, or by key.
func sorted[K cmp.Ordered](totals map[K]*Total, order func(a, b *Total) int) []entry[K] {
	var out []entry[K]
	for k, t := range totals {
		out = append(out, entry[K]{k, t})
	}
	slices.SortFunc(out, func(a, b entry[K]) int {
		if order != nil {
			if c := order(a.total, b.total); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.key, b.key)
	})
	return out
}

// row writes a line of a table, without figures that are not known.
func (x *Phase) row(w io.Writer, c Ceiling, name string, t *Total) {
	fmt.Fprintf(w, "%s\t%d\t%.3f\t%.1f %%\t", name, t.Count, milliseconds(t.Time), 100*x.part(t))
	seconds := max(t.Time.Seconds(), 1e-9)
	for _, v := range []struct {
		n     int
		scale float64
	}{{t.Bytes, 1e6}, {t.Operations, 1e9}} {
		if v.n == 0 {
			fmt.Fprint(w, "\t\t")
			continue
		}
		fmt.Fprintf(w, "%.1f\t%.1f\t", float64(v.n)/v.scale, float64(v.n)/1e9/seconds)
	}
	if share := c.Share(*t); share > 0 {
		fmt.Fprintf(w, "%.0f %%", 100*share)
	}
	fmt.Fprint(w, "\t\n")
}

func (x *Phase) part(t *Total) float64 {
	return t.Time.Seconds() / max(x.Calls.Time.Seconds(), 1e-9)
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
