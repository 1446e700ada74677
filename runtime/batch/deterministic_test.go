package batch_test

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/reference"
)

// requireDeterministic requires, bit for bit, that rows of two sequences in random calls of an executor give what they
// give in another executor, of other blocks and one sequence at a time, that is fed token by token.
func requireDeterministic(t *testing.T, m *ir.Module, e engine.Engine, p eval.Precision, storage ragged.Storage,
	total, schedules int) {
	t.Helper()
	o := small
	o.Engine.Deterministic, o.Engine.Threads, o.Storage = true, 3, storage
	pool := newPool(t, m, e, p, o)
	one := batch.RaggedOptions{Rows: 32, Sequences: 1, Storage: storage}
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

// TestDeterministicOnCPU: with engine.Options.Deterministic a row does not depend on which others share its calls, in
// the CPU's own arithmetic: products of codes rounded to 8 bits, tiles, chunks of the delta rule.
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
				requireDeterministic(t, fusetest.Load(t, name), cpu.Engine{}, p, ragged.Storage{}, total, schedules)
			}
		})
	}
}

// TestDeterministicOnGPU is the same for a GPU, whose calls all have one number of rows.
func TestDeterministicOnGPU(t *testing.T) {
	names, total, runs := []string{"etc-qwen35moe-chat-sample", "gemma4-chat-bf16-ropefix", "neighbours/gemma4moe-4w"},
		12, 1
	switch {
	case os.Getenv("ETC_TEST_DEVICE") != "":
		names, total, runs = models(), 60, *schedules
	case testing.Short():
		t.Skip("-short: the emulator takes seconds for a model, and TestPiecesOfCalls has how calls are cut")
	}
	e := onGPU(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			requireDeterministic(t, fusetest.Load(t, name), e, eval.Mixed, ragged.Storage{}, total, runs)
		})
	}
}

// stored are the forms of state that a model can be asked for, which depend on what state it has.
func stored(t testing.TB, m *ir.Module) (out []ragged.Storage) {
	t.Helper()
	for _, s := range []ragged.Storage{{Q8: true}, {HalfState: true}, {Q8: true, HalfState: true}} {
		if _, err := fuse.Sequences(m, ragged.Options{Storage: s}); err == nil {
			out = append(out, s)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// TestStoredState: caches of 8 bits and recurrent state in bf16 are cut, forked, rolled back and shared as others are:
// bit for bit on the reference engine, which defines them, and on the CPU with engine.Options.Deterministic. State is
// rounded after every row, so no cut shows.
func TestStoredState(t *testing.T) {
	for i, name := range models() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, total, schedules := fusetest.Load(t, name), 40, 2
			forms := stored(t, m)
			forms = forms[len(forms)-1:] // all of it
			if testing.Short() {
				if i%4 > 0 {
					t.Skip("a fourth of the models is enough for a short test")
				}
				total, schedules = 14, 1
			}
			for _, s := range forms {
				requireDeterministic(t, m, reference.Engine{}, eval.Mixed, s, total, schedules)
				requireDeterministic(t, m, cpu.Engine{}, eval.Mixed, s, total, schedules)
			}
		})
	}
}

// TestStoredStateIsNear: what a form of state rounds moves logits by little, and the engines agree on it: the CPU gives
// the reference engine's logits as near as without it, but for codes that lie between two steps and fall to the other
// side.
func TestStoredStateIsNear(t *testing.T) {
	names := []string{"etc-qwen35moe-chat-sample", "etc-gemma4-chat-sample", "gemma4-chat-bf16-ropefix",
		"neighbours/gemma4moe-4w"}
	if testing.Short() {
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, total := fusetest.Load(t, name), 30
			logits := func(e engine.Engine, s ragged.Storage) [][]float32 {
				o := batch.RaggedOptions{Rows: 32, Sequences: 1, Storage: s}
				o.Engine.Exact = true
				return aloneLogits(t, newPool(t, m, e, eval.Mixed, o), ids(0, total))
			}
			declared := logits(reference.Engine{}, ragged.Storage{})
			for _, s := range stored(t, m) {
				want := logits(reference.Engine{}, s)
				moved := distance(declared, want)
				require.NotZero(t, moved, "%s rounds nothing", s)
				require.Less(t, moved, 0.1, "%s", s)
				require.Less(t, distance(want, logits(cpu.Engine{}, s)), max(moved/2, 1e-3), "%s", s)
			}
		})
	}
}

// distance is the norm of the difference of all rows, as a part of that of the first ones.
func distance(a, b [][]float32) float64 {
	var difference, size float64
	for i, row := range a {
		for j, v := range row {
			difference += math.Pow(float64(v-b[i][j]), 2)
			size += float64(v) * float64(v)
		}
	}
	return math.Sqrt(difference / size)
}

// TestStoredStateOnGPU: the GPU engine has kernels for caches of 8 bits and for recurrent state in bf16: bit for bit
// alone and among others, and near what the reference engine gives.
func TestStoredStateOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the emulator takes seconds for a model, and the kernels have tests of their own")
	}
	e := onGPU(t)
	for _, name := range []string{"etc-qwen35moe-chat-sample", "etc-gemma4-chat-sample"} {
		t.Run(name, func(t *testing.T) {
			m, total := fusetest.Load(t, name), 12
			forms := stored(t, m)
			s := forms[len(forms)-1]
			requireDeterministic(t, m, e, eval.Mixed, s, total, 1)
			logits := func(e engine.Engine, s ragged.Storage) [][]float32 {
				o := batch.RaggedOptions{Rows: 32, Sequences: 1, Storage: s}
				o.Engine.Exact = true
				return aloneLogits(t, newPool(t, m, e, eval.Mixed, o), ids(0, total))
			}
			want := logits(reference.Engine{}, s)
			moved := distance(logits(reference.Engine{}, ragged.Storage{}), want)
			require.Less(t, distance(want, logits(e, s)), max(moved/2, 1e-3))
		})
	}
}
