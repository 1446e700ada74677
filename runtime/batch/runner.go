package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
	"github.com/etc-ml/etc/runtime/speculate"
)

// Options are the settings of a runner.
type Options struct {
	// Sequences is the largest number of streams that run at a time; 0 stands for the executor's own limit. Queue is
	// the largest number of streams that wait besides.
	Sequences, Queue int
	// Budget is the memory of the caches in bytes.
	Budget int64
	// Prefix is the part of Budget, in bytes, that prefixes no running sequence uses may hold; 0 caches no prefixes.
	Prefix int64
	// Disk, if not nil, keeps what the prefix cache evicts, and what it has when the runner closes. It is read before a
	// prompt is computed. An executor that is no [PartSaver] does without.
	Disk Disk
	// DiskProgram is part of the names on Disk: what runners of different programs or precisions put there has to
	// differ in it.
	DiskProgram string
	// Chunk is the largest number of prompt rows in a call with running streams; 0 stands for the executor's own
	// limit.
	Chunk int
	// Checkpoints is the distance in positions between spare checkpoints of a prompt: states of recurrent layers and
	// windows, for prompts that have only a beginning in common with it. They take at most half of the memory that
	// running sequences leave; where a prompt would have more, the distance is doubled. 0: checkpoints are only where
	// prompts end or part, and at Request.Marks.
	Checkpoints int
	// Drafting says how streams draft the tokens that their next call verifies.
	Drafting Drafting
	// Suspect, if not nil, is called once, on the runner's goroutine, when hardly any draft of the executor's program
	// has been right: the draft may belong to another model.
	Suspect func(speculate.Totals)
	// Observe, if not nil, is called after every call, on the runner's goroutine.
	Observe func(Step)
}

// Step describes a call that has run.
type Step struct {
	Sequences, Rows int
	Time            time.Duration
	Err             error
}

// Stats are the counts of a runner.
type Stats struct {
	schedule.Stats
	// Budget and Used are bytes of the caches. Idle is the part of Used that only the prefix cache uses.
	Budget, Used, Idle int64
	// Pressure is the share of the caches that running streams hold, 0 to 1: of bytes, or of the blocks or slots that
	// there are where that is more.
	Pressure float64
	// Prompt and Drawn are the numbers of tokens of all prompts and of all answers.
	Prompt, Drawn int64
	// Failed is the number of calls that ended with an error.
	Failed int64
	// Drafts counts the drafts of all streams.
	Drafts speculate.Totals
}

// Runner answers requests with one model. One goroutine asks the scheduler for a call, has the executor run it, and
// hands out the results.
type Runner struct {
	exec    Executor
	options Options
	limits  Limits
	memory  *cache.Memory
	sched   *schedule.Scheduler
	prefix  *cache.Prefix
	streams map[schedule.ID]*Stream // only the runner's goroutine uses it
	drafts  *drafts                 // nil: no stream drafts
	// foreseen is the call after the running one, which may have begun; nil: none. See ahead.go.
	foreseen *Foreseen

	mu      sync.Mutex
	arrived []*Stream
	left    []*Stream // cancelled streams that the loop has not seen yet
	work    []func(Executor)
	known   int // streams that have not ended
	flight  map[*Stream]bool
	abandon context.CancelFunc // ends the context of the running call
	nextID  schedule.ID
	closing bool
	stats   Stats

	wake   chan struct{} // capacity 1
	closed chan struct{}
	err    error // of Executor.Close
}

// New starts a runner. It owns the executor from then on.
func New(exec Executor, o Options) (*Runner, error) {
	l := exec.Limits()
	if o.Sequences <= 0 || o.Sequences > l.Sequences {
		o.Sequences = l.Sequences
	}
	layout := exec.Layout()
	if l.NoCopies {
		o.Prefix = 0
	}
	memory, err := cache.NewMemory(layout, o.Budget, exec.Units())
	if err != nil {
		return nil, err
	}
	chunk := max(min(l.Rows, sharedRows)-o.Sequences, 1)
	if o.Chunk > 0 {
		chunk = min(chunk, o.Chunk)
	}
	config := schedule.Config{Rows: l.Rows, Chunk: chunk, Quantum: chunk, Sequences: o.Sequences}
	prefix := cache.NewPrefix(memory, o.Prefix, newDiskTier(exec, o))
	if n := spareCheckpoints(memory, o, l.Rows); n > 0 {
		config.CheckpointEvery, config.CheckpointMost = o.Checkpoints, n
		prefix.SetSpare(n)
	}
	sched, err := schedule.New(config, memory, prefix)
	if err != nil {
		return nil, err
	}
	r := &Runner{exec: exec, options: o, limits: l, memory: memory, sched: sched, prefix: prefix,
		streams: map[schedule.ID]*Stream{},
		wake:    make(chan struct{}, 1), closed: make(chan struct{}), stats: Stats{Budget: o.Budget}}
	if r.drafts, err = newDrafts(exec, o.Drafting); err != nil {
		return nil, err
	}
	go r.loop()
	return r, nil
}

// spareCheckpoints returns how many spare checkpoints the prefix cache may have.
func spareCheckpoints(m *cache.Memory, o Options, rows int) int {
	return m.CheckpointsBeside(m.Layout().Running(o.Sequences, rows), o.Prefix) / 2
}

// Room returns how many sequences of a few tokens the memory has room for at a time, at most Sequences.
func (r *Runner) Room() int {
	drafts := 0
	if r.drafts != nil {
		drafts = r.drafts.shared.Most()
	}
	one := r.memory.Layout().Least(drafts)
	all := slices.Clone(one)
	n := 1
	for all.Add(one); n < r.options.Sequences && r.memory.FitsEmpty(all); all.Add(one) {
		n++
	}
	return n
}

// Limits returns the executor's limits.
func (r *Runner) Limits() Limits { return r.limits }

// Sequences returns the largest number of streams that run at a time.
func (r *Runner) Sequences() int { return r.options.Sequences }

// Stats returns the counts so far.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Active returns the number of streams that have not ended.
func (r *Runner) Active() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// Submit queues a request. When ctx ends, its sequence ends within one call. Errors are a [*ParameterError], a
// [*ContextError], [ErrFull], [ErrClosed], and schedule.ErrTooLong if the memory could not hold the sequence alone.
func (r *Runner) Submit(ctx context.Context, q Request) (*Stream, error) {
	if err := q.check(r.limits); err != nil {
		return nil, err
	}
	if err := r.fits(q); err != nil {
		return nil, err
	}
	s := &Stream{runner: r, request: q, times: Times{Arrived: time.Now()}, wake: make(chan struct{}, 1)}
	if q.Constraint != nil {
		s.mask = make([]uint64, q.Constraint.MaskWords())
	}
	if q.Sampling.penalizes() {
		s.counts = map[int]int{}
	}
	s.detach = context.AfterFunc(ctx, s.Cancel)
	r.mu.Lock()
	defer r.mu.Unlock()
	err := ctx.Err()
	switch {
	case r.closing:
		err = ErrClosed
	case err == nil && r.known >= r.options.Sequences+r.options.Queue:
		err = ErrFull
	}
	if err != nil {
		s.detach()
		return nil, err
	}
	s.id = r.nextID
	r.nextID++
	r.known++
	r.arrived = append(r.arrived, s)
	r.stats.Prompt += int64(len(q.Prompt))
	r.notify()
	return s, nil
}

// fits returns an error for a request that the memory could not hold even alone.
func (r *Runner) fits(q Request) error {
	layout := r.memory.Layout()
	most := layout.Most(len(q.Prompt)+q.MaxTokens, r.limits.Rows)
	if r.memory.FitsEmpty(most) {
		return nil
	}
	return fmt.Errorf("%w: %d prompt tokens and at most %d more need %d bytes of caches, the budget is %d",
		schedule.ErrTooLong, len(q.Prompt), q.MaxTokens, layout.Bytes(most), r.options.Budget)
}

// Do runs f between two calls and returns when it has run. f has the executor to itself. If ctx ends before f begins,
// f does not run; once it has begun, Do waits for it.
func (r *Runner) Do(ctx context.Context, f func(Executor)) error {
	done := make(chan struct{})
	r.mu.Lock()
	if r.closing {
		r.mu.Unlock()
		return ErrClosed
	}
	var once sync.Once // f begins, or Do gives it up
	r.work = append(r.work, func(x Executor) { once.Do(func() { f(x); r.count(nil); close(done) }) })
	r.notify()
	r.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-r.closed:
	case <-ctx.Done():
	}
	given := false
	once.Do(func() { given = true })
	if !given {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// Close cancels all streams, waits for the running call and closes the executor.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closing = true
	if r.abandon != nil {
		r.abandon()
	}
	r.notify()
	r.mu.Unlock()
	<-r.closed
	return r.err
}

func (r *Runner) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// cancel marks a stream as cancelled. It abandons the running call if that has no other stream.
func (r *Runner) cancel(s *Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, s)
	if r.flight[s] {
		if delete(r.flight, s); len(r.flight) == 0 {
			r.abandon()
		}
	}
	r.notify()
}

// loop runs calls until Close.
func (r *Runner) loop() {
	defer close(r.closed)
	for r.inbox() {
		call, err := r.sched.Next()
		if err != nil {
			panic(err) // the loop calls Next and Done in turn
		}
		if r.foreseen != nil && r.foreseen.Call != call {
			r.foreseen = nil // all its streams have ended
		}
		if call == nil {
			r.ended(r.sched.Ended(), nil)
			r.count(nil) // streams that were cancelled between two calls hold nothing now
			<-r.wake
			continue
		}
		r.run(call)
	}
	for _, s := range r.streams {
		r.sched.Cancel(s.id)
	}
	r.ended(r.sched.Ended(), nil)
	r.prefix.Store()
	r.err = r.exec.Close()
}

// inbox takes over what other goroutines have left for the loop: functions to run, new and cancelled streams. It
// returns false after Close.
func (r *Runner) inbox() bool {
	r.mu.Lock()
	arrived, left, work, closing := r.arrived, r.left, r.work, r.closing
	if r.foreseen == nil {
		r.work = nil
	} else if len(work) > 0 { // a call that has begun comes first, and none is foreseen after it
		work = nil
		r.notify()
	}
	r.arrived, r.left = nil, nil
	r.mu.Unlock()
	for _, f := range work {
		if !closing {
			f(r.exec)
		}
	}
	for _, s := range arrived {
		r.streams[s.id] = s
		prompt := make([]int32, len(s.request.Prompt))
		for i, t := range s.request.Prompt {
			prompt[i] = int32(t)
		}
		q := schedule.Request{ID: s.id, Prompt: prompt, MaxTokens: s.request.MaxTokens, Marks: s.request.Marks,
			Drafts: r.drafts.most(s), DraftLast: r.drafts != nil && r.drafts.Fixed}
		if err := r.sched.Arrive(q); err != nil {
			r.end(s, Failed, err)
		}
	}
	for _, s := range left {
		if r.streams[s.id] == s {
			r.sched.Cancel(s.id)
		}
	}
	r.ended(r.sched.Ended(), nil)
	return !closing
}

// run drafts for a call, runs it, and hands out its results.
func (r *Runner) run(call *schedule.Call) {
	var masks errgroup.Group
	masks.SetLimit(max(1, runtime.GOMAXPROCS(0)-1))
	masked := make([]bool, len(call.Entries))
	start := time.Now()
	ctx, done := r.begin(call)
	chains := r.chains(call)
	var err error
	rounder := r.rounder(call, chains)
	if rounder == nil {
		err = r.draft(ctx, call, chains)
	}
	pauses := r.drafts.pauses(call, r.streams)
	var rows []Row
	ahead := r.foreseen != nil && r.foreseen.Call == call
	if ahead {
		rows = r.foreseen.Rows
	} else {
		rows = r.rows(call, start, &masks, masked)
		r.askForHidden(rows, pauses)
	}
	var outs []Output
	if err == nil {
		if r.foreseen = nil; pauses {
			r.foreseen = r.foresee(call, rows)
		}
		if rounder != nil {
			outs, err = r.round(ctx, rounder, call, chains, rows)
		} else {
			outs, err = r.execute(ctx, call, rows)
		}
	}
	masks.Wait() //nolint:errcheck // masks give none
	done()
	if err == nil && len(outs) != len(rows) {
		err = fmt.Errorf("the executor gave %d outputs for %d rows", len(outs), len(rows))
	}
	if err != nil {
		r.ended(r.sched.Fail(), err)
	} else {
		took := time.Duration(0)
		if ahead || r.isTypical(call, rows, pauses) {
			took = time.Since(start)
		}
		r.book(call, outs, masked, took)
	}
	if o := r.options.Observe; o != nil {
		o(Step{Sequences: len(call.Entries), Rows: len(call.Tokens), Time: time.Since(start), Err: err})
	}
	r.count(err)
}

// rows says what the executor gives for the rows of a call. It begins to compute masks, and sets masked for those
// streams that have one.
func (r *Runner) rows(call *schedule.Call, start time.Time, masks *errgroup.Group, masked []bool) (rows []Row) {
	samples := r.exec.Limits().Samples
	for i, e := range call.Entries {
		s := r.streams[e.ID]
		s.begin(start, e.Start)
		if e.Wanted == 0 {
			continue
		}
		var mask func() []uint64
		if c := s.request.Constraint; c != nil {
			made := make(chan struct{})
			masks.Go(func() error { defer close(made); masked[i] = c.Mask(s.mask); return nil })
			mask = func() []uint64 {
				if <-made; masked[i] {
					return s.mask
				}
				return nil
			}
		}
		rows = append(rows, s.row(samples, mask))
		rows = append(rows, s.rowsBehind(call.Tokens[e.First+e.Rows-e.Drafts:e.First+e.Rows], samples)...)
	}
	return rows
}

// begin returns the context of a call, and a function that ends it. The context also ends when all streams of the
// call are cancelled.
func (r *Runner) begin(call *schedule.Call) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flight, r.abandon = map[*Stream]bool{}, cancel
	for _, e := range call.Entries {
		if s := r.streams[e.ID]; s != nil { // of a call that was foreseen some may have ended
			r.flight[s] = true
		}
	}
	for _, s := range r.left { // cancelled since inbox looked
		delete(r.flight, s)
	}
	if len(r.flight) == 0 || r.closing {
		cancel()
	}
	return ctx, func() {
		r.mu.Lock()
		r.flight, r.abandon = nil, nil
		r.mu.Unlock()
		cancel()
	}
}

// ended ends the streams whose sequences the scheduler has ended. err is the error of the call, if it failed.
func (r *Runner) ended(ends []schedule.End, err error) {
	for _, e := range ends {
		s := r.streams[e.ID]
		if s == nil {
			continue
		}
		switch {
		case s.failure != nil:
			r.end(s, Failed, s.failure)
		case e.Reason == schedule.Failed && errors.Is(err, context.Canceled):
			r.end(s, Cancelled, nil)
		case e.Reason == schedule.Failed:
			r.end(s, Failed, err)
		default:
			r.end(s, [...]Reason{Stopped, Length, Cancelled}[e.Reason], nil)
		}
	}
}

func (r *Runner) end(s *Stream, why Reason, err error) {
	delete(r.streams, s.id)
	r.mu.Lock()
	r.known--
	r.stats.Drawn += int64(len(s.answer))
	r.mu.Unlock()
	s.finish(why, err)
}

// count updates the counts that Stats returns.
func (r *Runner) count(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Stats, r.stats.Used, r.stats.Idle = r.sched.Stats(), r.memory.Used(), r.memory.Idle()
	r.stats.Pressure, r.stats.Drafts = r.memory.Pressure(), r.drafts.totals()
	if err != nil && !errors.Is(err, context.Canceled) {
		r.stats.Failed++
	}
}

// Layout returns the units that one sequence needs.
func (r *Runner) Layout() cache.Layout { return r.memory.Layout() }
