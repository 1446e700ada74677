package tune

import (
	"cmp"
	"slices"
	"time"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Shares of the tuner's time.
const (
	// compiling is the share of a round's time that goes to compiling. The rest goes to measuring what was compiled.
	compiling = 0.6
	// confirming is the share of the whole time that is kept for measuring the best variants against the default.
	confirming = 0.1
)

// comparison has the thresholds for comparing times.
type comparison struct {
	// long is the minimum duration of a measurement, so that its start and end count little.
	long time.Duration
	// margin is how many times as long as the best variant the default must take to be replaced.
	margin float64
	// hopeless is how many times as long as the best a variant takes that is not measured again.
	hopeless float64
	// promising bounds how many times as long as the overall best the best of another kind may take for the search to
	// go on in that kind.
	promising float64
	// duels is how often the default and the best of each kind are measured in turns at the end. If the two fastest are
	// within the margin, up to more times as many turns follow, as long as there is time.
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

// search is a product that is being tuned.
type search struct {
	Product
	runs     []device.Dispatch
	variants []variant // one for each of Launches
	asked    []int     // in this round
	best     int
	kinds    []int // the best variant of each kind; at first its default
	from     int   // the choice of an earlier search that this one goes on from; 0: none
	stored   entry // of that search
	cut      bool  // there was more to try when the time was over
}

// variant is what is known of one launch.
type variant struct {
	candidate
	kind   int
	asked  bool
	failed bool          // it does not compile or run
	time   time.Duration // of the whole sequence; 0 if it was not measured
}

// tried returns the number of launches that were measured.
func (s *search) tried() (n int) {
	for _, w := range s.variants {
		if w.time > 0 {
			n++
		}
	}
	return n
}

// open makes the variants of a search and finds their kinds. Two variants are of one kind if a chain of near variants
// connects them. The first of each kind is its default.
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

// ask chooses what to try next: first the defaults of all kinds and everything near the first default, or the choice of
// an earlier search; then everything near the best of each kind. Kinds whose best is not promising are left out.
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
		climbs := takes > 0 && takes <= limit || takes == 0 && w.kind == 0 && s.from == 0
		if !w.asked && (i == best || i == s.from || climbs && s.near(best, i)) {
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

// batch is how many launches of one product are compiled before the next product's turn.
const batch = 3

// jobs returns the launches that products ask for, alternating between products, since the time may not suffice for
// all.
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

// climb searches the best launches of products within a time budget. The first products matter most.
func (t *Tuner) climb(products []*search, start time.Time, budget time.Duration) {
	end := start.Add(budget)
	last := end.Add(-time.Duration(confirming * float64(budget)))
	for _, s := range products {
		s.open()
	}
	for {
		todo, now := jobs(products), t.clock()
		left := last.Sub(now)
		if left <= warming || len(todo) == 0 || t.Stops() {
			break
		}
		t.compile(todo, now.Add(time.Duration(compiling*float64(left))))
		t.warm(products)
		for _, s := range products {
			t.measureAsked(s, last)
		}
	}
	for _, s := range products {
		s.cut = slices.ContainsFunc(s.asked, func(i int) bool { return s.variants[i].time == 0 && !s.variants[i].failed })
	}
	for n, s := range products {
		now := t.clock()
		t.confirm(s, now.Add(end.Sub(now)/time.Duration(len(products)-n)))
		for i := range s.variants {
			s.variants[i].close()
		}
	}
}

// measureAsked measures what a product asked for. Launches that were not compiled in time are asked for again.
func (t *Tuner) measureAsked(s *search, last time.Time) {
	for _, i := range s.asked {
		w := &s.variants[i]
		if w.asked = w.kernel != nil || w.failed; w.kernel == nil || !t.before(last) {
			continue
		}
		if i > 0 && s.variants[0].time == 0 {
			w.close() // without a time of the default there is nothing to compare with
			continue
		}
		var err error
		if w.time, err = t.measure(s, i); err != nil {
			w.failed = true
		}
		s.place(i)
	}
}

// place compares a launch that was just measured with the best of its kind and the best of all. The default and the
// best of each kind stay compiled; others are closed.
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

// rivals returns the default and the best of each kind, except for hopeless ones.
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

// confirm measures the default and its rivals again, in turns: times from different moments may be at different clock
// rates. The fastest rival that passes its self-test wins if it beats the default by the margin; else the default does.
// Without time for that the choice of the earlier search stands, and this one was cut short.
func (t *Tuner) confirm(s *search, end time.Time) {
	rivals := s.rivals()
	s.best = 0
	if len(rivals) == 1 {
		return
	}
	by, least := s.comparison(), make([]time.Duration, len(s.variants))
	for turn := 0; turn < by.duels || turn < by.more*by.duels && tied(rivals, least, by.margin); turn++ {
		if !t.before(end) {
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
		s.best, s.cut = s.from, true
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

// tied reports whether the two fastest rivals differ by less than the margin.
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
