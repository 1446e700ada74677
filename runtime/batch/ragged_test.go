package batch_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// models are the graphs of all families, ours and ExecuTorch's.
func models() []string { return append(fusetest.Names(), fusetest.Neighbours()...) }

// greedyLogits asks for the logits and the most likely token.
var greedyLogits = batch.Row{Logits: true}

// newPool compiles a model for calls of many sequences.
func newPool(t testing.TB, m *ir.Module, e engine.Engine, p eval.Precision, o batch.RaggedOptions) *batch.Pool {
	t.Helper()
	o.Engine.Precision, o.Engine.Warn = p, func(text string) { t.Error(text) }
	x, err := batch.NewRagged(m, e, o)
	require.NoError(t, err)
	pool, err := batch.NewPool(x, 1<<40)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// small are bounds of calls that make blocks end and calls split often.
var small = batch.RaggedOptions{Rows: 12, Sequences: 3, BlockRows: 4}

// ids are tokens of a sequence, the same every time.
func ids(sequence, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((sequence*131+i*37)%200 + 3)
	}
	return out
}

// aloneLogits feeds tokens one by one to a pool that has nothing else.
func aloneLogits(t testing.TB, pool *batch.Pool, tokens []int32) [][]float32 {
	t.Helper()
	return callsOf(t, 1, pool, tokens)
}

// TestRaggedIsAlone: whatever else is in the calls and however prompts are cut, forked and rolled back, each row of
// each sequence gives bit for bit what it gives in a sequence that is fed alone, token by token. Units that nobody
// holds are poisoned.
func TestRaggedIsAlone(t *testing.T) {
	for _, name := range models() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			total, schedules, precisions := 60, *schedules, []eval.Precision{eval.FP32, eval.Mixed}
			if testing.Short() {
				total, schedules, precisions = 14, 1, precisions[:1]
				if isOneOf(name, fusetest.Names()[1], fusetest.Neighbours()[0]) {
					precisions = []eval.Precision{eval.Mixed}
				}
			}
			for _, p := range precisions {
				pool := newPool(t, m, reference.Engine{}, p, small)
				want := make([][][]float32, 2)
				for i := range want {
					want[i] = aloneLogits(t, pool, ids(i, total))
				}
				same := func(t testing.TB, of, position int, got []float32, what string) {
					require.Equal(t, want[of][position], got, what) // bit for bit
				}
				for seed := range schedules {
					feedAtRandom(t, pool, len(want), total, uint64(seed+1000*len(name)), same)
				}
			}
		})
	}
}

func isOneOf(name string, names ...string) bool { return slices.Contains(names, name) }

// TestRaggedIsTheProgram: fed alone, a sequence gives the logits of the file's own program, up to the order of sums,
// and the same tokens.
func TestRaggedIsTheProgram(t *testing.T) {
	for _, name := range models() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			total := 18 // more than the windows of some
			if !testing.Short() {
				total = 80
			}
			pool := newPool(t, m, reference.Engine{}, eval.FP32, batch.RaggedOptions{Rows: 64, Sequences: 1})
			s := pool.Open()
			x, err := eval.NewMachine(m, eval.FP32, nil)
			require.NoError(t, err)
			for pos := 0; pos < total; {
				n := min([]int{5, 1, 1, 3}[pos%4], total-pos)
				tokens := ids(0, total)[pos : pos+n]
				in := fusetest.Inputs(m, pos, n)
				for i, id := range tokens {
					in[0].Tensor.I[i] = int64(id)
				}
				if len(in) > 2 {
					in[2].Tensor.F[0] = 0 // the most likely token
				}
				want, err := x.Run(in)
				require.NoError(t, err)
				got, err := s.Feed(t.Context(), tokens, greedyLogits)
				require.NoError(t, err)
				if len(in) > 2 {
					require.Equal(t, want[0].Tensor.I[0], int64(got[0].Token))
				} else {
					last := want[0].Tensor.F[len(want[0].Tensor.F)-pool.Limits().Vocab:]
					for i, v := range last {
						require.InDelta(t, v, got[0].Logits[i], 1e-4*max(1, math.Abs(float64(v))), "position %d",
							pos+n-1)
					}
				}
				pos += n
			}
		})
	}
}

// walker is a sequence of a random schedule.
type walker struct {
	of  int // which of the sequences it has the tokens of
	seq *batch.Sequence
}

// feedAtRandom feeds sequences of total tokens each in calls of random rows, and has the logits of each row checked.
// Some sequences are forked, some of their rows are taken back, some are closed and begun again.
func feedAtRandom(t testing.TB, pool *batch.Pool, sequences, total int, seed uint64, same func(t testing.TB, of,
	position int, got []float32, what string)) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	var all []*walker
	for i := range sequences {
		all = append(all, &walker{i, pool.Open()})
	}
	for range 2*total - 5 {
		var feeds []batch.Feed
		for _, w := range all {
			pos := w.seq.Position()
			n := min(r.IntN(4), total-pos)
			if r.IntN(6) == 0 {
				n = min(r.IntN(11), total-pos)
			}
			if n > 0 {
				feeds = append(feeds, batch.Feed{Sequence: w.seq, Tokens: ids(w.of, total)[pos : pos+n],
					Rows: make([]batch.Row, r.IntN(n+1)), Exact: n < 4 && r.IntN(2) == 0})
				for i := range feeds[len(feeds)-1].Rows {
					feeds[len(feeds)-1].Rows[i] = greedyLogits
				}
			}
		}
		if len(feeds) == 0 {
			continue
		}
		out, err := pool.Feed(context.Background(), feeds...)
		require.NoError(t, err)
		at := 0
		for _, w := range all {
			if at == len(feeds) || feeds[at].Sequence != w.seq {
				continue
			}
			f, pos := feeds[at], w.seq.Position()
			require.Len(t, out[at], len(f.Rows))
			for i, o := range out[at] {
				same(t, w.of, pos-len(f.Rows)+i, o.Logits, fmt.Sprintf("seed %d, sequence %d, position %d",
					seed, w.of, pos-len(f.Rows)+i))
			}
			if f.Exact && r.IntN(2) == 0 {
				require.NoError(t, w.seq.Rollback(r.IntN(len(f.Tokens)+1)))
			}
			at++
		}
		if r.IntN(4) == 0 {
			require.NoError(t, batch.PoisonPool(pool))
		}
		for _, w := range all {
			if w.seq.Position() == total {
				w.seq.Close()
				w.seq = pool.Open()
			}
		}
		switch i := r.IntN(len(all)); r.IntN(8) {
		case 0:
			fork, err := all[i].seq.Fork()
			require.NoError(t, err)
			if len(all) < 5 {
				all = append(all, &walker{all[i].of, fork})
			} else {
				fork.Close()
			}
		case 1:
			all[i].seq.Close()
			all[i].seq = pool.Open()
		}
	}
	for _, w := range all {
		w.seq.Close()
	}
	require.Zero(t, pool.Used())
}

// TestUnitsOfPositions: an executor for sequences of so many tokens has room for just them.
func TestUnitsOfPositions(t *testing.T) {
	m := fusetest.Load(t, models()[0])
	x, err := batch.NewRagged(m, reference.Engine{},
		batch.RaggedOptions{Rows: 12, Sequences: 2, BlockRows: 4, Positions: 10})
	require.NoError(t, err)
	require.Less(t, 10, x.Limits().Positions)
	pool, err := batch.NewPool(x, 1<<40)
	require.NoError(t, err)
	defer pool.Close()
	a, b := pool.Open(), pool.Open()
	tokens := ids(0, 12)
	for i := range 5 {
		_, err := pool.Feed(t.Context(),
			batch.Feed{Sequence: a, Tokens: tokens[2*i : 2*i+2], Rows: make([]batch.Row, 1)},
			batch.Feed{Sequence: b, Tokens: tokens[2*i : 2*i+2]})
		require.NoError(t, err)
	}
	for range 4 { // what is left over for copies
		if _, err = a.Feed(t.Context(), tokens[:4]); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, batch.ErrNoMemory)
}

// TestRowsFor: calls have few sizes, and on engines of the host no more than an eighth of the rows of a prompt is
// padding.
func TestRowsFor(t *testing.T) {
	sizes := map[int]bool{}
	for n := 1; n <= 500; n++ {
		got := batch.RowsFor(n, 500, false)
		sizes[got] = true
		require.GreaterOrEqual(t, got, n)
		require.LessOrEqual(t, got, 500)
		if n <= 24 {
			require.Equal(t, batch.RowsFor(n, 500, true), got)
		} else {
			require.LessOrEqual(t, got, n+max(8, n/8), "%d rows", n)
		}
	}
	require.Less(t, len(sizes), 60)
	require.Equal(t, 384, batch.RowsFor(260, 500, true))
	require.Equal(t, 272, batch.RowsFor(260, 500, false))
}

// planned is an engine that takes long to plan a call, as those of devices do.
type planned struct{ drawing }

func (planned) RunsAnyRows() bool { return false }

// TestRowsOfEngines: the CPU engine draws tokens as devices do, and its calls have finer sizes than theirs all the
// same.
func TestRowsOfEngines(t *testing.T) {
	m := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	for want, e := range map[int]engine.Engine{272: cpu.Engine{}, 384: planned{}} {
		x, err := batch.NewRagged(m, e, batch.RaggedOptions{Rows: 500, Sequences: 2})
		require.NoError(t, err)
		require.Equal(t, want, batch.RowsOfCall(x, 260), "%T", e)
		require.NoError(t, x.Close())
	}
}

// longCalls is an engine on which prompts are faster in calls of up to 2048 rows.
type longCalls struct{ cpu.Engine }

func (longCalls) PromptRows() int { return 2048 }

// TestRowsByDefault: calls have the rows that the engine asks for, fewer where windows would take much of the memory,
// and one for each sequence at least.
func TestRowsByDefault(t *testing.T) {
	gemma, qwen := fusetest.Load(t, "etc-gemma4-chat-sample"), fusetest.Load(t, "etc-qwen35moe-chat-sample")
	for name, c := range map[string]struct {
		m    *ir.Module
		e    engine.Engine
		o    batch.RaggedOptions
		rows int
	}{
		"a host":           {gemma, cpu.Engine{}, batch.RaggedOptions{}, 512},
		"many sequences":   {gemma, cpu.Engine{}, batch.RaggedOptions{Sequences: 600}, 600},
		"long calls":       {gemma, longCalls{}, batch.RaggedOptions{}, 2048},
		"rows as given":    {gemma, longCalls{}, batch.RaggedOptions{Rows: 100}, 100},
		"much memory":      {gemma, longCalls{}, batch.RaggedOptions{Budget: 64 << 20, Sequences: 2}, 2048},
		"little memory":    {gemma, longCalls{}, batch.RaggedOptions{Budget: 32 << 20, Sequences: 2}, 1024},
		"less":             {gemma, longCalls{}, batch.RaggedOptions{Budget: 4 << 20, Sequences: 2}, 512},
		"no windows":       {qwen, longCalls{}, batch.RaggedOptions{Budget: 4 << 20, Sequences: 2}, 2048},
		"as deterministic": {qwen, longCalls{}, batch.RaggedOptions{Engine: engine.Options{Deterministic: true}}, 2048},
	} {
		x, err := batch.NewRagged(c.m, c.e, c.o)
		require.NoError(t, err, name)
		require.Equal(t, c.rows, x.Limits().Rows, name)
		require.NoError(t, x.Close())
	}
}
