package batch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	var outs [2][][]batch.Output
	for i, p := range w.pools {
		var feeds []batch.Feed
		for _, n := range sequences {
			f := batch.Feed{Sequence: w.of[i][n], Tokens: w.tokens[n], Rows: make([]batch.Row, 1)}
			if next && i == 1 {
				f.Next = &batch.Row{}
			}
			feeds = append(feeds, f)
		}
		out, err := p.Feed(w.Context(), feeds...)
		require.NoError(w, err)
		outs[i] = out
		require.NoError(w, batch.PoisonPool(p))
	}
	require.Equal(w, outs[0], outs[1])
	for i, n := range sequences {
		w.tokens[n] = []int32{outs[0][i][0].Token}
	}
}

// TestPoolAhead: sequences of a pool whose caller says what comes next give the same, whatever comes then.
func TestPoolAhead(t *testing.T) {
	for _, name := range []string{"etc-gemma4-chat-sample", "neighbours/qwen35-4w"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, e := fusetest.Load(t, name), &eager{}
			w := &twins{T: t, tokens: [][]int32{ids(0, 9), ids(1, 6)}, pools: [2]*batch.Pool{
				newPool(t, m, drawing{}, eval.FP32, small), newPool(t, m, e, eval.FP32, small)}}
			for i, p := range w.pools {
				w.of[i] = []*batch.Sequence{p.Open(), p.Open()}
			}
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
