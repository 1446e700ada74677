package bench_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/bench"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestDraftRows: rounds are counted by the clock, and the curve is what the times say.
func TestDraftRows(t *testing.T) {
	o := batch.RaggedOptions{Sequences: 2, Rows: 8, Positions: 24, Drafts: 3}
	o.Engine.Precision = eval.FP32
	x, err := batch.NewRagged(fusetest.Load(t, "etc-qwen35moe-chat-sample"), reference.Engine{}, o)
	require.NoError(t, err)
	pool, err := batch.NewPool(x, 1<<40)
	require.NoError(t, err)
	defer pool.Close()
	now := time.Unix(0, 0)
	tick := func() time.Time { now = now.Add(10 * time.Millisecond); return now }
	options := bench.DraftOptions{Drafts: []int{1, 3}, Depth: 5, Text: true, Repetitions: 2, Now: tick}
	require.NoError(t, options.Check(24))
	require.ErrorContains(t, options.Check(8), "3 drafts after 5 tokens do not fit the context of 8 tokens")
	rows, err := bench.RunDrafts(t.Context(), pool, options)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	for i, r := range rows {
		require.Equal(t, []int{1, 3}[i], r.Drafts)
		require.Zero(t, r.Draft)
		require.InDelta(t, 0.01, r.Verify, 1e-9)
		require.InDelta(t, 1, r.Ratio, 1e-9)
		require.Zero(t, r.Break())
		require.InDelta(t, 1, r.Curve[0].Gain, 1e-9)
		last := r.Curve[len(r.Curve)-1]
		require.InDelta(t, 1, last.Acceptance, 1e-9)
		require.InDelta(t, float64(r.Drafts+1), last.Gain, 1e-9)
		require.InDelta(t, 100*float64(r.Drafts+1), last.TokensPerSecond, 1e-6)
	}
	require.Zero(t, pool.Used(), "what was fed is taken back and closed")
	options.Text = false
	_, err = bench.RunDrafts(t.Context(), pool, options)
	require.ErrorContains(t, err, "has no draft")
	require.InDelta(t, 0.5, bench.DraftRow{Drafts: 1, Ratio: 1.5}.Break(), 1e-3)
	require.Greater(t, bench.DraftRow{Drafts: 1, Ratio: 2.5}.Break(), 1.0)
}
