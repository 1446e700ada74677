package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/schedule"
)

// watched is the engine of the tests' device, which remembers the instance that was made last, and counts what is
// submitted.
type watched struct {
	gpu.Engine
	instance  engine.Instance
	submitted int
}

// watch returns the engine of the tests' device as one that is watched.
func watch(t *testing.T) *watched {
	w := &watched{Engine: onDevice(t).(gpu.Engine)}
	open := w.Open
	w.Open = func() (device.Device, error) {
		d, err := open()
		return devicetest.Counting(d, &w.submitted), err
	}
	return w
}

func (s *watched) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := s.Engine.Compile(m, o)
	return &watchedExecutable{x, s}, err
}

type watchedExecutable struct {
	engine.Executable
	of *watched
}

func (x *watchedExecutable) NewInstance() (engine.Instance, error) {
	i, err := x.Executable.NewInstance()
	x.of.instance = i
	return i, err
}

// streams are sequences of two executors, one of which begins calls ahead. Both get the same calls and must give the
// same tokens.
type streams struct {
	*testing.T
	plain, ahead batch.Executor
	watch        *watched
	sched        *schedule.Scheduler
	answers      map[schedule.ID][]int32
	next         *batch.Foreseen
	calls        int
	taken        int // calls that had begun
	dropped      int // calls that had begun and were not made
}

func newStreams(t *testing.T, name string) *streams {
	t.Helper()
	m := fusetest.Load(t, name)
	s := &streams{T: t, watch: watch(t), answers: map[schedule.ID][]int32{}}
	o := batch.RaggedOptions{Rows: 16, Sequences: 4, BlockRows: 4, Engine: engine.Options{Precision: eval.Mixed}}
	var err error
	s.plain, err = batch.NewRagged(m, onDevice(t), o)
	require.NoError(t, err)
	s.ahead, err = batch.NewRagged(m, s.watch, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.plain.Close()); require.NoError(t, s.ahead.Close()) })
	l := s.ahead.Layout()
	memory, err := cache.NewMemory(l, l.Bytes(s.ahead.Units()), s.ahead.Units())
	require.NoError(t, err)
	s.sched, err = schedule.New(schedule.Config{Rows: 16, Chunk: 12, Quantum: 12, Sequences: 4}, memory,
		cache.NewPrefix(memory, 0, nil))
	require.NoError(t, err)
	return s
}

func (s *streams) arrive(id schedule.ID, prompt, tokens int) {
	s.Helper()
	r := schedule.Request{ID: id, MaxTokens: tokens}
	for i := range prompt {
		r.Prompt = append(r.Prompt, int32(7+(i*31+int(id)*13)%200))
	}
	require.NoError(s, s.sched.Arrive(r))
}

// step runs a call with both. ends are the sequences whose token ends them.
func (s *streams) step(ends ...schedule.ID) {
	s.Helper()
	call, err := s.sched.Next()
	require.NoError(s, err)
	require.NotNil(s, call)
	var rows, behind []batch.Row
	for _, e := range call.Entries {
		for range e.Wanted {
			d := batch.Draw{Temperature: 0.9, TopP: 0.95, TopK: 20, Seed: int64(e.ID) + int64(e.Start+e.Rows)}
			after := d
			after.Seed++
			rows, behind = append(rows, batch.Row{Draw: &d}), append(behind, batch.Row{Draw: &after})
		}
	}
	if s.calls++; s.next != nil && s.next.Call == call {
		s.taken++
	} else if s.next != nil {
		s.dropped++
	}
	want, err := s.plain.Execute(s.Context(), call, rows)
	require.NoError(s, err)
	var got []batch.Output
	s.next = nil
	if next := s.sched.Ahead(); next != nil {
		s.next = &batch.Foreseen{Call: next, Rows: behind}
		got, err = s.ahead.(batch.Pipelined).ExecuteAhead(s.Context(), call, rows, s.next)
		require.True(s, gpu.Pending(s.watch.instance), "nothing was begun after a call of %d rows", len(rows))
	} else {
		got, err = s.ahead.Execute(s.Context(), call, rows)
		require.False(s, gpu.Pending(s.watch.instance))
	}
	require.NoError(s, err)
	require.Equal(s, want, got)
	var results []schedule.Result
	for _, e := range call.Entries {
		if e.Wanted == 0 {
			continue
		}
		token := got[0].Token
		got = got[1:]
		if s.answers[e.ID] == nil || s.answers[e.ID][0] >= 0 { // it has not ended
			r := schedule.Result{ID: e.ID, Tokens: []int32{token}}
			for _, id := range ends {
				r.Ended = r.Ended || id == e.ID
			}
			s.answers[e.ID] = append(s.answers[e.ID], token)
			results = append(results, r)
		}
	}
	ended, err := s.sched.Done(results)
	require.NoError(s, err)
	for _, e := range ended {
		s.answers[e.ID] = []int32{-1}
	}
	require.NoError(s, s.sched.Check())
	s.requireSubmitted()
}

// requireSubmitted requires that no call that had begun was submitted again.
func (s *streams) requireSubmitted() {
	s.Helper()
	begun := 0
	if s.next != nil {
		begun = 1
	}
	require.Equal(s, s.calls+s.dropped+begun, s.watch.submitted)
}

// cancel ends a sequence between two calls.
func (s *streams) cancel(id schedule.ID) {
	s.sched.Cancel(id)
	s.answers[id] = []int32{-1}
}

// TestRowsAhead: calls of many sequences that are begun before the tokens of those before them were read give what they
// give otherwise, whatever comes between: sequences that end or are cancelled, prompts, other numbers of rows.
func TestRowsAhead(t *testing.T) {
	names := []string{"etc-qwen35moe-chat-sample", "etc-gemma4-chat-sample"}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreams(t, name)
			steps := func(n int) {
				t.Helper()
				for range n {
					s.step()
				}
			}
			s.arrive(1, 9, 40)
			steps(7) // a prompt, and tokens across the end of a block
			require.Positive(t, s.taken)
			s.arrive(2, 14, 40)
			s.arrive(3, 5, 30)
			steps(6)
			before := s.taken
			s.step(2) // ends, and has a row in the call that has begun
			s.arrive(4, 3, 9)
			s.step()
			require.Equal(t, before+2, s.taken)
			steps(4)
			s.cancel(3)
			steps(3)
			s.cancel(1)
			s.cancel(4) // all that the call has
			s.arrive(5, 20, 12)
			steps(5)
			require.Greater(t, s.taken, before+4)
		})
	}
}
