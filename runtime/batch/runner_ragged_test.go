package batch_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestRunnerOnRagged: many requests at a time, with prefixes that they share, get the tokens of sequences fed alone.
func TestRunnerOnRagged(t *testing.T) {
	for _, name := range []string{"etc-gemma4-chat-sample", "neighbours/qwen35-4w"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			alone := newPool(t, m, reference.Engine{}, eval.FP32, small)
			x, err := batch.NewRagged(m, reference.Engine{}, batch.RaggedOptions{Rows: 16, Sequences: 4, BlockRows: 4,
				Engine: engine.Options{Precision: eval.FP32}})
			require.NoError(t, err)
			budget := x.Layout().Bytes(x.Units())
			r, err := batch.New(x, batch.Options{Queue: 100, Budget: budget, Prefix: budget / 2, Checkpoints: 4})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			var streams []*batch.Stream
			var want [][]int
			for i := range 7 {
				q := plain()
				for _, id := range append(ids(0, 9), ids(i, 3+i)...) {
					q.Prompt = append(q.Prompt, int(id))
				}
				q.MaxTokens, q.Sampling.Seed, q.Sampling.Temperature = 5, int64(i), float32(i%2)
				s, err := r.Submit(t.Context(), q)
				require.NoError(t, err)
				streams = append(streams, s)
				want = append(want, aloneAnswer(t, alone, q))
			}
			cached := 0
			for i, s := range streams {
				got, end := collect(t, s)
				require.Equal(t, want[i], append([]int{}, got...), fmt.Sprintf("request %d", i))
				cached += end.Cached
			}
			require.Positive(t, cached, "prompts begin alike")
		})
	}
}

// aloneAnswer is the answer of a sequence that has the device for itself.
func aloneAnswer(t *testing.T, pool *batch.Pool, q batch.Request) []int {
	t.Helper()
	s := pool.Open()
	defer s.Close()
	feed, out := []int32{}, []int{}
	for _, id := range q.Prompt {
		feed = append(feed, int32(id))
	}
	for i := range q.MaxTokens {
		d := batch.Draw{Temperature: q.Sampling.Temperature, TopP: q.Sampling.TopP, Seed: q.Sampling.Seed + int64(i)}
		given, err := s.Feed(t.Context(), feed, batch.Row{Draw: &d})
		require.NoError(t, err)
		if int(given[0].Token) == stopToken {
			break
		}
		feed = []int32{given[0].Token}
		out = append(out, int(given[0].Token))
	}
	return out
}
