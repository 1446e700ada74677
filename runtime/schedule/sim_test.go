package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/cache/cachetest"
	"github.com/etc-ml/etc/runtime/schedule"
)

var layouts = map[string]cache.Layout{
	"full":   {BlockRows: 4, BlockBytes: 10},
	"window": {BlockRows: 4, BlockBytes: 10, Rings: []cache.Ring{{Window: 7, BlockBytes: 6}}},
	"hybrid": {BlockRows: 4, BlockBytes: 10, SlotBytes: 30},
	"all":    {BlockRows: 3, BlockBytes: 5, Rings: []cache.Ring{{Window: 5, BlockBytes: 4}}, SlotBytes: 20},
}

func eachLayout(t *testing.T, f func(t *testing.T, l cache.Layout)) {
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) { f(t, l) })
	}
}

// costs are the milliseconds of a call: a step up to 8 rows, then by the row, as the calls of a device that is
// bound by memory first and by arithmetic later.
func costs(rows int) float64 { return 7 + 0.5*float64(max(0, rows-8)) }

// stopToken ends a sequence.
const stopToken = 3

// tokenOf is the token that a row gives: a hash of all that the row has read.
func tokenOf(h uint64) int32 {
	if h%97 == 0 {
		return stopToken
	}
	return int32(4 + h%7)
}

// alone returns the tokens that a request gives when it has the device for itself.
func alone(l cache.Layout, r schedule.Request) []int32 {
	solo := cachetest.Solo{Layout: l}
	var h uint64
	for _, t := range r.Prompt {
		h = solo.Feed(t)
	}
	var out []int32
	for {
		out = append(out, tokenOf(h))
		if out[len(out)-1] == stopToken || len(out) == r.MaxTokens {
			return out
		}
		h = solo.Feed(out[len(out)-1])
	}
}

// stream is what the simulation knows of a request.
type stream struct {
	request  schedule.Request
	want     []int32 // alone
	got      []int32
	arrived  int // calls done when it arrived
	bound    int // calls within which it must end
	last     float64
	gap      float64 // longest time between two of its tokens
	first    int     // calls until its first token
	end      *schedule.End
	canceled bool
}

// sim runs a scheduler on a device that hashes, with a clock that the costs move.
type sim struct {
	t       require.TestingT
	layout  cache.Layout
	config  schedule.Config
	memory  *cache.Memory
	device  *cachetest.Device
	sched   *schedule.Scheduler
	streams map[schedule.ID]*stream
	clock   float64
	calls   int
	pending int     // sum of the lengths of all that have not ended
	hit     float64 // how often a draft is right
	random  *rand.Rand

	foreseen *schedule.Call         // the call of Ahead, which has run already
	early    map[schedule.ID]uint64 // what its rows gave
	ahead    int                    // calls that were foreseen, so far
	partly   int                    // those of them in which a sequence had ended
}

func newSim(t require.TestingT, l cache.Layout, c schedule.Config, budget, limit int64) *sim {
	m, err := cache.NewMemory(l, budget, nil)
	require.NoError(t, err)
	s := &sim{t: t, layout: l, config: c, memory: m, device: cachetest.NewDevice(m),
		streams: map[schedule.ID]*stream{}, hit: 0.7, random: rand.New(rand.NewPCG(1, 2))}
	s.sched, err = schedule.New(c, m, cache.NewPrefix(m, limit, nil))
	require.NoError(t, err)
	return s
}

func (s *sim) arrive(r schedule.Request) *stream {
	require.NoError(s.t, s.sched.Arrive(r))
	s.pending += len(r.Prompt) + r.MaxTokens
	st := &stream{request: r, want: alone(s.layout, r), arrived: s.calls, bound: s.pending}
	s.streams[r.ID] = st
	return st
}

// step runs one call and returns it, nil when there is nothing to do.
func (s *sim) step() *schedule.Call {
	call := s.plan()
	if call == nil {
		return nil
	}
	ended, err := s.sched.Done(s.execute(call))
	require.NoError(s.t, err)
	s.ended(ended)
	require.NoError(s.t, s.sched.Check())
	s.device.Poison()
	return call
}

// execute runs a call and, where it is known, the next one.
func (s *sim) execute(call *schedule.Call) (results []schedule.Result) {
	var next *schedule.Call
	if s.random.IntN(4) > 0 {
		next = s.sched.Ahead()
	}
	for i, e := range call.Entries {
		if s.streams[e.ID].end != nil {
			require.Same(s.t, s.foreseen, call, "a row of a sequence that has ended")
			continue
		}
		results = append(results, s.run(e, s.tokens(call, i), call == s.foreseen)...)
	}
	s.foreseen = next
	if next == nil {
		return results
	}
	for i := range results {
		results[i].Drafts = nil // the next call is planned without them
	}
	require.Empty(s.t, next.Copies)
	require.Len(s.t, next.Entries, len(call.Entries))
	s.early = map[schedule.ID]uint64{}
	for i, e := range next.Entries {
		require.Equal(s.t, call.Entries[i].ID, e.ID)
		require.Equal(s.t, []int{i, 1, 1, 0}, []int{e.First, e.Rows, e.Wanted, e.Drafts})
		hashes, err := s.device.Run(cachetest.Sequence{Tokens: results[i].Tokens, Start: e.Start, Blocks: e.Blocks,
			Rings: e.Rings, Reads: e.Reads, Writes: e.Writes})
		require.NoError(s.t, err)
		s.early[e.ID] = hashes[0]
	}
	return results
}

// plan asks for the next call, does its copies and moves the clock.
func (s *sim) plan() *schedule.Call {
	call, err := s.sched.Next()
	require.NoError(s.t, err)
	require.NoError(s.t, s.sched.Check())
	if call == nil {
		return nil
	}
	require.LessOrEqual(s.t, len(call.Tokens), s.config.Rows)
	if s.foreseen != nil && call == s.foreseen {
		if s.ahead++; slices.ContainsFunc(call.Entries, func(e schedule.Entry) bool { return s.streams[e.ID].end != nil }) {
			s.partly++
		}
	}
	s.clock += costs(len(call.Tokens))
	s.calls++
	s.device.Copy(call.Copies)
	return call
}

func (s *sim) tokens(call *schedule.Call, i int) []int32 {
	e, first := call.Entries[i], 0
	if i > 0 {
		first = call.Entries[i-1].First + call.Entries[i-1].Rows
	}
	require.Equal(s.t, first, e.First)
	return call.Tokens[e.First : e.First+e.Rows]
}

// run computes an entry: which tokens stand, and proposals for the next. One that has run early may run again.
func (s *sim) run(e schedule.Entry, tokens []int32, again bool) []schedule.Result {
	st := s.streams[e.ID]
	require.NotNil(s.t, st, "a row of a sequence that has ended")
	require.False(s.t, st.canceled, "a row of a sequence that was cancelled before the call")
	hashes := []uint64{s.early[e.ID]}
	if !again || s.random.IntN(2) == 0 {
		var err error
		hashes, err = s.device.Run(cachetest.Sequence{Tokens: tokens, Start: e.Start, Blocks: e.Blocks, Rings: e.Rings,
			Reads: e.Reads, Writes: e.Writes})
		require.NoError(s.t, err)
	}
	if e.Wanted == 0 {
		return nil
	}
	require.Equal(s.t, 1+e.Drafts, e.Wanted)
	r := schedule.Result{ID: e.ID}
	for i := e.Rows - e.Wanted; ; i++ {
		r.Tokens = append(r.Tokens, tokenOf(hashes[i]))
		r.Ended = r.Tokens[len(r.Tokens)-1] == stopToken
		all := len(st.got)+len(r.Tokens) == st.request.MaxTokens // a draft of the last token was right
		if r.Ended || all || i+1 == e.Rows || tokens[i+1] != r.Tokens[len(r.Tokens)-1] {
			break
		}
	}
	s.book(st, r.Tokens)
	r.Drafts = s.propose(st)
	return []schedule.Result{r}
}

func (s *sim) book(st *stream, tokens []int32) {
	if len(st.got) == 0 {
		st.first = s.calls - st.arrived
	} else {
		st.gap = max(st.gap, s.clock-st.last)
	}
	st.last = s.clock
	st.got = append(st.got, tokens...)
	require.LessOrEqual(s.t, len(st.got), len(st.want))
	require.Equal(s.t, st.want[:len(st.got)], st.got, "sequence %d differs from itself alone", st.request.ID)
}

// propose returns drafts, each right with probability hit.
func (s *sim) propose(st *stream) []int32 {
	var out []int32
	for i := len(st.got); i < len(st.want) && len(out) < st.request.Drafts; i++ {
		d := st.want[i]
		if s.random.Float64() > s.hit {
			d = 99
		}
		out = append(out, d)
	}
	return out
}

// ended books sequences that ended: they have all their tokens, within the bound.
func (s *sim) ended(ended []schedule.End) {
	for _, e := range ended {
		st := s.streams[e.ID]
		require.NotNil(s.t, st)
		require.Nil(s.t, st.end)
		st.end = &e
		s.pending -= len(st.request.Prompt) + st.request.MaxTokens
		require.LessOrEqual(s.t, s.calls-st.arrived, st.bound, "sequence %d starves", e.ID)
		switch e.Reason {
		case schedule.Stopped:
			require.Equal(s.t, st.want, st.got)
			require.EqualValues(s.t, stopToken, st.got[len(st.got)-1])
		case schedule.Length:
			require.Equal(s.t, st.want, st.got)
			require.Len(s.t, st.got, st.request.MaxTokens)
		}
	}
}

func (s *sim) cancel(id schedule.ID) {
	s.sched.Cancel(id)
	s.streams[id].canceled = true
	s.ended(s.sched.Ended())
}

// drain runs until nothing is left, and finds no unit that somebody still holds but the tree.
func (s *sim) drain() {
	for s.step() != nil {
	}
	for id, st := range s.streams {
		require.NotNil(s.t, st.end, "sequence %d never ended", id)
	}
	require.NoError(s.t, s.sched.Check())
	require.Equal(s.t, s.memory.Idle(), s.memory.Used(), "blocks leak")
	st := s.sched.Stats()
	require.Zero(s.t, st.Waiting+st.Running)
	require.Equal(s.t, st.Rows, st.DecodeRows+st.PromptRows+st.DraftRows)
}
