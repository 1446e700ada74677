package batch_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// twins are the same sequences of two pools, one of which is told what comes next. Both must give the same.
type twins struct {
	*testing.T
	pools  [2]*batch.Pool // the second one is told
	of     [2][]*batch.Sequence
	tokens [][]int32 // that are fed next to each sequence
}

// feed feeds sequences; next says whether the second pool is told that the drawn tokens come next.
func (w *twins) feed(next bool, sequences ...int) {
	w.Helper()
	require.NoError(w, w.try(next, sequences...))
}

// try is feed where both pools may give an error, the same one.
func (w *twins) try(next bool, sequences ...int) error {
	w.Helper()
	var outs [2][][]batch.Output
	var errs [2]error
	for i, p := range w.pools {
		var feeds []batch.Feed
		for _, n := range sequences {
			f := batch.Feed{Sequence: w.of[i][n], Tokens: w.tokens[n], Rows: make([]batch.Row, 1)}
			if next && i == 1 {
				f.Next = &batch.Row{}
			}
			feeds = append(feeds, f)
		}
		outs[i], errs[i] = p.Feed(w.Context(), feeds...)
		require.NoError(w, batch.PoisonPool(p))
	}
	require.Equal(w, errs[0], errs[1])
	require.Equal(w, outs[0], outs[1])
	for i, n := range sequences {
		if errs[0] == nil {
			w.tokens[n] = []int32{outs[0][i][0].Token}
		}
	}
	return errs[0]
}

// newTwins opens two sequences of each pool.
func newTwins(t *testing.T, m *ir.Module, e *eager, o batch.RaggedOptions) *twins {
	t.Helper()
	w := &twins{T: t, tokens: [][]int32{ids(0, 9), ids(1, 6)},
		pools: [2]*batch.Pool{newPool(t, m, drawing{}, eval.FP32, o), newPool(t, m, e, eval.FP32, o)}}
	for i, p := range w.pools {
		w.of[i] = []*batch.Sequence{p.Open(), p.Open()}
	}
	return w
}

// TestPoolAhead: sequences of a pool whose caller says what comes next give the same, whatever comes then.
func TestPoolAhead(t *testing.T) {
	for _, name := range []string{"etc-gemma4-chat-sample", "neighbours/qwen35-4w"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, e := fusetest.Load(t, name), &eager{}
			w := newTwins(t, m, e, small)
			for range 7 { // the first time prompts
				w.feed(true, 0, 1)
			}
			taken := e.taken.Load()
			require.Positive(t, taken)
			w.feed(true, 0) // without the other
			w.tokens[0] = ids(2, 5)
			for range 7 { // first other tokens than the one that was drawn
				w.feed(true, 0)
			}
			w.feed(true, 0, 1)
			w.feed(true, 0, 1)
			for i := range w.of { // a fork, and both go on
				f, err := w.of[i][0].Fork()
				require.NoError(t, err)
				w.of[i] = append(w.of[i], f)
			}
			w.tokens = append(w.tokens, []int32{9})
			w.feed(true, 0, 2)
			w.feed(true, 0, 2)
			for i := range w.of {
				require.Error(t, w.of[i][0].Rollback(7))
				w.of[i][2].Close()
			}
			w.feed(true, 0, 1)
			w.feed(false, 0, 1)
			require.Greater(t, e.taken.Load(), taken)
			for i, p := range w.pools {
				for _, s := range w.of[i][:2] {
					s.Close()
				}
				require.Zero(t, p.Used())
			}
		})
	}
}

// TestPoolAheadAtTheEnd: a pool that is told what comes next gives no other error and no earlier one, at the end of its
// memory and of the context, and goes on when a sequence has gone.
func TestPoolAheadAtTheEnd(t *testing.T) {
	for _, name := range []string{"etc-gemma4-chat-sample", "neighbours/qwen35-4w"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, e := fusetest.Load(t, name), &eager{}
			o := small
			o.Positions, o.Sequences = 20, 2 // there is memory for two sequences of this length
			w := newTwins(t, m, e, o)
			var err error
			for err == nil {
				err = w.try(true, 0, 1)
			}
			require.ErrorIs(t, err, batch.ErrNoMemory)
			require.GreaterOrEqual(t, w.of[1][0].Position(), 20)
			for i := range w.of {
				require.Equal(t, w.of[0][0].Position(), w.of[i][0].Position())
				w.of[i][1].Close()
			}
			for range 5 {
				w.feed(true, 0)
			}

			w = newTwins(t, m, e, small)
			most := w.pools[0].Limits().Positions
			w.tokens[0] = ids(0, most-3)
			for range 4 {
				w.feed(true, 0)
			}
			require.Equal(t, most, w.of[1][0].Position())
			require.ErrorContains(t, w.try(true, 0), "do not fit the context")
			w.feed(true, 1)
		})
	}
}

// TestPoolAheadFails: after a call that failed with the next one begun, its sequences can only be closed, which gives
// all of their memory back, and others go on.
func TestPoolAheadFails(t *testing.T) {
	m, e := fusetest.Load(t, "neighbours/qwen35-4w"), &eager{}
	w := newTwins(t, m, e, small)
	for range 4 {
		w.feed(true, 0, 1)
	}
	require.Positive(t, e.taken.Load())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := w.of[1][0]
	_, err := w.pools[1].Feed(ctx, batch.Feed{Sequence: s, Tokens: []int32{200}, Rows: make([]batch.Row, 1),
		Next: &batch.Row{}})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Rollback(1), context.Canceled)
	for i := range w.of {
		w.of[i][0].Close()
		w.of[i][0].Close()
	}
	for range 4 {
		w.feed(true, 1)
	}
	for i, p := range w.pools {
		w.of[i][1].Close()
		require.Zero(t, p.Used())
	}
}
