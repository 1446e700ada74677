package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
)

// TestWherePromptsPart has three prompts with one beginning that nobody marked. The second finds its blocks,
// leaves a checkpoint where it parts, and the third begins there.
func TestWherePromptsPart(t *testing.T) {
	for _, name := range []string{"window", "hybrid", "all"} {
		t.Run(name, func(t *testing.T) {
			l := layouts[name]
			c := roomy
			c.CheckpointEvery = 0
			s := newSim(t, l, c, 1<<20, 1<<20)
			var cached []int
			for i := range 3 {
				st := s.arrive(schedule.Request{ID: schedule.ID(i), MaxTokens: 2,
					Prompt: append(prompt(30, 7), prompt(9, 20+i)...)})
				s.drain()
				cached = append(cached, st.end.Cached)
			}
			require.Equal(t, []int{0, 0, 30 / l.BlockRows * l.BlockRows}, cached)
		})
	}
}

// TestSparePositions: a prompt that has a part in common with the one before begins at the last position that is a
// multiple of CheckpointEvery, doubled while the first prompt would have more than CheckpointMost checkpoints.
func TestSparePositions(t *testing.T) {
	for _, name := range []string{"window", "hybrid", "all"} {
		for most, want := range map[int]int{0: 72, 12: 72, 11: 64, 6: 64, 2: 64} {
			l := layouts[name]
			l.BlockRows = 4
			c := roomy
			c.CheckpointEvery, c.CheckpointMost = 8, most
			s := newSim(t, l, c, 1<<20, 1<<20)
			s.arrive(schedule.Request{ID: 1, MaxTokens: 2, Prompt: prompt(100, 7)})
			s.drain()
			st := s.arrive(schedule.Request{ID: 2, MaxTokens: 2, Prompt: append(prompt(76, 7), prompt(24, 20)...)})
			s.drain()
			require.Equal(t, want, st.end.Cached, "%s, at most %d checkpoints", name, most)
		}
	}
}

// TestSpareLeavesConversations runs many long prompts that nobody continues beside a conversation, with memory for few
// checkpoints: the conversation finds its turns.
func TestSpareLeavesConversations(t *testing.T) {
	for _, name := range []string{"window", "hybrid", "all"} {
		t.Run(name, func(t *testing.T) {
			c := roomy
			c.CheckpointEvery = 8
			l := layouts[name]
			budget := l.Bytes(l.Most(200, c.Rows)) * 3 / 2
			s := newSim(t, l, c, budget, budget)
			talk := prompt(20, 1)
			for turn := range 8 {
				st := s.arrive(schedule.Request{ID: schedule.ID(2 * turn), MaxTokens: 1, Prompt: talk})
				s.drain()
				if turn > 0 {
					require.Equal(t, len(talk)-6, st.end.Cached, "turn %d", turn)
				}
				talk = append(slices.Clone(talk), prompt(6, 2+turn)...)
				s.arrive(schedule.Request{ID: schedule.ID(2*turn + 1), MaxTokens: 1, Prompt: prompt(160, 50+turn)})
				s.drain()
			}
		})
	}
}

// TestSpareGoFirst has no memory for the spare checkpoints of a prompt, but for the one at its end: the same prompt
// finds that.
func TestSpareGoFirst(t *testing.T) {
	l := layouts["hybrid"]
	c := roomy
	c.CheckpointEvery = 4
	budget := l.Bytes(cache.Demand{l.Most(42, 0)[0], 4})
	s := newSim(t, l, c, budget, budget)
	for i, want := range []int{0, 39} {
		st := s.arrive(schedule.Request{ID: schedule.ID(i), MaxTokens: 1, Prompt: prompt(40, 7)})
		s.drain()
		require.Equal(t, want, st.end.Cached)
	}
}

// TestFailedCallLeavesNothing fails the second call of a prompt: nothing that it may have spoiled is kept, and
// the same prompt gives its tokens afterwards.
func TestFailedCallLeavesNothing(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		c := schedule.Config{Sequences: 2, Rows: 2, Chunk: 2, Quantum: 2}
		s := newSim(t, l, c, 1<<20, 1<<20)
		s.arrive(schedule.Request{ID: 1, Prompt: prompt(30, 1), MaxTokens: 4})
		s.step()
		require.NotNil(t, s.plan())
		ended := s.sched.Fail()
		require.Equal(t, []schedule.End{{ID: 1, Reason: schedule.Failed}}, ended)
		s.ended(ended)
		require.Zero(t, s.memory.Used())
		s.arrive(schedule.Request{ID: 2, Prompt: prompt(30, 1), MaxTokens: 4})
		s.drain()
	})
}

// TestDraftsThatNeverFit asks for more verify slots than memory has: the sequence runs without them.
func TestDraftsThatNeverFit(t *testing.T) {
	l := layouts["hybrid"]
	c := schedule.Config{Sequences: 2, Rows: 64, Chunk: 8, Quantum: 8}
	s := newSim(t, l, c, l.Bytes(l.Most(50, 64)), 0)
	s.hit = 1
	s.arrive(schedule.Request{ID: 1, Prompt: prompt(9, longestSalt(l)), MaxTokens: 41, Drafts: 20})
	s.drain()
	require.Zero(t, s.sched.Stats().Preempted)
}

// TestVerifySlotsAreAdmitted has memory for two sequences, but not for the states of two that verify: the second
// waits until the first has ended.
func TestVerifySlotsAreAdmitted(t *testing.T) {
	l := layouts["hybrid"]
	for drafts, want := range map[int]int{0: 2, 3: 1} {
		s := newSim(t, l, roomy, l.Bytes(cache.Demand{12, 6}), 0)
		for i := range 2 {
			s.arrive(schedule.Request{ID: schedule.ID(i), Prompt: prompt(9, longestSalt(l)),
				MaxTokens: 12, Drafts: drafts})
		}
		s.step()
		require.Equal(t, want, s.sched.Stats().Running, "%d drafts", drafts)
		s.drain()
	}
}

// TestCancelFreesAtOnce cancels a sequence between calls and one in a call: the next call has no row of it.
func TestCancelFreesAtOnce(t *testing.T) {
	eachLayout(t, func(t *testing.T, l cache.Layout) {
		s := newSim(t, l, roomy, 1<<20, 0)
		for i := range 3 {
			s.arrive(schedule.Request{ID: schedule.ID(i), Prompt: prompt(90, i), MaxTokens: 30})
		}
		s.step()
		s.cancel(0)
		s.cancelInCall(1)
		for call := s.step(); call != nil; call = s.step() {
			require.False(t, slices.ContainsFunc(call.Entries, func(e schedule.Entry) bool { return e.ID != 2 }))
		}
		require.Zero(t, s.memory.Used())
		require.Equal(t, schedule.Cancelled, s.streams[0].end.Reason)
		require.Equal(t, schedule.Cancelled, s.streams[1].end.Reason)
	})
}

// TestMixedLoad measures with the clock what decode first is for: eight streams run while prompts of 200 tokens
// keep coming. No stream waits longer than a call with one chunk, and every prompt gets in.
func TestMixedLoad(t *testing.T) {
	s := newSim(t, layouts["hybrid"], schedule.Config{Sequences: 12, Rows: 64, Chunk: 16, Quantum: 16}, 1<<20, 1<<14)
	for i := range 8 {
		s.arrive(schedule.Request{ID: schedule.ID(i), Prompt: prompt(6, i), MaxTokens: 80})
	}
	for s.step(); s.calls < 60; s.step() {
		if s.calls%10 == 0 {
			s.arrive(schedule.Request{ID: schedule.ID(1000 + s.calls), Prompt: prompt(200, s.calls), MaxTokens: 4})
		}
	}
	s.drain()
	require.Zero(t, s.sched.Stats().Stalled+s.sched.Stats().Preempted)
	for id, st := range s.streams {
		require.LessOrEqual(t, st.gap, costs(12+16), "sequence %d", id)
	}
}
