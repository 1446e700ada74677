package tune

import (
	"cmp"
	"slices"
	"time"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// What a search may do.
const (
	// compiling is the share of the time that goes to compiling in a round, which measures what it has compiled.
	compiling = 0.6
	// confirming is the share of all time that is left for measuring the best against the default.
	confirming = 0.1
)

// comparison is how times are compared.
type comparison struct {
	// long is the time that a measurement takes at least, so that starting it and waiting for its end count little.
	long time.Duration
	// margin is how many times as long as the best the default must take to be replaced.
	margin float64
	// hopeless is how many times as long as the best a variant takes that is not measured again.
	hopeless float64
	// promising is how many times as long as the best the best of another kind takes at most for what is near it to be
	// tried.
	promising float64
	// duels is how often the default and the best of each kind that is not hopeless are measured in turns. Where the
	// two fastest of them are within the margin, there are more turns, up to so many times as many, as long as there is
	// time.
	duels, more int
}

var (
	chained = comparison{long: time.Millisecond, margin: 1.03, hopeless: 1.1, promising: 1.3, duels: 5, more: 3}
	// inPlace is for a product that is measured among the kernels around it. The product is often no more than a tenth
	// of the measured time, so variants differ by smaller shares of that time, and it takes longer to tell them from
	// noise. Half a percent of a token is worth having. A variant that makes the whole 5% longer is about half as slow
	// again itself, where the product is a tenth of the whole.
	inPlace = comparison{long: 2 * time.Millisecond, margin: 1.005, hopeless: 1.05, promising: 1.05, duels: 11, more: 3}
)

func (s *search) comparison() comparison {
	if s.InPlace {
		return inPlace
	}
	return chained
}

// search is a product whose variants are measured.
type search struct {
	Product
	runs     []device.Dispatch
	variants []variant // as many as Launches
	asked    []int     // in this round
	best     int
	kinds    []int // the best of each kind, at first the default of it
}

// variant is what is known of a launch.
type variant struct {
	candidate
	kind   int
	asked  bool
	failed bool          // to compile or to run
	time   time.Duration // of all runs, 0 where it was not measured
}

// tried is the number of launches that were measured.
func (s *search) tried() (n int) {
	for _, w := range s.variants {
		if w.time > 0 {
			n++
		}
	}
	return n
}

// open makes the ways of a search and tells their kinds: those that no chain of near ones leads to from the default are
// of another kind, the first of which is its default.
func (s *search) open() {
	s.variants = make([]variant, len(s.Launches))
	known := make([]bool, len(s.variants))
	for first := range s.variants {
		if known[first] {
			continue
		}
		known[first] = true
		for reached := []int{first}; len(reached) > 0; reached = reached[1:] {
			s.variants[reached[0]].kind = len(s.kinds)
			for i := range s.variants {
				if !known[i] && s.near(reached[0], i) {
					known[i] = true
					reached = append(reached, i)
				}
			}
		}
		s.kinds = append(s.kinds, first)
	}
}

// ask chooses what is tried next: the defaults of all kinds and all near that of the first one, then all near the best
// of each kind. A kind whose best is not promising is left.
func (s *search) ask() {
	s.asked = s.asked[:0]
	if s.variants[0].failed {
		return
	}
	limit := time.Duration(s.comparison().promising * float64(s.variants[s.best].time))
	for i := range s.variants {
		w := &s.variants[i]
		best := s.kinds[w.kind]
		takes := s.variants[best].time
		climbs := takes > 0 && takes <= limit || takes == 0 && w.kind == 0
		if !w.asked && (i == best || climbs && s.near(best, i)) {
			w.asked = true
			s.asked = append(s.asked, i)
		}
	}
}

// job is a launch to compile.
type job struct {
	search  *search
	variant int
}

// batch is how many launches of a product are compiled before those of the next one.
const batch = 3

// jobs are the launches that products ask for, some of each in turn, since the time may not suffice for all.
func jobs(products []*search) (out []job) {
	most := 0
	for _, s := range products {
		s.ask()
		most = max(most, len(s.asked))
	}
	for from := 0; from < most; from += batch {
		for _, s := range products {
			for _, i := range s.asked[min(from, len(s.asked)):min(from+batch, len(s.asked))] {
				out = append(out, job{s, i})
			}
		}
	}
	return out
}

// climb finds the best launches of products, of which the first are the most important ones, in a time.
func (t *Tuner) climb(products []*search, start time.Time, budget time.Duration) {
	end := start.Add(budget)
	last := end.Add(-time.Duration(confirming * float64(budget)))
	for _, s := range products {
		s.open()
	}
	for {
		todo, now := jobs(products), t.clock()
		left := last.Sub(now)
		if left <= warming || len(todo) == 0 {
			break
		}
		t.compile(todo, now.Add(time.Duration(compiling*float64(left))))
		t.warm(products)
		for _, s := range products {
			t.measureAsked(s, last)
		}
	}
	for n, s := range products {
		now := t.clock()
		t.confirm(s, now.Add(end.Sub(now)/time.Duration(len(products)-n)))
		for i := range s.variants {
			s.variants[i].close()
		}
	}
}

// measureAsked measures what a product asked for. What the time did not suffice to compile is asked for again.
func (t *Tuner) measureAsked(s *search, last time.Time) {
	for _, i := range s.asked {
		w := &s.variants[i]
		if w.asked = w.kernel != nil || w.failed; w.kernel == nil || !t.clock().Before(last) {
			continue
		}
		if i > 0 && s.variants[0].time == 0 {
			w.close() // without the default there is nothing to compare with
			continue
		}
		var err error
		if w.time, err = t.measure(s, i); err != nil {
			w.failed = true
		}
		s.place(i)
	}
}

// place tells what a launch is that was just measured: the best of its kind, of all, or neither. The default and the
// best of each kind stay open.
func (s *search) place(i int) {
	w, best := &s.variants[i], &s.kinds[s.variants[i].kind]
	worse := w.time == 0 || *best != i && s.variants[*best].time > 0 && w.time >= s.variants[*best].time
	switch {
	case worse && i > 0:
		w.close()
	case !worse && *best != i:
		if *best > 0 {
			s.variants[*best].close()
		}
		*best = i
	}
	if !worse && w.time < s.variants[s.best].time {
		s.best = i
	}
}

// rivals are the default and the best of each kind but for what is hopeless.
func (s *search) rivals() []int {
	out := []int{0}
	for _, i := range s.kinds {
		if w := &s.variants[i]; i > 0 && w.time > 0 &&
			float64(w.time) <= s.comparison().hopeless*float64(s.variants[s.best].time) {
			out = append(out, i)
		}
	}
	return out
}

// confirm measures the default and its rivals once more, in turns, since what was measured at other times may have had
// another clock. The fastest that is sound is the best if it is faster than the default by the margin; else the default
// is.
func (t *Tuner) confirm(s *search, end time.Time) {
	rivals := s.rivals()
	s.best = 0
	if len(rivals) == 1 {
		return
	}
	by, least := s.comparison(), make([]time.Duration, len(s.variants))
	for turn := 0; turn < by.duels || turn < by.more*by.duels && tied(rivals, least, by.margin); turn++ {
		if !t.clock().Before(end) {
			break
		}
		for n := 0; n < len(rivals); n++ {
			i := rivals[n]
			took, err := t.time(&s.variants[i].candidate)
			switch {
			case err == nil && (least[i] == 0 || took < least[i]):
				least[i] = took
			case err != nil && i == 0:
				return
			case err != nil:
				rivals = slices.Delete(rivals, n, n+1)
				n--
			}
		}
	}
	if least[0] == 0 {
		return
	}
	for _, i := range rivals {
		s.variants[i].time = least[i]
	}
	slices.SortStableFunc(rivals, func(i, j int) int { return cmp.Compare(least[i], least[j]) })
	for _, i := range rivals {
		if float64(least[0]) < by.margin*float64(least[i]) {
			return
		}
		if t.Sound == nil || t.Sound(s.Launches[i]) {
			s.best = i
			return
		}
	}
}

// tied reports whether the two of the rivals that take least differ by less than the margin.
func tied(rivals []int, least []time.Duration, margin float64) bool {
	first, second := time.Duration(0), time.Duration(0)
	for _, i := range rivals {
		switch {
		case first == 0 || least[i] < first:
			first, second = least[i], first
		case second == 0 || least[i] < second:
			second = least[i]
		}
	}
	return float64(second) < margin*float64(first)
}
