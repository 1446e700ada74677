package tune

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// fake is a device with a clock of its own, on which only compiling and dispatches take time.
type fake struct {
	device.Device
	info device.Info
	// cost is the time of a dispatch of a kernel with these definitions.
	cost func(ints map[string]int) time.Duration
	// compiling is the time of a compilation.
	compiling time.Duration
	// refuse is how kernels fail, by the stage: compile, kernel, record, submit, wait.
	refuse func(stage string, ints map[string]int) bool
	// submitted is called with every Submit.
	submitted func()

	mu         sync.Mutex
	now        time.Time
	queue      time.Duration
	failure    error
	compiled   int
	dispatches int
	open       int // libraries, kernels and sequences that are not closed
}

var errFake = errors.New("the device refuses")

func newFake(cost func(map[string]int) time.Duration) *fake {
	return &fake{cost: cost, info: device.Info{Description: "Test GPU, driver 1",
		Machine: kernels.Machine{Target: kernels.CUDA, Cores: 8}},
		refuse: func(string, map[string]int) bool { return false }, submitted: func() {}}
}

func (d *fake) Info() device.Info { return d.info }

func (d *fake) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *fake) Wait() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.queue = d.now.Add(d.queue), 0
	return d.failure
}

func (d *fake) Recover() error {
	_ = d.Wait()
	d.failure = nil
	return nil
}

var defined = regexp.MustCompile(`(?m)^#define MATVEC_(\w+) (\d+)$`)

type thing struct {
	d    *fake
	ints map[string]int
	list []device.Dispatch
}

func (d *fake) Compile(s device.Source) (device.Library, error) {
	ints := map[string]int{}
	for _, m := range defined.FindAllStringSubmatch(s.Text, -1) {
		if _, ok := ints[m[1]]; !ok { // later ones are those of the kernel's text, for what is not defined
			ints[m[1]], _ = strconv.Atoi(m[2])
		}
	}
	if d.refuse("compile", ints) {
		return nil, errFake
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.compiled++
	d.open++
	d.now = d.now.Add(d.compiling)
	return fakeLibrary{&thing{d: d, ints: ints}}, nil
}

type fakeLibrary struct{ *thing }

func (l fakeLibrary) Kernel(string) (device.Kernel, error) {
	if l.d.refuse("kernel", l.ints) {
		return nil, errFake
	}
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.d.open++
	return fakeKernel(l), nil
}

type fakeKernel struct{ *thing }

func (fakeKernel) Name() string    { return "fake" }
func (fakeKernel) MaxThreads() int { return 1024 }

func (d *fake) Record(list []device.Dispatch) (device.Sequence, error) {
	for _, x := range list {
		if x.Label != "tuning" {
			continue
		}
		k := x.Kernel.(fakeKernel)
		if d.refuse("record", k.ints) {
			return nil, errFake
		}
		d.open++
		return fakeSequence{&thing{d, k.ints, list}}, nil
	}
	return nil, errors.New("nothing is measured")
}

type fakeSequence struct{ *thing }

func (s fakeSequence) Submit() error {
	s.d.submitted()
	if s.d.failure != nil {
		return s.d.failure
	}
	if s.d.refuse("submit", s.ints) {
		return errFake
	}
	if s.d.refuse("wait", s.ints) {
		s.d.failure = errFake
	}
	for _, x := range s.list {
		s.d.queue += s.d.cost(x.Kernel.(fakeKernel).ints)
	}
	s.d.dispatches += len(s.list)
	return nil
}

func (t *thing) Close() error {
	t.d.open--
	return nil
}

// matvec is the product of a vector with a weight of rows of 8192 columns.
func matvec(rows int) Product {
	v := kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 4, Group: 64}, K: 8192, M: 1}, N: rows}
	p := Product{Bytes: rows * 8192 / 2, Runs: func() []device.Dispatch { return make([]device.Dispatch, 20) }}
	tunings := v.Tunings(kernels.Machine{Target: kernels.CUDA})
	for _, t := range tunings {
		l, err := v.Launch(t)
		if err != nil {
			panic(err)
		}
		p.Launches = append(p.Launches, l)
	}
	p.Near = func(i, j int) bool { return tunings[i].Near(tunings[j]) }
	return p
}

// number is a definition of a launch.
func number(l kernels.Launch, name string) int {
	for _, d := range l.Defines {
		if d.Name == "MATVEC_"+name {
			n, _ := strconv.Atoi(d.Value)
			return n
		}
	}
	return -1
}

// slope costs less the fewer rows a lane has and the more simdgroups there are.
func slope(ints map[string]int) time.Duration {
	return time.Duration(10000*ints["ROWS"] + 100000/(ints["SETS"]*ints["SPLIT"]))
}

// keys tell launches apart.
func keys(launches ...kernels.Launch) (out []string) {
	for _, l := range launches {
		out = append(out, l.Key())
	}
	return out
}

func flat(map[string]int) time.Duration { return 10 * time.Microsecond }

// tuner makes a tuner whose notes go to a list.
func tuner(d *fake, dir string, notes *[]string) *Tuner {
	return New(d, Options{Dir: dir, Clock: d.clock}, func(s string) { *notes = append(*notes, s) })
}

// TestChoose: the best is found over several steps, told of, kept, and taken from then on without any measuring.
func TestChoose(t *testing.T) {
	d, dir := newFake(slope), t.TempDir()
	var notes []string
	products := []Product{matvec(1024), matvec(2048)}
	got := tuner(d, dir, &notes).Choose(products, 0)
	for i, l := range got {
		require.Equal(t, 1, number(l, "ROWS"))
		require.Equal(t, 16, number(l, "SETS")*number(l, "SPLIT"))
		require.NotEqual(t, products[i].Launches[0].Key(), l.Key())
	}
	require.Len(t, notes, 1)
	require.Regexp(t, `^tuned 2 products for Test GPU, driver 1 in \d\.\d s: 2 differ from the default; kept in `,
		notes[0])
	require.Less(t, d.compiled, 2*len(products[0].Launches), "not everything is tried")
	require.Zero(t, d.open, "everything is closed")

	again, silent := newFake(slope), []string(nil)
	next := tuner(again, dir, &silent)
	require.Equal(t, keys(got...), keys(next.Choose(products, 0)...))
	require.Zero(t, again.compiled+again.dispatches)
	require.Empty(t, silent)
	kept, _, ok := next.Kept(products[1].Variants)
	require.True(t, ok)
	require.Equal(t, keys(got[1]), keys(kept))
	_, _, ok = next.Kept(matvec(3072).Variants)
	require.False(t, ok)
	require.Regexp(t, `^matvec: .*MATVEC_ROWS=1 \(\d\).*; [\d.]+µs \([\d.]+µs\)$`, next.Changed(products[1].Variants))
	require.NotContains(t, next.Changed(products[1].Variants), "MATVEC_K=", "what is equal is not told")
	require.Empty(t, next.Changed(matvec(3072).Variants))
	same := tuner(newFake(flat), t.TempDir(), &notes)
	same.Choose(products, 0)
	_, _, ok = same.Kept(products[0].Variants)
	require.True(t, ok)
	require.Empty(t, same.Changed(products[0].Variants), "the default")
}

// among makes a product one that is measured in its place: two of its dispatches, each after one of another kernel.
func among(p Product, d *fake) Product {
	k := fakeKernel{&thing{d: d, ints: map[string]int{"ELSE": 1}}}
	p.InPlace = true
	p.Runs = func() []device.Dispatch {
		return []device.Dispatch{{Label: "before", Kernel: k, Groups: [3]int{7, 1, 1}}, {},
			{Label: "between", Kernel: k, Barrier: true}, {Barrier: true}}
	}
	return p
}

// TestMargin: what is a little faster, or faster by chance, does not take the default's place. In place, a little of
// the whole is much of the product.
func TestMargin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	first := number(matvec(1024).Launches[0], "ROWS")
	faster := func(percent float64) func(map[string]int) time.Duration {
		return func(ints map[string]int) time.Duration {
			if ints["ROWS"] == first || ints["ELSE"] == 1 {
				return 100 * time.Microsecond
			}
			return time.Duration((100 - percent) * float64(time.Microsecond))
		}
	}
	noise := func(percent int) func(map[string]int) time.Duration {
		return func(map[string]int) time.Duration { return 100*time.Microsecond + time.Duration(r.IntN(percent*1000)) }
	}
	for _, c := range []struct {
		name string
		cost func(map[string]int) time.Duration
		// whether the default stays, in a chain and in place, where half of the time is the product's
		same, inPlace bool
	}{
		{"all equal", flat, true, true},
		{"0.8 % faster", faster(0.8), true, true},
		{"2 % faster", faster(2), true, false},
		{"4 % faster", faster(4), false, false},
		{"slower", faster(-50), true, true},
		{"noise of 4 %", noise(4), true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, d, notes := matvec(1024), newFake(c.cost), []string(nil)
			got := tuner(d, t.TempDir(), &notes).Choose([]Product{p}, 0)
			require.Equal(t, c.same, got[0].Key() == p.Launches[0].Key(), got[0].Key())
			got = tuner(d, t.TempDir(), &notes).Choose([]Product{among(p, d)}, 0)
			require.Equal(t, c.inPlace, got[0].Key() == p.Launches[0].Key(), got[0].Key())
		})
	}
}

// TestInPlace: what stands around a product is recorded as it is, with each variant in the product's places; the best
// is that of the whole, and is kept apart from that of a chain.
func TestInPlace(t *testing.T) {
	d, dir, notes := newFake(slope), t.TempDir(), []string(nil)
	cost := d.cost
	d.cost = func(ints map[string]int) time.Duration {
		if ints["ELSE"] == 1 {
			return 3 * time.Microsecond
		}
		return cost(ints)
	}
	chain := matvec(1024)
	alone := tuner(d, dir, &notes).Choose([]Product{chain}, 0)
	require.NotEqual(t, keys(chain.Launches[0]), keys(alone...))

	// A file of a chain is no choice in place, and no reason to complain.
	notes = nil
	p := among(chain, d)
	d.cost = func(ints map[string]int) time.Duration {
		if ints["ELSE"] == 1 {
			return 3 * time.Microsecond
		}
		return time.Duration(1000 * (ints["SETS"]*ints["SPLIT"] + ints["ROWS"]))
	}
	variants := map[string]bool{}
	recorded := recorder{d, func(list []device.Dispatch) {
		require.Len(t, list, 4)
		for i, label := range []string{"before", "tuning", "between", "tuning"} {
			require.Equal(t, label, list[i].Label)
			require.Equal(t, i >= 2, list[i].Barrier)
		}
		require.Equal(t, [3]int{7, 1, 1}, list[0].Groups)
		require.Same(t, list[1].Kernel.(fakeKernel).thing, list[3].Kernel.(fakeKernel).thing)
		require.Equal(t, list[1].Groups, list[3].Groups)
		variants[fmt.Sprint(list[1].Kernel.(fakeKernel).ints)] = true
	}}
	x := New(recorded, Options{Dir: dir, Clock: d.clock}, func(s string) { notes = append(notes, s) })
	got := x.Choose([]Product{p}, 0)
	require.NotEqual(t, keys(alone...), keys(got...))
	require.Equal(t, 5, number(got[0], "SETS")*number(got[0], "SPLIT")+number(got[0], "ROWS"))
	require.Greater(t, len(variants), 3)
	require.Len(t, notes, 1)
	require.Zero(t, d.open)
	for _, c := range []struct {
		variants Variants
		want     []kernels.Launch
	}{{chain.Variants, alone}, {p.Variants, got}} {
		kept, _, ok := x.Kept(c.variants)
		require.True(t, ok)
		require.Equal(t, keys(c.want...), keys(kept))
	}
}

// TestKinds: variants that no chain of near ones joins with the default are climbed from a default of their own, where
// that is not far behind.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name    string
		inPlace bool
		second  float64 // time of the second kind's default, the first one's being 1
		climbs  bool
	}{
		{"as fast", false, 1, true},
		{"a little slower", false, 1.2, true},
		{"far behind", false, 1.5, false},
		{"in place, a little slower", true, 1.05, true}, // half of the time is the product's
		{"in place, far behind", true, 1.2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, notes := matvec(1024), []string(nil)
			near := p.Near
			p.Near = func(i, j int) bool { return i > 0 && j > 0 && near(i, j) }
			same := func(l kernels.Launch, ints map[string]int) bool {
				for _, name := range []string{"ROWS", "SETS", "SPLIT", "LANES", "BYTES", "CHUNK", "PERMUTE"} {
					if number(l, name) != ints[name] {
						return false
					}
				}
				return true
			}
			best := 1
			for i := range p.Launches {
				if i > 1 && p.Near(1, i) {
					best = i
				}
			}
			d := newFake(func(ints map[string]int) time.Duration {
				switch {
				case ints["ELSE"] == 1, same(p.Launches[0], ints):
					return 100 * time.Microsecond
				case same(p.Launches[best], ints):
					return 50 * time.Microsecond
				}
				return time.Duration(c.second * float64(100*time.Microsecond))
			})
			if c.inPlace {
				p = among(p, d)
			}
			want := p.Launches[0]
			if c.climbs {
				want = p.Launches[best]
			}
			require.Greater(t, best, 1)
			require.Equal(t, keys(want), keys(tuner(d, t.TempDir(), &notes).Choose([]Product{p}, 0)...))
			s := search{Product: p}
			s.open()
			require.Equal(t, []int{0, 1}, s.kinds[:2])
			require.GreaterOrEqual(t, d.compiled, len(s.kinds), "the defaults of all kinds are tried in any case")
			require.Equal(t, c.climbs, d.compiled > len(s.kinds))
			require.Zero(t, d.open)
		})
	}
}

// TestRivals: the best of each kind that is not hopeless meets the others and the default in turns at the end, in more
// turns where the fastest are within the margin, so that a measurement that went wrong does not choose the kind.
func TestRivals(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		name string
		// at is the time of the first rival, one of two, at its measurement number n: five of the search, then turns.
		// The other one takes 85 µs, the default 100.
		at      func(n int) time.Duration
		unsound []int // of the rivals
		want    int   // 0 for the default
	}{
		{"measured once too slow", func(n int) time.Duration {
			if n <= 5 {
				return 90 * us
			}
			return 80 * us
		}, nil, 1},
		{"slower", func(int) time.Duration { return 90 * us }, nil, 2},
		{"measured once too fast", func(n int) time.Duration {
			if n <= 5 {
				return 80 * us
			}
			return 88 * us
		}, nil, 2},
		{"faster in turns that are more, for both were close", func(n int) time.Duration {
			if n <= 5+chained.duels+1 {
				return 86 * us
			}
			return 80 * us
		}, nil, 1},
		{"faster in turns that are not, for one was slower", func(n int) time.Duration {
			if n <= 5+chained.duels {
				return 90 * us
			}
			return 80 * us
		}, nil, 2},
		{"hopeless when it was searched", func(n int) time.Duration {
			if n <= 5 {
				return 95 * us
			}
			return 80 * us
		}, nil, 2},
		{"the fastest is unsound", func(int) time.Duration { return 80 * us }, []int{1}, 2},
		{"both are unsound", func(int) time.Duration { return 80 * us }, []int{1, 2}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, notes := matvec(1024), []string(nil)
			p.Launches, p.Near = p.Launches[:3], func(i, j int) bool { return i == j }
			dispatches, each := 0, len(p.Runs())
			d := newFake(func(ints map[string]int) time.Duration {
				same := func(l kernels.Launch) bool {
					return !slices.ContainsFunc([]string{"ROWS", "SETS", "SPLIT", "LANES", "BYTES", "CHUNK", "PERMUTE"},
						func(name string) bool { return number(l, name) != ints[name] })
				}
				switch {
				case same(p.Launches[0]):
					return 100 * us
				case same(p.Launches[2]):
					return 85 * us
				}
				dispatches++
				return c.at((dispatches + each - 1) / each)
			})
			x := tuner(d, t.TempDir(), &notes)
			x.Sound = func(l kernels.Launch) bool {
				return !slices.ContainsFunc(c.unsound, func(i int) bool { return l.Key() == p.Launches[i].Key() })
			}
			require.Equal(t, keys(p.Launches[c.want]), keys(x.Choose([]Product{p}, 0)...))
			require.Zero(t, d.open)
		})
	}
}

// TestBudget: the time goes to what reads most, is kept to but for what is under way, and what is left out is measured
// by the next start.
func TestBudget(t *testing.T) {
	d, dir := newFake(slope), t.TempDir()
	d.compiling = 50 * time.Millisecond
	var notes []string
	var products []Product
	for i := range 60 {
		products = append(products, matvec(512+64*i))
	}
	start := d.clock()
	x := tuner(d, dir, &notes)
	got := x.Choose(products, 0)
	const rest = 500 * time.Millisecond // compilations under way, one for each processor, and a measurement
	require.Less(t, d.clock().Sub(start), DefaultBudget+rest)
	require.NotEqual(t, products[59].Launches[0].Key(), got[59].Key(), "the largest product is tuned")
	require.Equal(t, products[0].Launches[0].Key(), got[0].Key(), "the time was over")
	require.Regexp(t, `; \d+ were not measured, which the next start does; `, notes[0])
	require.Zero(t, d.open)

	// The same tuner has no time left. The next one goes on, and leaves what was chosen; the last has nothing to do.
	x.Choose([]Product{matvec(8192), matvec(8256)}, 0)
	require.Less(t, d.clock().Sub(start), DefaultBudget+2*rest)
	next := newFake(slope)
	then := tuner(next, dir, &notes).Choose(products, 0)
	require.NotZero(t, next.compiled)
	require.Equal(t, got[59].Key(), then[59].Key())
	again := newFake(slope)
	require.Equal(t, keys(then...), keys(tuner(again, dir, &notes).Choose(products, 0)...))
	require.Zero(t, again.compiled)
}

// TestResumed: a search that the time has cut short goes on at the next starts from its choice, until all is tried or
// it was cut short three times. A start that has no time to confirm anything else leaves the choice as it is.
func TestResumed(t *testing.T) {
	alone := newFake(slope)
	best := tuner(alone, t.TempDir(), new([]string)).Choose([]Product{matvec(1024)}, 0)
	all := 0
	for _, budget := range []time.Duration{DefaultBudget, 1500 * time.Millisecond, 700 * time.Millisecond,
		480 * time.Millisecond, 400 * time.Millisecond, 360 * time.Millisecond, 300 * time.Millisecond,
		240 * time.Millisecond} {
		t.Run(budget.String(), func(t *testing.T) {
			dir, product, resumed, took := t.TempDir(), matvec(1024), 0, time.Hour
			var last entry
			for range 12 {
				d := newFake(slope)
				d.compiling = 50 * time.Millisecond
				x := New(d, Options{Dir: dir, Clock: d.clock, Budget: budget}, func(string) {})
				_, resumes, kept := x.Kept(product.Variants)
				l := x.Choose([]Product{product}, 0)[0]
				require.Equal(t, !kept || resumes, d.compiled > 0)
				before := took
				took = slope(map[string]int{"ROWS": number(l, "ROWS"), "SETS": number(l, "SETS"), "SPLIT": number(l, "SPLIT")})
				require.LessOrEqual(t, took, before, "no start forgets what an earlier one has found")
				_, again, _ := x.Kept(product.Variants)
				require.False(t, again, "once a start")
				if resumes {
					resumed++
				}
				_, last, _ = x.stored(product.Variants)
			}
			require.LessOrEqual(t, resumed, mostCut-1)
			if last.choice != "" && last.cut == 0 {
				require.Equal(t, best[0].Key(), last.choice)
			}
			if budget == DefaultBudget {
				require.Zero(t, resumed)
				require.Zero(t, last.cut)
			}
			all += resumed
		})
	}
	require.Positive(t, all, "some were cut short")
}

// TestStopped: a stop ends measuring with the launch that runs, wherever it comes. Nothing is chosen or kept then, and
// another call measures all of it.
func TestStopped(t *testing.T) {
	var notes []string
	products := []Product{matvec(1024), matvec(2048)}
	whole, most := newFake(slope), 0
	whole.submitted = func() { most++ }
	want := tuner(whole, t.TempDir(), &notes).Choose(products, 0)
	for _, after := range []int{0, 1, most / 2, most} {
		d, submits := newFake(slope), 0
		d.submitted = func() { submits++ }
		notes = nil
		x := tuner(d, t.TempDir(), &notes)
		x.Stopped = func() bool { return submits >= after }
		require.Equal(t, keys(products[0].Launches[0], products[1].Launches[0]), keys(x.Choose(products, 0)...))
		require.Less(t, submits, after+100, "one launch at most goes on")
		require.Zero(t, d.open)
		require.Empty(t, notes)
		_, _, kept := x.Kept(products[0].Variants)
		require.False(t, kept)
		x.Stopped = nil
		require.Equal(t, keys(want...), keys(x.Choose(products, 0)...))
	}
}

// TestReserve: what is reserved is there for the next call.
func TestReserve(t *testing.T) {
	d, notes := newFake(slope), []string(nil)
	d.compiling = 50 * time.Millisecond
	x, start := tuner(d, t.TempDir(), &notes), d.clock()
	var prompt []Product
	for i := range 60 {
		prompt = append(prompt, matvec(512+64*i))
	}
	x.Choose(prompt, 0.5)
	require.Less(t, d.clock().Sub(start), DefaultBudget*3/4)
	p := matvec(8192)
	require.NotEqual(t, keys(p.Launches[0]), keys(x.Choose([]Product{p}, 0)...))
}

// TestRefused: what does not compile or run is passed over, and others are chosen; without a time of the default
// nothing is chosen or kept.
func TestRefused(t *testing.T) {
	p := matvec(1024)
	first := number(p.Launches[0], "ROWS")
	for _, stage := range []string{"compile", "kernel", "record", "submit", "wait"} {
		for _, c := range []struct {
			name   string
			refuse func(ints map[string]int) bool
			rows   int
			files  int
		}{
			{"the best", func(ints map[string]int) bool { return ints["ROWS"] < first }, first, 1},
			{"others than the best", func(ints map[string]int) bool { return ints["ROWS"] > first }, 1, 1},
			{"the default", func(ints map[string]int) bool { return ints["ROWS"] == first }, first, 0},
			{"all", func(map[string]int) bool { return true }, first, 0},
		} {
			t.Run(stage+" "+c.name, func(t *testing.T) {
				d, dir, notes := newFake(slope), t.TempDir(), []string(nil)
				d.refuse = func(at string, ints map[string]int) bool { return at == stage && c.refuse(ints) }
				got := tuner(d, dir, &notes).Choose([]Product{p}, 0)
				require.Equal(t, c.rows, number(got[0], "ROWS"))
				files, err := filepath.Glob(filepath.Join(dir, "*.tuning"))
				require.NoError(t, err)
				require.Len(t, files, c.files)
				require.Zero(t, d.open)
			})
		}
	}
}

// TestFailedBefore: an error of what was submitted before is no candidate's. It stays, for what uses the device next.
func TestFailedBefore(t *testing.T) {
	p, d, notes := matvec(1024), newFake(slope), []string(nil)
	d.failure = errFake
	require.Equal(t, keys(p.Launches[0]), keys(tuner(d, t.TempDir(), &notes).Choose([]Product{p}, 0)...))
	require.Zero(t, d.compiled)
	require.ErrorIs(t, d.Wait(), errFake)
}

// TestUnsound: what is faster and gives wrong numbers is not chosen.
func TestUnsound(t *testing.T) {
	p, notes := matvec(1024), []string(nil)
	d, dir := newFake(slope), t.TempDir()
	x := tuner(d, dir, &notes)
	var asked []string
	x.Sound = func(l kernels.Launch) bool {
		asked = append(asked, l.Key())
		return false
	}
	got := x.Choose([]Product{p}, 0)
	require.Equal(t, keys(p.Launches[0]), keys(got...))
	require.Len(t, asked, 1, "the fastest")
	require.Contains(t, asked[0], "MATVEC_ROWS=1 ")
	require.Equal(t, keys(got...), keys(tuner(newFake(slope), dir, &notes).Choose([]Product{p}, 0)...), "that is kept")
}

// TestKey: a choice counts for its device, driver, kernel and shape, and for no others.
func TestKey(t *testing.T) {
	dir, p := t.TempDir(), matvec(1024)
	info := newFake(flat).info
	path := func(change func(*device.Info), system string, w Variants) string {
		other := info
		change(&other)
		return newStore(dir, other, system).path(w)
	}
	second, inPlace, near, deep := p.Variants, p.Variants, p.Variants, p.Variants
	second.Launches, inPlace.InPlace, near.Positions, deep.Positions = p.Launches[1:], true, []int{64}, []int{64, 512}
	same := func(*device.Info) {}
	seen := map[string]string{}
	for name, got := range map[string]string{
		"as it is":    path(same, "1", p.Variants),
		"description": path(func(i *device.Info) { i.Description = "Test GPU, driver 2" }, "1", p.Variants),
		"cores":       path(func(i *device.Info) { i.Cores++ }, "1", p.Variants),
		"threads":     path(func(i *device.Info) { i.MaxThreads = 512 }, "1", p.Variants),
		"memory":      path(func(i *device.Info) { i.ThreadgroupMemory = 1 }, "1", p.Variants),
		"target":      path(func(i *device.Info) { i.Target = kernels.Metal }, "1", p.Variants),
		"system":      path(same, "2", p.Variants),
		"shape":       path(same, "1", matvec(1032).Variants),
		"default":     path(same, "1", second),
		"in place":    path(same, "1", inPlace),
		"a position":  path(same, "1", near),
		"positions":   path(same, "1", deep),
		"text":        filepath.Join(dir, fileName(identity(info, "1"), p.key(), "changed")),
	} {
		require.NotContains(t, seen, got, name)
		seen[got] = name
	}
	free := info
	free.Memory = 1 << 40
	require.Equal(t, "as it is", seen[newStore(dir, free, "1").path(p.Variants)], "free memory is no part of it")
}

// TestDamagedFile: what is not as it was written is told of once, measured anew and replaced.
func TestDamagedFile(t *testing.T) {
	products := []Product{matvec(1024), matvec(2048)}
	var notes []string
	good := t.TempDir()
	want := keys(tuner(newFake(slope), good, &notes).Choose(products, 0)...)
	names, err := filepath.Glob(filepath.Join(good, "*.tuning"))
	require.NoError(t, err)
	require.Len(t, names, 2)
	text, err := os.ReadFile(names[0])
	require.NoError(t, err)
	other, err := os.ReadFile(names[1])
	require.NoError(t, err)
	foreign, err := parse(string(text))
	require.NoError(t, err)
	foreign.device = "another GPU"
	for name, content := range map[string]string{
		"empty":          "",
		"foreign":        "\x7fELF\x00\x01",
		"cut":            string(text[:len(text)/2]),
		"longer":         string(text) + "\n",
		"changed":        strings.Replace(string(text), "times ", "times 1", 1),
		"another kernel": string(other),
		"another device": foreign.String(),
		"huge":           strings.Repeat("x", maxFile+1),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(names[0])), []byte(content), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(names[1])), other, 0o600))
			d, notes := newFake(slope), []string(nil)
			require.Equal(t, want, keys(tuner(d, dir, &notes).Choose(products, 0)...))
			require.NotZero(t, d.compiled)
			require.Len(t, notes, 2)
			require.Regexp(t, `^tuning: .*\.tuning .*; this is measured anew$`, notes[0])

			again, silent := newFake(slope), []string(nil)
			require.Equal(t, want, keys(tuner(again, dir, &silent).Choose(products, 0)...))
			require.Zero(t, again.compiled)
			require.Empty(t, silent)
		})
	}
}

// TestStaleChoice: a variant that is tried no longer is no choice.
func TestStaleChoice(t *testing.T) {
	p, dir, notes := matvec(1024), t.TempDir(), []string(nil)
	got := tuner(newFake(slope), dir, &notes).Choose([]Product{p}, 0)
	less := p
	less.Launches, less.Near = nil, nil
	for _, l := range p.Launches {
		if l.Key() != got[0].Key() {
			less.Launches = append(less.Launches, l)
		}
	}
	d := newFake(flat)
	require.Equal(t, keys(less.Launches[0]), keys(tuner(d, dir, &notes).Choose([]Product{less}, 0)...))
	require.NotZero(t, d.compiled)
	d = newFake(slope)
	require.Equal(t, keys(less.Launches[0]), keys(tuner(d, dir, &notes).Choose([]Product{p}, 0)...),
		"the file was replaced")
	require.Zero(t, d.compiled)
}

// TestNoFolder: where nothing can be kept, what was measured is used, and a note says so.
func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	var notes []string
	got := tuner(newFake(slope), filepath.Join(file, "folder"), &notes).Choose([]Product{matvec(1024)}, 0)
	require.Equal(t, 1, number(got[0], "ROWS"))
	require.Contains(t, notes[len(notes)-1], "not kept, so that every start measures again: ")
}

// TestTwoProcesses: of two that measure at the same time, both take the choice of the one that was done first.
func TestTwoProcesses(t *testing.T) {
	dir, p := t.TempDir(), matvec(1024)
	var notes []string
	var first kernels.Launch
	late := newFake(func(ints map[string]int) time.Duration { return time.Duration(100000 / ints["ROWS"]) })
	var once sync.Once
	late.submitted = func() {
		once.Do(func() { first = tuner(newFake(slope), dir, &notes).Choose([]Product{p}, 0)[0] })
	}
	got := tuner(late, dir, &notes).Choose([]Product{p}, 0)
	require.Equal(t, 1, number(first, "ROWS"))
	require.Equal(t, keys(first), keys(got...))
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "nothing is left aside")
}

// TestParams: constants of a launch follow its buffers.
func TestParams(t *testing.T) {
	p, notes := matvec(1024), []string(nil)
	p.Launches = p.Launches[:2]
	for i := range p.Launches {
		p.Launches[i].Params = []byte{1, 2, 3, 4}
	}
	p.Runs = func() []device.Dispatch {
		return []device.Dispatch{{Arguments: make([]device.Argument, 2, 8)}, {Arguments: make([]device.Argument, 2, 8)}}
	}
	d := newFake(flat)
	seen := 0
	recorded := recorder{d, func(list []device.Dispatch) {
		for _, x := range list {
			seen++
			require.Len(t, x.Arguments, 3)
			require.Equal(t, []byte{1, 2, 3, 4}, x.Arguments[2].Bytes)
		}
	}}
	New(recorded, Options{Dir: t.TempDir(), Clock: d.clock},
		func(s string) { notes = append(notes, s) }).Choose([]Product{p}, 0)
	require.NotZero(t, seen)
}

// recorder looks at what is recorded.
type recorder struct {
	*fake
	look func([]device.Dispatch)
}

func (r recorder) Record(list []device.Dispatch) (device.Sequence, error) {
	r.look(list)
	return r.fake.Record(list)
}

func FuzzParse(f *testing.F) {
	e := entry{device: "GPU; 8 cores", first: "matvec/matvec A=1", choice: "matvec/matvec A=2", tried: 3,
		firstTime: 4400, time: 3800}
	f.Add(e.String())
	f.Add("")
	f.Add(header + "\n")
	f.Add(fmt.Sprintf("%s\ndevice \ndefault \nchoice \ntried -1\ntimes 1 2 ns\nhash \n", header))
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parse(text)
		if err == nil {
			require.Equal(t, text, e.String())
		}
	})
}
