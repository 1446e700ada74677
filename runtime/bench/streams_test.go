package bench_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/bench"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
)

// calls is an executor that notes the rows of each entry of each call, and lets a clock go on by a second a call.
type calls struct {
	entries [][]int
	tokens  []int32 // of all rows
	clock   time.Time
}

func (*calls) Layout() cache.Layout { return cache.Layout{BlockRows: 4, BlockBytes: 1} }
func (*calls) Units() cache.Demand  { return cache.Demand{1000, 0} }
func (*calls) Close() error         { return nil }
func (*calls) Limits() batch.Limits {
	return batch.Limits{Rows: 16, Sequences: 8, Positions: contextLen, Vocab: vocabulary}
}

func (x *calls) Execute(_ context.Context, call *schedule.Call, rows []batch.Row) ([]batch.Output, error) {
	var entries []int
	for _, e := range call.Entries {
		entries = append(entries, e.Rows)
	}
	x.entries, x.tokens = append(x.entries, entries), append(x.tokens, call.Tokens...)
	x.clock = x.clock.Add(time.Second)
	return make([]batch.Output, len(rows)), nil
}

// TestStreams: all prompts go into calls as long as the executor takes, then each call has a token of each stream;
// every shape is run once before it is measured, and nothing is left behind.
func TestStreams(t *testing.T) {
	x := &calls{}
	pool, err := batch.NewPool(x, 1000)
	require.NoError(t, err)
	o := bench.StreamOptions{Streams: []int{1, 4}, Prompt: []int{6}, Generate: []int{5}, Repetitions: 2,
		Now: func() time.Time { return x.clock }}
	require.NoError(t, o.Check(11))
	rows, err := bench.RunStreams(t.Context(), pool, o)
	require.NoError(t, err)
	one, four := bench.StreamSample{Prefill: 6, Decode: 1, Total: 11. / 6},
		bench.StreamSample{Prefill: 12, Decode: 4, Total: 44. / 7}
	require.Equal(t, []bench.StreamRow{
		{Streams: 1, Prompt: 6, Generate: 5, Samples: []bench.StreamSample{one, one}, Median: one},
		{Streams: 4, Prompt: 6, Generate: 5, Samples: []bench.StreamSample{four, four}, Median: four},
	}, rows)
	alone := slices.Concat([][]int{{6}}, slices.Repeat([][]int{{1}}, 5))
	together := slices.Concat([][]int{{6, 6, 4}, {2, 6}}, slices.Repeat([][]int{{1, 1, 1, 1}}, 5))
	require.Equal(t, slices.Concat(alone[:5], alone, alone, together[:6], together, together), x.entries)
	last := x.tokens[len(x.tokens)-44:]
	require.NotEqual(t, last[:6], last[6:12], "prompts of two streams")
	require.Zero(t, pool.Used())
	require.NoError(t, pool.Close())
}

// TestStreamsRefused: what cannot be measured is told before anything runs.
func TestStreamsRefused(t *testing.T) {
	good := bench.StreamOptions{Streams: []int{1, 2}, Prompt: []int{3}, Generate: []int{4}, Repetitions: 1}
	require.NoError(t, good.Check(7))
	require.ErrorContains(t, good.Check(6), "7 tokens of prompt and answer do not fit the context of 6 tokens")
	for want, change := range map[string]func(o *bench.StreamOptions){
		"0 repetitions":      func(o *bench.StreamOptions) { o.Repetitions = 0 },
		"nothing to measure": func(o *bench.StreamOptions) { o.Prompt = nil },
		"-1: streams answer": func(o *bench.StreamOptions) { o.Streams = []int{4, -1} },
		"0: streams answer":  func(o *bench.StreamOptions) { o.Generate = []int{0} },
	} {
		o := good
		change(&o)
		require.ErrorContains(t, o.Check(7), want)
	}
}
