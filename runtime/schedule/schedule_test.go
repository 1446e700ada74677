package schedule_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
)

// sizes draws numbers that are as often large as small, which rapid's own are not.
type sizes struct{ *rand.Rand }

func drawSizes(t *rapid.T) sizes {
	return sizes{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "sizes"), 0))}
}

// in returns a number from low to high.
func (z sizes) in(low, high int) int { return low + z.IntN(high-low+1) }

func (z sizes) tokens(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(4 + z.IntN(5))
	}
	return out
}

func (z sizes) config() schedule.Config {
	n := z.in(1, 8)
	rows := n + z.in(0, 20)
	chunk := z.in(1, rows)
	return schedule.Config{Sequences: n, Rows: rows, Chunk: chunk, Quantum: z.in(1, chunk),
		CheckpointEvery: []int{0, 5, 16}[z.IntN(3)], CheckpointMost: z.in(0, 3)}
}

func (z sizes) request(id int, shared []int32) schedule.Request {
	r := schedule.Request{ID: schedule.ID(id), MaxTokens: z.in(1, 60), Drafts: z.in(0, 3), DraftLast: id%2 == 1}
	r.Prompt = append(r.Prompt, shared[:z.in(0, len(shared))]...)
	r.Prompt = append(r.Prompt, z.tokens(z.in(1, 30))...)
	if z.IntN(2) == 0 {
		r.Marks = []int{z.in(1, len(r.Prompt))}
	}
	return r
}

// TestRandomSchedules lets requests arrive, be cancelled and fail at random, with much and with little memory.
// After every call: memory is within the budget and every count is right; each sequence's tokens are those that
// it gives alone; nobody waits longer than the work of those who came before.
func TestRandomSchedules(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		var preempted, cached, stalled, ahead, partly int
		schedules := func(t *rapid.T) {
			z := drawSizes(t)
			c := z.config()
			tight, pause := z.IntN(2) == 0, 12 // room for prompts, not for the answers
			budget := l.Bytes(l.Most(110, c.Rows)) * int64(z.in(10, 30)) / 10
			if tight {
				c.Sequences, c.Rows, pause = 8, max(8, c.Rows), 3
				budget = l.Bytes(l.Most(110, c.Rows))
			}
			s := newSim(t, l, c, budget, budget*int64(z.IntN(3))/2)
			shared := z.tokens(20)
			drafts := z.IntN(2) // of half of the schedules no sequence drafts
			for i := range z.in(1, 14) {
				r := z.request(i, shared)
				r.Drafts *= drafts
				if tight {
					r.Prompt, r.Marks, r.MaxTokens, r.Drafts = r.Prompt[len(r.Prompt)-1:], nil, 100, r.Drafts/3
				}
				s.arrive(r)
				for range z.in(0, pause) {
					s.randomStep(t, z)
				}
			}
			s.drain()
			st := s.sched.Stats()
			preempted, cached, stalled = preempted+st.Preempted, cached+st.CachedTokens, stalled+st.Stalled
			ahead, partly = ahead+s.ahead, partly+s.partly
		}
		rapid.Check(t, schedules)
		// With -short rapid draws 20 schedules, of which some times none is short of memory, or uses the tree.
		for range 20 {
			if preempted == 0 || cached == 0 || partly == 0 {
				rapid.Check(t, schedules)
			}
		}
		require.Positive(t, preempted, "no schedule was short of memory")
		require.Positive(t, cached, "no schedule used the tree")
		require.Positive(t, partly, "no sequence ended while the next call had begun")
		t.Logf("%d preemptions, %d stalls, %d cached tokens, %d calls foreseen", preempted, stalled, cached, ahead)
	})
}

// randomStep runs a call, with a cancellation before it or in it, or lets it fail.
func (s *sim) randomStep(t *rapid.T, z sizes) {
	var alive []schedule.ID
	for id := range len(s.streams) {
		if st := s.streams[schedule.ID(id)]; st.end == nil && !st.canceled {
			alive = append(alive, schedule.ID(id))
		}
	}
	switch op := z.IntN(30); {
	case op == 0 && len(alive) > 0:
		s.cancel(alive[z.IntN(len(alive))])
	case op == 1 && len(alive) > 0:
		s.cancelInCall(alive[z.IntN(len(alive))])
		return
	case op == 2:
		if call := s.plan(); call != nil {
			flying := 0
			for _, e := range call.Entries {
				if s.streams[e.ID].end == nil {
					flying++
				}
			}
			if z.IntN(2) == 0 {
				s.sched.Ahead()
			}
			ended := s.sched.Fail()
			require.GreaterOrEqual(t, len(ended), flying)
			s.ended(ended)
		}
		return
	}
	s.step()
}

// cancelInCall cancels a sequence between Next and Done: it has ended after Done.
func (s *sim) cancelInCall(id schedule.ID) {
	call := s.plan()
	if call == nil {
		return
	}
	s.sched.Cancel(id)
	results := s.execute(call)
	s.streams[id].canceled = true
	ended, err := s.sched.Done(results)
	require.NoError(s.t, err)
	s.ended(ended)
	require.NotNil(s.t, s.streams[id].end)
	require.NoError(s.t, s.sched.Check())
	s.device.Poison()
}

func prompt(n, salt int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(100 + (i*7+salt*13)%50)
	}
	return out
}

var roomy = schedule.Config{Sequences: 8, Rows: 64, Chunk: 16, Quantum: 8, CheckpointEvery: 32}

// TestBoundedWait lets a prompt of 400 tokens come in while four streams run. No stream misses a call, so the
// time between two of its tokens is at most that of a call with one chunk.
func TestBoundedWait(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		s := newSim(t, l, roomy, 1<<20, 1<<20)
		for i := range 4 {
			s.arrive(schedule.Request{ID: schedule.ID(i), Prompt: prompt(5, i), MaxTokens: 40})
		}
		s.step()
		long := s.arrive(schedule.Request{ID: 9, Prompt: prompt(400, 9), MaxTokens: 3})
		s.drain()
		for i := range 4 {
			require.LessOrEqual(t, s.streams[schedule.ID(i)].gap, costs(4+roomy.Chunk))
		}
		require.LessOrEqual(t, long.first, 400/roomy.Chunk+1)
	})
}

// TestLongPromptIsNotStarved lets short prompts arrive before every call: more rows than a call has. The long
// prompt still gets its quantum each time that all admitted ones had theirs.
func TestLongPromptIsNotStarved(t *testing.T) {
	c := roomy
	s := newSim(t, layouts["hybrid"], c, 1<<20, 1<<16)
	long := s.arrive(schedule.Request{ID: 0, Prompt: prompt(200, 0), MaxTokens: 2})
	for id := 1; long.first == 0; id++ {
		s.arrive(schedule.Request{ID: schedule.ID(id), Prompt: prompt(20, id), MaxTokens: 2})
		s.step()
		require.Less(t, s.calls, 1000)
	}
	rounds := (200 + c.Quantum - 1) / c.Quantum
	calls := (c.Sequences*c.Quantum + c.Chunk - 1) / c.Chunk
	require.LessOrEqual(t, long.first, rounds*(calls+1))
	s.drain()
}

// TestShortPromptOvertakes has a prompt of 400 tokens in turns; one of 6 that comes later has its first token
// after one quantum of each.
func TestShortPromptOvertakes(t *testing.T) {
	s := newSim(t, layouts["full"], roomy, 1<<20, 0)
	long := s.arrive(schedule.Request{ID: 0, Prompt: prompt(400, 0), MaxTokens: 1})
	s.step()
	short := s.arrive(schedule.Request{ID: 1, Prompt: prompt(6, 1), MaxTokens: 1})
	s.drain()
	require.LessOrEqual(t, short.first, 2)
	require.Greater(t, long.first, 5)
}

// TestPromptsShareACall gives equal prompts equal rows, whoever came first.
func TestPromptsShareACall(t *testing.T) {
	s := newSim(t, layouts["full"], roomy, 1<<20, 0)
	for i := range 3 {
		s.arrive(schedule.Request{ID: schedule.ID(i), Prompt: prompt(300, i), MaxTokens: 1})
	}
	rows := map[schedule.ID]int{}
	for range 6 {
		for _, e := range s.step().Entries {
			rows[e.ID] += e.Rows
		}
	}
	for i := range 3 {
		require.InDelta(t, 6*roomy.Rows/3, rows[schedule.ID(i)], float64(roomy.Quantum))
	}
	s.drain()
}

// TestPreemptionRefills has memory for little more than one sequence at full length: the younger ones give
// their caches back and end with the same tokens (book compares them).
func TestPreemptionRefills(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		for _, tree := range []int64{0, 1 << 20} {
			budget := l.Bytes(l.Most(60, 8)) * 21 / 20
			s := newSim(t, l, schedule.Config{Sequences: 4, Rows: 8, Chunk: 4, Quantum: 4}, budget, tree)
			for i := range 4 {
				s.arrive(schedule.Request{ID: schedule.ID(i), Prompt: prompt(6, i), MaxTokens: 54, Drafts: i / 3})
			}
			s.drain()
			require.Positive(t, s.sched.Stats().Preempted)
		}
	})
}

// TestDraftsSaveCalls has drafts that are always right: K more tokens a call, and the same text.
func TestDraftsSaveCalls(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		var calls []int
		for _, k := range []int{0, 3} {
			s := newSim(t, l, roomy, 1<<20, 0)
			s.hit = 1
			r := schedule.Request{ID: 1, Prompt: prompt(9, longestSalt(l)), MaxTokens: 41, Drafts: k}
			st := s.arrive(r)
			s.drain()
			calls = append(calls, s.calls)
			require.GreaterOrEqual(t, len(st.got), 9)
			require.Equal(t, (len(st.got)-1+k)/(k+1)+1, s.calls)
		}
		require.Less(t, calls[1], calls[0])
	})
}

// TestDraftOfTheLastToken: where a draft of the last token is verified, too, each call drafts as many tokens as are
// left of the sequence, and nothing comes after its end.
func TestDraftOfTheLastToken(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		for last, want := range map[bool][]int{true: {0, 3, 3, 1}, false: {0, 3, 3, 0}} {
			s := newSim(t, l, roomy, 1<<20, 0)
			s.hit = 1
			st := s.arrive(schedule.Request{ID: 1, Prompt: prompt(9, longestSalt(l)), MaxTokens: 10, Drafts: 3,
				DraftLast: last})
			require.Len(t, st.want, 10)
			var drafts []int
			for call := s.step(); call != nil; call = s.step() {
				drafts = append(drafts, call.Entries[0].Drafts)
			}
			require.Equal(t, want, drafts)
			require.Equal(t, st.want, st.got)
		}
	})
}

// longestSalt returns the prompt, of 30, that gives the longest answer.
func longestSalt(l cache.Layout) int {
	best, most := 0, 0
	for i := range 30 {
		if n := len(alone(l, schedule.Request{Prompt: prompt(9, i), MaxTokens: 41})); n > most {
			best, most = i, n
		}
	}
	return best
}

// TestConversations replays a recorded-like day: users who share a system prompt and take turns, with thinking
// times. Every turn begins after the one before; the first turn of a later user after the system prompt.
func TestConversations(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		s := newSim(t, l, roomy, 1<<20, 1<<20)
		const users, turns, system = 5, 4, 30
		talk := make([][]int32, users)
		for turn := range turns {
			for u := range users {
				before := len(talk[u])
				if turn == 0 {
					talk[u] = prompt(system, 77)
				}
				talk[u] = append(talk[u][:len(talk[u]):len(talk[u])], prompt(4+3*u, 1+u+turn*users)...)
				st := s.arrive(schedule.Request{ID: schedule.ID(turn*users + u), Prompt: talk[u], MaxTokens: 12,
					Marks: []int{system, len(talk[u])}})
				for range 3 + (u*turn)%4 { // the next one comes while this one runs
					s.step()
				}
				if turn > 0 || u == users-1 {
					for st.end == nil {
						s.step()
					}
				}
				switch {
				case turn > 0:
					require.Equal(t, before-1, st.end.Cached, "user %d, turn %d", u, turn)
				case u == users-1:
					require.GreaterOrEqual(t, st.end.Cached, system/l.BlockRows*l.BlockRows)
				}
			}
			for s.step() != nil {
			}
			for u := range users {
				talk[u] = append(talk[u], s.streams[schedule.ID(turn*users+u)].got...)
			}
		}
		s.drain()
		require.Greater(t, s.sched.Stats().CachedTokens, s.sched.Stats().PromptRows)
	})
}

// TestRegenerate sends the same prompt twice: all but its last token is cached.
func TestRegenerate(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		s := newSim(t, l, roomy, 1<<20, 1<<20)
		s.arrive(schedule.Request{ID: 1, Prompt: prompt(45, 1), MaxTokens: 5})
		s.drain()
		again := s.arrive(schedule.Request{ID: 2, Prompt: prompt(45, 1), MaxTokens: 5})
		s.drain()
		want := 44
		if !l.Checkpoints() {
			want = 44 / l.BlockRows * l.BlockRows
		}
		require.Equal(t, want, again.end.Cached)
	})
}

func TestErrors(t *testing.T) {
	l := layouts["hybrid"]
	m, err := cache.NewMemory(l, 1000, nil)
	require.NoError(t, err)
	for want, c := range map[string]schedule.Config{
		"3 rows a call for 4 seq": {Sequences: 4, Rows: 3, Chunk: 1, Quantum: 1},
		"a chunk of 9 and 8 rows": {Sequences: 4, Rows: 8, Chunk: 9, Quantum: 1},
		"a quantum of 0":          {Sequences: 4, Rows: 8, Chunk: 8},
		"every -1 positions":      {Sequences: 4, Rows: 8, Chunk: 8, Quantum: 1, CheckpointEvery: -1},
	} {
		_, err := schedule.New(c, m, cache.NewPrefix(m, 0, nil))
		require.ErrorContains(t, err, want)
	}
	s, err := schedule.New(roomy, m, cache.NewPrefix(m, 0, nil))
	require.NoError(t, err)
	ask := func(n, most int) schedule.Request {
		return schedule.Request{ID: 5, Prompt: prompt(n, 0), MaxTokens: most, Drafts: 2}
	}
	require.ErrorIs(t, s.Arrive(ask(300, 300)), schedule.ErrTooLong)
	require.ErrorContains(t, s.Arrive(ask(0, 1)), "sequence 5: 0 prompt tokens")
	require.ErrorContains(t, s.Arrive(ask(1, 0)), "at most 0 tokens to draw")
	bad := ask(4, 1)
	bad.Marks = []int{2, 2}
	require.ErrorContains(t, s.Arrive(bad), "do not ascend")
	require.NoError(t, s.Arrive(ask(4, 9)))
	require.ErrorContains(t, s.Arrive(ask(4, 9)), "known already")
	_, err = s.Done(nil)
	require.ErrorContains(t, err, "without a call")
	_, err = s.Next()
	require.NoError(t, err)
	_, err = s.Next()
	require.ErrorContains(t, err, "before Done")
	for want, results := range map[string][]schedule.Result{
		"there is no result":            nil,
		"the result has 2 tokens":       {{ID: 5, Tokens: []int32{1, 2}}},
		"2 results for 1 entries":       {{ID: 5, Tokens: []int32{1}}, {ID: 6, Tokens: []int32{1}}},
		"has 0 tokens, want 1 to 1":     {{ID: 5}},
		"2 results for 1 entries that ": {{ID: 5, Tokens: []int32{1}}, {ID: 5, Tokens: []int32{1}}},
	} {
		_, err = s.Done(results)
		require.ErrorContains(t, err, want)
	}
	_, err = s.Done([]schedule.Result{{ID: 5, Tokens: []int32{1}, Drafts: []int32{7, 8, 9}}})
	require.NoError(t, err)
	call, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, []int32{1, 7, 8}, call.Tokens)
	_, err = s.Done([]schedule.Result{{ID: 5, Tokens: []int32{6, 1}}})
	require.ErrorContains(t, err, "do not begin with the drafts")
	require.Equal(t, []schedule.End{{ID: 5, Reason: schedule.Failed}}, s.Fail())
	require.Zero(t, m.Used())
}
