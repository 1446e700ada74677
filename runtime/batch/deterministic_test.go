package batch_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// requireDeterministic requires, bit for bit, that rows of two sequences in random calls of an executor give what they give
// in another executor, of other blocks and one sequence at a time, that is fed token by token.
func requireDeterministic(t *testing.T, m *ir.Module, e engine.Engine, p eval.Precision, total, schedules int) {
	t.Helper()
	o := small
	o.Engine.Deterministic, o.Engine.Threads = true, 3
	pool := newPool(t, m, e, p, o)
	one := batch.RaggedOptions{Rows: 32, Sequences: 1}
	one.Engine.Deterministic, one.Engine.Threads = true, 1
	alone := newPool(t, m, e, p, one)
	var want [][][]float32
	for i := range 2 {
		want = append(want, aloneLogits(t, alone, ids(i, total)))
	}
	same := func(t testing.TB, of, position int, got []float32, what string) {
		require.Equal(t, want[of][position], got, what) // bit for bit
	}
	for seed := range schedules {
		feedAtRandom(t, pool, len(want), total, uint64(seed), same)
	}
	whole := alone.Open()
	defer whole.Close()
	given, err := whole.Feed(t.Context(), ids(0, total), greedyLogits, greedyLogits)
	require.NoError(t, err)
	same(t, 0, total-2, given[0].Logits, "the last but one of the whole prompt")
	same(t, 0, total-1, given[1].Logits, "the last of the whole prompt")
}

// TestDeterministicOnCPU: with engine.Options.Deterministic a row does not depend on which others share its calls, in the
// CPU's own arithmetic: products of codes rounded to 8 bits, tiles, chunks of the delta rule.
func TestDeterministicOnCPU(t *testing.T) {
	for i, name := range models() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total, schedules, precisions := 70, *schedules, []eval.Precision{eval.Mixed, eval.FP32}
			if testing.Short() {
				if i%3 > 0 {
					t.Skip("a third of the models is enough for a short test")
				}
				total, schedules, precisions = 20, 1, precisions[:1]
			}
			for _, p := range precisions {
				requireDeterministic(t, fusetest.Load(t, name), cpu.Engine{}, p, total, schedules)
			}
		})
	}
}

// TestDeterministicOnGPU is the same for a GPU, whose calls all have one number of rows.
func TestDeterministicOnGPU(t *testing.T) {
	names, total, runs := []string{"etc-qwen35moe-chat-sample", "gemma4-chat-bf16-ropefix", "neighbours/gemma4moe-4w"}, 20, 1
	switch {
	case os.Getenv("ETC_TEST_DEVICE") != "":
		names, total, runs = models(), 60, *schedules
	case testing.Short():
		t.Skip("-short: the emulator takes seconds for a model, and TestPiecesOfCalls has how calls are cut")
	}
	e := onGPU(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			requireDeterministic(t, fusetest.Load(t, name), e, eval.Mixed, total, runs)
		})
	}
}
