package batch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/session"
)

// BenchmarkOneStream decodes in turns by a session and by a ragged call of one row, after 3500 positions, and
// reports the least time of each in microseconds.
func BenchmarkOneStream(b *testing.B) {
	for _, name := range []string{"etc-gemma4-chat-sample", "etc-qwen35moe-chat-sample"} {
		b.Run(name, func(b *testing.B) {
			m := fusetest.Load(b, name)
			o := engine.Options{Precision: eval.Mixed}
			logits, err := fuse.StripSampler(m)
			require.NoError(b, err)
			for i, k := range logits.Metadata {
				if k.Name == "use_sampling" {
					logits.Metadata[i].Values = []any{false}
				}
			}
			model, err := session.Load(logits, cpu.Engine{}, o)
			require.NoError(b, err)
			defer model.Close()
			alone, err := model.NewSession()
			require.NoError(b, err)
			defer alone.Close()
			x, err := batch.NewRagged(m, cpu.Engine{}, batch.RaggedOptions{Engine: o, Sequences: 4})
			require.NoError(b, err)
			pool, err := batch.NewPool(x, 1<<40)
			require.NoError(b, err)
			defer pool.Close()
			seq := pool.Open()
			prompt := ids(0, 3500)
			plain := make([]int, len(prompt))
			for i, id := range prompt {
				plain[i] = int(id)
			}
			_, err = alone.Prefill(b.Context(), plain, session.Greedy)
			require.NoError(b, err)
			_, err = seq.Feed(b.Context(), prompt)
			require.NoError(b, err)
			least := [2]time.Duration{time.Hour, time.Hour}
			for b.Loop() {
				start := time.Now()
				_, err = alone.Decode(b.Context(), 7, session.Greedy)
				require.NoError(b, err)
				middle := time.Now()
				_, err = seq.Feed(b.Context(), []int32{7}, batch.Row{})
				require.NoError(b, err)
				least[0], least[1] = min(least[0], middle.Sub(start)), min(least[1], time.Since(middle))
			}
			b.ReportMetric(float64(least[0].Microseconds()), "session-µs")
			b.ReportMetric(float64(least[1].Microseconds()), "ragged-µs")
		})
	}
}

// BenchmarkStreams decodes many sequences in calls of a row each, after 200 positions, and reports the tokens per
// second of all together.
func BenchmarkStreams(b *testing.B) {
	for _, name := range []string{"etc-gemma4-chat-sample", "etc-qwen35moe-chat-sample"} {
		for _, streams := range []int{1, 4, 8, 32} {
			b.Run(fmt.Sprintf("%s/%d", name, streams), func(b *testing.B) {
				m := fusetest.Load(b, name)
				x, err := batch.NewRagged(m, cpu.Engine{},
					batch.RaggedOptions{Engine: engine.Options{Precision: eval.Mixed}, Sequences: streams})
				require.NoError(b, err)
				pool, err := batch.NewPool(x, 1<<40)
				require.NoError(b, err)
				defer pool.Close()
				feeds := make([]batch.Feed, streams)
				for i := range feeds {
					feeds[i] = batch.Feed{Sequence: pool.Open(), Tokens: ids(i, 200)}
				}
				_, err = pool.Feed(b.Context(), feeds...)
				require.NoError(b, err)
				for i := range feeds {
					feeds[i].Tokens, feeds[i].Rows = []int32{7}, make([]batch.Row, 1)
				}
				for b.Loop() {
					_, err = pool.Feed(b.Context(), feeds...)
					require.NoError(b, err)
				}
				b.ReportMetric(float64(b.N*streams)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}
