package batch_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/schedule"
)

// schedules is how many random schedules of each model are run, in tests that are not short; firstSchedule is the
// number of the first one, so that long runs can be divided.
var (
	schedules     = flag.Int("schedules", 4, "random schedules of each model")
	firstSchedule = flag.Int("first-schedule", 0, "number of the first random schedule of each model")
)

// sharedBy is how many schedules one executor runs: what those before have left there are NaN.
const sharedBy = 8

// job is a request of a random schedule.
type job struct {
	schedule.Request
	draw   batch.Draw
	tokens []int32 // of the answer
}

// TestRandomSchedules: what the scheduler plans for random arrivals, with a prefix tree, checkpoints, drafts that are
// right or wrong, cancellations, calls that begin ahead and too little memory, gives every sequence the tokens that it
// gets alone. Units that nobody holds are poisoned after every call.
func TestRandomSchedules(t *testing.T) {
	for i, name := range models() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := *schedules
			if testing.Short() {
				n = 1
			}
			if testing.Short() && i%3 > 0 {
				t.Skip("a third of the models is enough for a short test")
			}
			e := &eager{}
			s := &simulation{t: t, module: fusetest.Load(t, name), engine: e, known: map[string][]int32{}}
			s.alone = newPool(t, s.module, reference.Engine{}, eval.FP32, batch.RaggedOptions{Rows: 64, Sequences: 1})
			s.runAll(*firstSchedule, n, 1000*len(name))
			t.Logf("%d schedules from number %d on: %d calls with %d rows, %d begun ahead, %d of them made", n,
				*firstSchedule, s.calls, s.rows, e.begun.Load(), e.taken.Load())
		})
	}
}

// simulation runs schedules of one model.
type simulation struct {
	t      *testing.T
	module *ir.Module
	engine engine.Engine
	alone  *batch.Pool
	known  map[string][]int32 // answers of sequences that ran alone, by their request

	calls, rows int // so far
}

// runAll runs n schedules from number first on.
func (s *simulation) runAll(first, n, seed int) {
	s.t.Helper()
	for at := first; at < first+n; {
		group := at / sharedBy
		r := rand.New(rand.NewPCG(uint64(seed+group), 12))
		o := batch.RaggedOptions{Rows: 4 + r.IntN(12), Sequences: 1 + r.IntN(4), BlockRows: 1 + r.IntN(6), Positions: 1}
		x, err := batch.NewRagged(s.module, s.engine, o)
		require.NoError(s.t, err)
		l := x.Layout()
		require.NoError(s.t, x.Close())
		// Somewhat more than the schedules' memory, so that all of it can be poisoned after every call.
		o.Budget, o.Positions = 5*l.Bytes(l.Most(50, x.Limits().Rows)), 0
		x, err = batch.NewRagged(s.module, s.engine, o)
		require.NoError(s.t, err)
		for ; at < first+n && at/sharedBy == group; at++ {
			s.run(x, uint64(seed+at))
		}
		require.NoError(s.t, x.Close())
	}
}

// jobs draws requests; some begin alike.
func (s *simulation) jobs(r *rand.Rand) []*job {
	var out []*job
	common, drafts := ids(9, 14), r.IntN(2) // in half of the schedules nobody drafts, so that calls begin ahead
	for i := range 3 + r.IntN(4) {
		var prompt []int32
		if r.IntN(3) > 0 {
			prompt = append(prompt, common[:1+r.IntN(len(common))]...)
		}
		prompt = append(prompt, ids(r.IntN(3), 1+r.IntN(12))...)
		j := &job{Request: schedule.Request{ID: schedule.ID(i), Prompt: prompt, MaxTokens: 1 + r.IntN(8),
			Drafts: drafts * r.IntN(3)}}
		if len(prompt) > 4 && r.IntN(2) == 0 {
			j.Marks = []int{1 + r.IntN(len(prompt)-1)}
		}
		j.draw = batch.Draw{TopP: 1, Seed: int64(i)}
		if r.IntN(2) == 0 {
			j.draw.Temperature, j.draw.TopK, j.draw.TopP = 0.8, int64(r.IntN(40)), 0.9
		}
		out = append(out, j)
	}
	return out
}

// answer is what a request gives alone.
func (s *simulation) answer(j *job) []int32 {
	s.t.Helper()
	key := fmt.Sprint(j.Prompt, j.MaxTokens, j.draw)
	if out, ok := s.known[key]; ok {
		return out
	}
	q := s.alone.Open()
	defer q.Close()
	var out []int32
	feed := j.Prompt
	for i := range j.MaxTokens {
		given, err := q.Feed(s.t.Context(), feed, row(j, i))
		require.NoError(s.t, err)
		out = append(out, given[0].Token)
		feed = out[i:]
	}
	s.known[key] = out
	return out
}

// row asks for the i-th token of an answer.
func row(j *job, i int) batch.Row {
	d := j.draw
	d.Seed += int64(i)
	return batch.Row{Draw: &d}
}

// run runs one schedule.
func (s *simulation) run(x batch.Executor, seed uint64) {
	t, r := s.t, rand.New(rand.NewPCG(seed, 11))
	t.Helper()
	limits := x.Limits()
	l := x.Layout()
	budget := l.Bytes(l.Most(50, limits.Rows))*int64(1+r.IntN(3)) + l.Bytes(l.Most(1, 1))
	m, err := cache.NewMemory(l, budget, x.Units())
	require.NoError(t, err)
	require.NoError(t, batch.Poison(x, m)) // what the schedule before has left
	sched, err := schedule.New(schedule.Config{Rows: limits.Rows, Chunk: 1 + r.IntN(limits.Rows), Quantum: 1,
		Sequences:       limits.Sequences,
		CheckpointEvery: r.IntN(9)}, m, cache.NewPrefix(m, int64(r.IntN(2))*budget/2, nil))
	require.NoError(t, err)
	jobs := s.jobs(r)
	waiting, left, cancelled := jobs, len(jobs), map[schedule.ID]bool{}
	gone := map[schedule.ID]bool{}
	for left > 0 {
		for len(waiting) > 0 && r.IntN(3) == 0 {
			require.NoError(t, sched.Arrive(waiting[0].Request))
			waiting = waiting[1:]
		}
		call, err := sched.Next()
		require.NoError(t, err)
		if call == nil {
			continue
		}
		results := s.execute(r, x, sched, call, jobs, gone)
		for i := range results {
			if r.IntN(12) == 0 {
				results[i].Ended, results[i].Drafts, cancelled[results[i].ID] = true, nil, true
			}
		}
		if id := schedule.ID(r.IntN(40)); int(id) < len(jobs)-len(waiting) {
			sched.Cancel(id)
			cancelled[id] = true
		}
		ended, err := sched.Done(results)
		require.NoError(t, err)
		left -= len(ended)
		for _, e := range ended {
			gone[e.ID] = true
		}
		require.NoError(t, sched.Check())
		require.NoError(t, batch.Poison(x, m))
	}
	for _, j := range jobs {
		want := s.answer(j)
		if cancelled[j.ID] {
			want = want[:len(j.tokens)]
		}
		require.Equal(t, want, append([]int32{}, j.tokens...), "seed %d, request %d", seed, j.ID)
	}
}

// execute runs a call, and verifies the drafts of it. It begins the next call where that is known. Rows of sequences
// that are gone are of a call that was begun before they ended.
func (s *simulation) execute(r *rand.Rand, x batch.Executor, sched *schedule.Scheduler, call *schedule.Call,
	jobs []*job, gone map[schedule.ID]bool) []schedule.Result {
	t := s.t
	t.Helper()
	var rows, behind []batch.Row
	for _, e := range call.Entries {
		j := jobs[e.ID]
		for i := range e.Wanted {
			at := e.Start + e.Rows - e.Drafts - len(j.Prompt) + i
			rows, behind = append(rows, row(j, at)), append(behind, row(j, at+1))
		}
	}
	var out []batch.Output
	var err error
	var next *schedule.Call
	if r.IntN(4) > 0 {
		next = sched.Ahead()
	}
	if next != nil && r.IntN(8) > 0 {
		out, err = x.(batch.Pipelined).ExecuteAhead(t.Context(), call, rows, &batch.Foreseen{Call: next, Rows: behind})
	} else {
		out, err = x.Execute(t.Context(), call, rows)
	}
	require.NoError(t, err)
	s.calls, s.rows = s.calls+1, s.rows+len(call.Tokens)
	var results []schedule.Result
	for _, e := range call.Entries {
		if e.Wanted == 0 {
			continue
		}
		if gone[e.ID] {
			out = out[e.Wanted:]
			continue
		}
		j, result := jobs[e.ID], schedule.Result{ID: e.ID}
		for i := range e.Wanted {
			token := out[i].Token
			result.Tokens = append(result.Tokens, token)
			if i < e.Drafts && call.Tokens[e.First+e.Rows-e.Drafts+i] != token {
				break
			}
		}
		out = out[e.Wanted:]
		j.tokens = append(j.tokens, result.Tokens...)
		if next == nil { // else the next call is planned without drafts
			result.Drafts = s.drafts(r, j)
		}
		results = append(results, result)
	}
	return results
}

// drafts proposes the tokens after, some of them wrong.
func (s *simulation) drafts(r *rand.Rand, j *job) []int32 {
	if j.Drafts == 0 {
		return nil
	}
	rest := s.answer(j)[len(j.tokens):]
	rest = append([]int32{}, rest[:min(len(rest), r.IntN(j.Drafts+1))]...)
	if len(rest) > 0 && r.IntN(2) == 0 {
		rest[len(rest)-1] = 5
	}
	return rest
}
