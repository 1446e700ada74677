package calibrate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/ir"
)

// processBytes is the memory of the process before it calibrates: code, runtime, stacks, the text and its tokens.
const processBytes = 64 << 20

// spareParts is the share of the memory, 1/spareParts, that is left to arrays which are not used any more and which the
// garbage collector has not freed yet.
const spareParts = 8

// arrayBytes returns the memory for arrays within a limit.
func arrayBytes(limit int64) int64 {
	n := limit - processBytes
	return n - n/spareParts
}

// limitFor returns the smallest limit that leaves n bytes for arrays.
func limitFor(n int64) int64 {
	limit := processBytes + (n*spareParts+spareParts-2)/(spareParts-1)
	for arrayBytes(limit-1) >= n {
		limit--
	}
	return limit
}

// Memory returns the smallest [Options.MaxRAM] with which [Run] can calibrate m.
func Memory(m *ir.Module, o Options) (int64, error) {
	p, err := newPlan(m, o)
	if err != nil {
		return 0, err
	}
	return limitFor(p.least()), nil
}

// DamageMemory returns the smallest [DamageOptions.MaxRAM] with which [Damage] can measure m.
func DamageMemory(m *ir.Module, o DamageOptions) (int64, error) {
	p, err := newDamagePlan(m, o)
	if err != nil {
		return 0, err
	}
	return limitFor(p.least()), nil
}

// config says how a segment is run within a limit of memory. The results do not depend on it.
type config struct {
	windows int // windows that go through the segment at a time
	jobs    int // workers that run these windows
	solvers int // workers that quantize the weights of the segment's site
}

// texts is a number of windows of the same length.
type texts struct {
	tokens int // the length of each window
	count  int // the number of windows, of all streams together
}

// plan finds how a module is run within a limit of memory. It knows how much memory each segment takes.
type plan struct {
	module   *ir.Module
	segments []*segment
	sites    []*siteSizes
	sizes    *sizes
	texts    []texts
	copies   []int // for each segment: how many times the values of a window are kept (see Damage)
	tokens   int   // the number of tokens of the text that weights are quantized for
	follows  bool  // the text runs twice, with the checkpoint's weights too
	jobs     int

	configs []config
	onDisk  map[*ir.Value]bool
	used    []int64 // for each segment: bytes that it takes with its config, without values kept for later ones
	kept    []int64 // for each segment: bytes of the values that are kept in memory while it runs
}

// newPlan returns the plan of a calibration, for any memory.
func newPlan(m *ir.Module, o Options) (*plan, error) {
	p := &plan{module: m, follows: Follows(o.Recipe), jobs: jobsOf(o.Jobs)}
	d := &driver{module: m, options: o}
	times := 1
	if p.follows {
		times = 2
	}
	for _, w := range o.Windows {
		p.tokens += len(w)
		p.add(len(w), times)
	}
	for _, w := range o.HeldOut {
		p.add(len(w), 2)
	}
	return p, p.open(d)
}

// newDamagePlan returns the plan of a measurement of damage, for any memory.
func newDamagePlan(m *ir.Module, o DamageOptions) (*plan, error) {
	p := &plan{module: m, jobs: jobsOf(o.Jobs)}
	for _, w := range o.Windows {
		p.add(len(w), 1)
	}
	if err := p.open(&driver{module: m}); err != nil {
		return nil, err
	}
	variants := 1
	for i, x := range p.sites {
		if x.site != nil && x.op.Def.Name != "embedding" {
			for _, w := range x.weights {
				if o.Scheme(w.constant.Name, w.cols) != nil {
					variants++
				}
			}
		}
		p.copies[i] = variants
	}
	return p, nil
}

// add counts windows of so many tokens.
func (p *plan) add(tokens, count int) {
	for i := range p.texts {
		if p.texts[i].tokens == tokens {
			p.texts[i].count += count
			return
		}
	}
	p.texts = append(p.texts, texts{tokens, count})
}

// open finds the segments and their sites.
func (p *plan) open(d *driver) error {
	if len(p.texts) == 0 {
		return fmt.Errorf("a text of at least one window is needed")
	}
	p.segments, p.sizes = segmentsOf(p.module), newSizes(p.module)
	if err := p.checkLast(); err != nil {
		return err
	}
	for _, g := range p.segments {
		x, err := d.siteOf(g.site)
		if err != nil {
			return fmt.Errorf("%w\n\tin %s", err, ir.Describe(p.module, g.site))
		}
		s := &siteSizes{site: x}
		if x != nil && len(x.weights) > 1 {
			dims := x.op.Input("indices").Type.Shape
			s.perToken = int(p.sizes.dim(dims[len(dims)-1], shape{1, 0}))
		}
		p.sites, p.copies = append(p.sites, s), append(p.copies, 1)
	}
	return nil
}

// longest returns the number of tokens of the longest window of the texts.
func (p *plan) longest() int {
	return slices.MaxFunc(p.texts, func(a, b texts) int { return cmp.Compare(a.tokens, b.tokens) }).tokens
}

// windows returns the number of windows that run segment number i.
func (p *plan) windows(i int) (n int) {
	for _, t := range p.texts {
		n += t.count
	}
	return n * p.copies[i]
}

// keptBytes returns the size of a value that is kept for later segments, for all windows.
func (p *plan) keptBytes(v *ir.Value) (n int64) {
	for _, t := range p.texts {
		for _, s := range callShapes(p.module, t.tokens) {
			n += int64(t.count) * p.sizes.keptBytes(v, s)
		}
	}
	return n
}

// frame returns the most memory that one worker needs to run a window through a segment.
func (p *plan) frame(g *segment) (most int64) {
	for _, t := range p.texts {
		for _, s := range callShapes(p.module, t.tokens) {
			most = max(most, p.sizes.frame(g, s))
		}
	}
	for _, b := range g.buffers {
		if slices.Contains(g.frees, b) {
			most += bufferBytes(b)
		}
	}
	return most
}

// fixed returns the memory of a segment that no choice changes: its constants, and buffers that several segments use.
func (p *plan) fixed(i int) int64 {
	n := p.segments[i].constants()
	for _, b := range p.module.Buffers {
		first := slices.IndexFunc(p.segments, func(g *segment) bool { return slices.Contains(g.buffers, b) })
		last := slices.IndexFunc(p.segments, func(g *segment) bool { return slices.Contains(g.frees, b) })
		if first < last && first <= i && i <= last {
			n += bufferBytes(b) * int64(p.windows(i))
		}
	}
	return n
}

// last returns the memory of the last segment, whose results, the logits, are compared for one call at a time.
func (p *plan) last(jobs int) (most int64) {
	g, x := p.segments[len(p.segments)-1], p.sites[len(p.segments)-1]
	for _, t := range p.texts {
		for _, s := range callShapes(p.module, t.tokens) {
			logits := p.sizes.bytes(p.module.Entry.Body.Results[0], s)
			most = max(most, logits+x.run(s.tokens, jobs)+p.sizes.frame(g, s)+96*int64(s.tokens))
		}
	}
	return most
}

// running returns the memory to run segment number i.
func (p *plan) running(i int, c config) int64 {
	if i == len(p.segments)-1 {
		return p.last(c.jobs)
	}
	count := min(c.windows, p.windows(i))
	return p.sites[i].run(count*p.longest(), c.jobs) + int64(min(c.jobs, count))*p.frame(p.segments[i])
}

// solving returns the memory to solve for the weights of segment number i.
func (p *plan) solving(i int, c config) int64 {
	return p.sites[i].solve(p.tokens, c.solvers, p.follows)
}

// least returns the memory for arrays that is enough: with one window and one worker at a time.
func (p *plan) least() (most int64) {
	for i := range p.segments {
		one := config{1, 1, 1}
		most = max(most, p.fixed(i)+max(p.running(i, one), p.solving(i, one)))
	}
	return most
}

// fit chooses how each segment is run and which values lie on disk, so that the process stays within limit bytes; 0 is
// no limit.
func (p *plan) fit(limit int64) error {
	budget := int64(math.MaxInt64)
	if limit > 0 {
		budget = arrayBytes(limit)
	}
	if least := p.least(); least > budget {
		need := limitFor(least)
		return fmt.Errorf("it needs %s of memory (%d bytes), the bound is %d bytes", humanize.IBytes(uint64(need)), need,
			limit)
	}
	for i := range p.segments {
		fixed := p.fixed(i)
		c := p.choose(i, budget-fixed)
		p.configs = append(p.configs, c)
		p.used = append(p.used, fixed+max(p.running(i, c), p.solving(i, c)))
	}
	p.place(budget)
	return nil
}

// choose returns how segment number i is run within budget bytes. Where half of them are enough to run as many workers,
// it leaves the other half to values that are kept for later segments.
func (p *plan) choose(i int, budget int64) config {
	c := config{1, 1, 1}
	for c.solvers < p.jobs && p.solving(i, config{1, 1, c.solvers + 1}) <= budget {
		c.solvers++
	}
	try := func(windows int, within int64) bool {
		x := config{windows, p.jobs, c.solvers}
		for x.jobs > 1 && p.running(i, x) > within {
			x.jobs--
		}
		if p.running(i, x) > within || 2*x.jobs < min(p.jobs, windows) {
			return false
		}
		c = x
		return true
	}
	for _, within := range []int64{budget / 2, budget} {
		for windows := max(windowsAtOnce, p.jobs); windows > 0; windows /= 2 {
			if try(windows, within) {
				return c
			}
		}
	}
	return c
}

// place chooses which values that are kept lie in memory. The others lie on disk.
func (p *plan) place(budget int64) {
	p.onDisk, p.kept = map[*ir.Value]bool{}, make([]int64, len(p.segments))
	until := map[*ir.Value]int{}
	for i, g := range p.segments {
		for _, v := range g.drops {
			until[v] = i
		}
	}
	put := func(v *ir.Value, from int) {
		n := p.keptBytes(v) * int64(p.copies[from])
		last, ok := until[v]
		if !ok {
			last = len(p.segments) - 1
		}
		for i := from; i <= last; i++ {
			if p.used[i]+p.kept[i]+n > budget {
				p.onDisk[v] = v.Type.Kind == ir.TensorKind
			}
		}
		for i := from; i <= last && !p.onDisk[v]; i++ {
			p.kept[i] += n
		}
	}
	for _, v := range p.module.Entry.Params {
		put(v, 0)
	}
	for i, g := range p.segments[:len(p.segments)-1] {
		for _, v := range g.keeps {
			put(v, i)
		}
	}
}

// most returns the memory for arrays that the plan takes as it was chosen.
func (p *plan) most() (most int64) {
	for i, n := range p.used {
		most = max(most, n+p.kept[i])
	}
	return most
}
