package tune

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// DefaultBudget is the time that measuring takes at most, including compiling. Work that has started when the time is
// over is finished.
const DefaultBudget = 15 * time.Second

// DefaultLeast is the size in bytes from which on products are measured. Smaller ones take about a microsecond or less.
const DefaultLeast = 1 << 20

// mostCut is the number of consecutive searches that the time may cut short. After them their choice stands.
const mostCut = 3

// Options say where choices are stored and how long measuring may take.
type Options struct {
	// Dir is the folder in which choices are stored. "" stands for the folder in the user's cache that also holds
	// compiled kernels.
	Dir string
	// Budget is the time for all calls of Choose; 0 stands for DefaultBudget.
	Budget time.Duration
	// Least is the number of bytes of weights that a pass of the model must read for a product, for it to be measured;
	// 0 stands for DefaultLeast.
	Least int
	// Clock returns the time; nil stands for the system's clock.
	Clock func() time.Time
}

// Tuner chooses launches for a device. Its methods must not be called at the same time, nor while something else uses
// the device.
type Tuner struct {
	// Sound reports whether a kernel gives the right results on the device. It is called before a launch is chosen. Nil
	// takes every kernel as right.
	Sound func(kernels.Launch) bool
	// Stopped reports whether Choose is to end before its time is over; nil never does. What it measured until then is
	// not stored.
	Stopped func() bool

	device device.Device
	about  string
	store  store
	least  int
	budget time.Duration
	left   time.Duration // of it
	clock  func() time.Time
	note   func(string)
	// complained says that the user was told of damaged files.
	complained bool
	// resumed has the keys of the products whose searches this tuner has begun or gone on with.
	resumed map[string]bool
}

// New returns the tuner of a device. It calls note with messages for the user: products were measured, files cannot be
// read or written.
func New(d device.Device, o Options, note func(string)) *Tuner {
	t := &Tuner{device: d, resumed: map[string]bool{}, about: d.Info().Description,
		store: newStore(o.Dir, d.Info(), system()),
		least: cmp.Or(o.Least, DefaultLeast), budget: cmp.Or(o.Budget, DefaultBudget), clock: o.Clock, note: note}
	t.left = t.budget
	if t.clock == nil {
		t.clock = time.Now
	}
	return t
}

// About returns a description of the device.
func (t *Tuner) About() string { return t.about }

// Dir returns the folder where choices are stored, or "".
func (t *Tuner) Dir() string { return t.store.dir }

// Worth reports whether a product that reads this number of bytes of weights is large enough to be measured.
func (t *Tuner) Worth(bytes int) bool { return bytes >= t.least }

// Kept returns the stored choice for a product. resumes says that Choose goes on with the search that gave it: the time
// had cut that short at an earlier start.
func (t *Tuner) Kept(w Variants) (l kernels.Launch, resumes, ok bool) {
	at, e, ok := t.stored(w)
	if !ok {
		return kernels.Launch{}, false, false
	}
	return w.Launches[at], t.resumes(w, e), true
}

// resumes reports whether Choose goes on with the search of a stored entry.
func (t *Tuner) resumes(w Variants, e entry) bool {
	return e.cut > 0 && e.cut < mostCut && !t.resumed[w.key()]
}

// stored returns the stored entry of a product, and the number of the launch that it chooses.
func (t *Tuner) stored(w Variants) (at int, e entry, ok bool) {
	e, err := t.store.read(t.store.path(w), w.key())
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !t.complained {
			t.complained = true
			t.note(fmt.Sprintf("tuning: %v; this is measured anew", err))
		}
		return 0, entry{}, false
	}
	at, ok = w.find(e.choice)
	return at, e, ok
}

// Changed describes the stored choice for a product if it is not the default: the definitions that differ, those of the
// default, and the measured times. It returns "" for the default, and where nothing is stored.
func (t *Tuner) Changed(w Variants) string {
	e, err := t.store.read(t.store.path(w), w.key())
	i, found := w.find(e.choice)
	if err != nil || !found || i == 0 {
		return ""
	}
	first, choice := w.Launches[0], w.Launches[i]
	values := func(l kernels.Launch) map[string]string {
		out := map[string]string{}
		for _, d := range l.Defines {
			out[d.Name] = d.Value
		}
		return out
	}
	then, now := values(first), values(choice)
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if was, ok := then[name]; !ok || was != now[name] {
			changes = append(changes, fmt.Sprintf("%s=%s (%s)", name, now[name], cmp.Or(was, "none")))
		}
	}
	text := first.Kernel
	if choice.Kernel != first.Kernel {
		text = choice.Kernel + " (" + first.Kernel + ")"
	}
	if len(w.Positions) > 0 {
		text += fmt.Sprintf(" at %v", slices.Compact(slices.Clone(w.Positions)))
	}
	return fmt.Sprintf("%s: %s; %v (%v)", text, strings.Join(changes, " "), e.time, e.firstTime)
}

// Choose returns a launch for each product: the stored choice, or else the result of measuring, which it stores.
// A search that the time had cut short goes on from its choice, behind all products that have none. reserve is the
// share of the budget that is left for later calls. After a stop it returns the first launch of what has no stored
// choice.
func (t *Tuner) Choose(products []Product, reserve float64) []kernels.Launch {
	out := make([]kernels.Launch, len(products))
	searches := make([]*search, len(products)) // nil where there is nothing to measure
	var open, again []*search
	for i, p := range products {
		at, e, ok := t.stored(p.Variants)
		if out[i] = p.Launches[at]; ok && !t.resumes(p.Variants, e) || len(p.Launches) < 2 {
			continue
		}
		runs := p.Runs()
		if len(runs) == 0 {
			continue
		}
		searches[i], t.resumed[p.key()] = &search{Product: p, runs: runs}, true
		if ok {
			searches[i].from, searches[i].stored = at, e
			again = append(again, searches[i])
		} else {
			open = append(open, searches[i])
		}
	}
	if len(open)+len(again) == 0 || t.device.Wait() != nil { // the next use of the device returns the error
		return out
	}
	start, end := t.clock(), t.clock().Add(t.left-time.Duration(reserve*float64(t.budget)))
	for _, list := range [][]*search{open, again} {
		slices.SortStableFunc(list, func(a, b *search) int { return cmp.Compare(b.Bytes, a.Bytes) })
		now := t.clock()
		t.climb(list, now, end.Sub(now))
	}
	took := t.clock().Sub(start)
	if t.left -= took; t.Stops() {
		return out
	}
	var failed error
	measured, missed, changed := 0, 0, 0
	for i, s := range searches {
		if s == nil {
			continue
		}
		at, err := t.keep(s)
		if err != nil {
			failed = err
		}
		out[i] = s.Launches[at]
		if s.tried() > 1 {
			measured++
		} else if s.stored.cut == 0 {
			missed++
		}
		if at > 0 {
			changed++
		}
	}
	if measured == 0 {
		return out
	}
	text := fmt.Sprintf("tuned %d products for %s in %.1f s: %d differ from the default; ", measured, t.about,
		took.Seconds(), changed)
	if missed > 0 {
		text += fmt.Sprintf("%d were not measured, which the next start does; ", missed)
	}
	if failed == nil {
		text += "kept in " + t.store.dir
	} else {
		text += fmt.Sprintf("not kept, so that every start measures again: %v", failed)
	}
	t.note(text)
	return out
}

// Stops reports whether measuring is to end at once, by Stopped.
func (t *Tuner) Stops() bool { return t.Stopped != nil && t.Stopped() }

// before reports whether there is time until end.
func (t *Tuner) before(end time.Time) bool { return !t.Stops() && t.clock().Before(end) }

// keep stores the result of a search and returns the choice. If another process stored one first, it returns that.
func (t *Tuner) keep(s *search) (int, error) {
	path, valid := t.store.path(s.Variants), func(e entry) bool { _, ok := s.find(e.choice); return ok }
	first, from := &s.variants[0], &s.variants[s.from]
	if first.failed || first.time == 0 || from.time == 0 && !from.failed {
		var err error // nothing was measured, or not to the end: the next start continues
		if e := s.stored; e.cut > 0 {
			e.cut++
			_, err = t.store.write(path, s.stored, e, valid)
		}
		return s.from, err
	}
	each := time.Duration(1)
	if !s.InPlace {
		each = time.Duration(len(s.runs))
	}
	e := entry{
		device: t.store.device, first: s.key(), choice: s.Launches[s.best].Key(), tried: s.tried(),
		firstTime: first.time / each, time: s.variants[s.best].time / each,
	}
	if s.cut {
		e.cut = s.stored.cut + 1
	}
	e, err := t.store.write(path, s.stored, e, valid)
	at, _ := s.find(e.choice)
	return at, err
}
