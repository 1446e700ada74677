package batch_test

import (
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/cuda"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/metal"
	"github.com/etc-ml/etc/runtime/reference"
)

// requireNear compares the logits of a row with want, which the reference engine gave, and the most likely token where
// it leads by more than 1e-3. Sums in another order differ by rounding, at nearly all positions by less than 5e-4. A
// position with a norm of nearly zero, or with two experts of nearly equal scores, makes more of it. What the engine
// gives for the sequence alone shows how much: the row may be four times as far from want as alone is.
func requireNear(t testing.TB, want, alone, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	require.Len(t, alone, len(want), what)
	tolerance := 5e-4
	for i, v := range want {
		tolerance = max(tolerance, 4*math.Abs(float64(alone[i]-v))/max(1, math.Abs(float64(v))))
	}
	require.Less(t, tolerance, 5e-2, "%s: the engine alone is far from the reference engine", what)
	best, second := 0, -1
	for i, v := range want {
		d := math.Abs(float64(got[i]) - float64(v))
		if within := tolerance * max(1, math.Abs(float64(v))); !(d <= within) {
			require.Fail(t, what, "token %d is %g, want %g within %g", i, got[i], v, within)
		}
		switch {
		case v > want[best]:
			best, second = i, best
		case i != best && (second < 0 || v > want[second]):
			second = i
		}
	}
	if want[best]-want[second] > 1e-3 {
		for _, v := range got {
			if !(v <= got[best]) {
				require.Fail(t, what, "token %d has %g, another %g", best, got[best], v)
			}
		}
	}
}

// TestRaggedOnCPU: the CPU engine has kernels for everything, and gives what the reference engine gives one sequence
// alone.
func TestRaggedOnCPU(t *testing.T) {
	for i, name := range models() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && i%2 > 0 {
				t.Skip("half of the models are enough for a short test")
			}
			m := fusetest.Load(t, name)
			total, schedules := 60, *schedules
			if testing.Short() {
				total, schedules = 14, 1
			}
			reference := newPool(t, m, reference.Engine{}, eval.FP32, small)
			pool := newPool(t, m, cpu.Engine{}, eval.FP32, small)
			var want, alone [][][]float32
			for i := range 2 {
				want = append(want, aloneLogits(t, reference, ids(i, total)))
				alone = append(alone, aloneLogits(t, pool, ids(i, total)))
			}
			near := func(t testing.TB, of, position int, got []float32, what string) {
				requireNear(t, want[of][position], alone[of][position], got, what)
			}
			for seed := range schedules {
				feedAtRandom(t, pool, len(want), total, uint64(seed+1000*len(name)), near)
			}
		})
	}
}

// callsOf gives the logits of all tokens of a sequence that is fed alone, so many tokens a call.
func callsOf(t testing.TB, rows int, pool *batch.Pool, tokens []int32) (out [][]float32) {
	t.Helper()
	s := pool.Open()
	defer s.Close()
	for part := range slices.Chunk(tokens, rows) {
		given, err := s.Feed(t.Context(), part, slices.Repeat([]batch.Row{greedyLogits}, len(part))...)
		require.NoError(t, err)
		for _, row := range given {
			out = append(out, row.Logits)
		}
	}
	return out
}

// farthest gives, for each position, the logits that the engine computed farthest from want when the sequence was fed
// alone. Kernels for one token, for a few and for chunks of a prompt add up in another order each, so they round
// elsewhere.
func farthest(t testing.TB, pool *batch.Pool, tokens []int32, want [][]float32) [][]float32 {
	t.Helper()
	distance := func(x, y []float32) (out float64) {
		for i := range x {
			out = max(out, math.Abs(float64(x[i]-y[i])))
		}
		return out
	}
	out := aloneLogits(t, pool, tokens)
	for _, rows := range []int{3, 5, 16} {
		for i, logits := range callsOf(t, rows, pool, tokens) {
			if distance(want[i], logits) > distance(want[i], out[i]) {
				out[i] = logits
			}
		}
	}
	return out
}

// TestRaggedOnGPU: the GPU engine has kernels for everything, and gives what the reference engine gives one sequence
// alone. The emulator takes seconds for a model; a device that ETC_TEST_DEVICE names runs all of them.
func TestRaggedOnGPU(t *testing.T) {
	e := onGPU(t)
	names, total, runs := []string{"etc-gemma4-chat-sample", "etc-qwen35moe-chat-sample",
		"qwen35moe-chat-4w-g64-f32-scan",
		"neighbours/gemma4moe-4w"}, 24, 1
	switch {
	case testing.Short():
		names, total = names[1:2], 8
	case os.Getenv("ETC_TEST_DEVICE") != "":
		names, total, runs = models(), 60, *schedules
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m := fusetest.Load(t, name)
			reference := newPool(t, m, reference.Engine{}, eval.FP32, small)
			pool := newPool(t, m, e, eval.FP32, small)
			var want, alone [][][]float32
			for i := range 2 {
				want = append(want, aloneLogits(t, reference, ids(i, total)))
				alone = append(alone, farthest(t, pool, ids(i, total), want[i]))
			}
			near := func(t testing.TB, of, position int, got []float32, what string) {
				requireNear(t, want[of][position], alone[of][position], got, what)
			}
			for seed := range runs {
				feedAtRandom(t, pool, len(want), total, uint64(seed+1000*len(name)), near)
			}
		})
	}
}

// TestRaggedOnGPUInMixed: prompts beside single tokens give what the reference engine gives: also where products and
// attention go by tiles of bfloat16, up to what these round. That is told by a model without experts: others choose
// other experts for a token now and then.
func TestRaggedOnGPUInMixed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestBlocksByTiles of runtime/gpu has the kernels")
	}
	e := onGPU(t)
	for what, c := range map[string]struct {
		name      string
		exact     bool
		tolerance float64
	}{
		"windows, tiles": {"gemma4-chat-bf16-ropefix", false, 6e-2},
		"windows, exact": {"gemma4-chat-bf16-ropefix", true, 5e-3},
		"hybrid, exact":  {"etc-qwen35moe-chat-sample", true, 1e-3},
		"hybrid, tiles":  {"neighbours/qwen35-4w", false, 6e-2},
	} {
		t.Run(what, func(t *testing.T) {
			m, o := fusetest.Load(t, c.name), batch.RaggedOptions{Rows: 48, Sequences: 3, BlockRows: 4}
			o.Engine.Exact = c.exact
			var outs [2][][]batch.Output
			for i, e := range []engine.Engine{reference.Engine{}, e} {
				pool := newPool(t, m, e, eval.Mixed, o)
				a, b := pool.Open(), pool.Open()
				feed := func(feeds ...batch.Feed) {
					out, err := pool.Feed(t.Context(), feeds...)
					require.NoError(t, err)
					outs[i] = append(outs[i], out...)
				}
				rows := []batch.Row{greedyLogits, greedyLogits}
				feed(batch.Feed{Sequence: a, Tokens: ids(0, 21), Rows: rows},
					batch.Feed{Sequence: b, Tokens: ids(1, 3), Rows: rows})
				feed(batch.Feed{Sequence: a, Tokens: ids(0, 22)[21:], Rows: rows[:1]},
					batch.Feed{Sequence: b, Tokens: ids(1, 37)[3:], Rows: rows})
				require.NoError(t, batch.PoisonPool(pool))
				feed(batch.Feed{Sequence: a, Tokens: ids(0, 23)[22:], Rows: rows[:1]},
					batch.Feed{Sequence: b, Tokens: ids(1, 38)[37:], Rows: rows[:1]})
				a.Close()
				b.Close()
			}
			for i, list := range outs[0] {
				for j, want := range list {
					var difference, size float64
					for k, v := range want.Logits {
						difference += math.Pow(float64(v-outs[1][i][j].Logits[k]), 2)
						size += float64(v) * float64(v)
					}
					require.Less(t, math.Sqrt(difference/size), c.tolerance, "feed %d, row %d", i, j)
				}
			}
		})
	}
}

// TestDrawnOnGPU: tokens that the device draws are those that the host draws from the reference engine's logits.
func TestDrawnOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestDrawnWhereLogitsAre has the reference engine, and the kernels have tests of their own")
	}
	m, o := fusetest.Load(t, "gemma4-chat-bf16-ropefix"), batch.RaggedOptions{Rows: 16, Sequences: 3, BlockRows: 4}
	requireDrawn(t, newPool(t, m, reference.Engine{}, eval.FP32, o), newPool(t, m, onGPU(t), eval.FP32, o), 8)
}

// onGPU is the engine of the device that ETC_TEST_DEVICE names: metal or cuda; else that of the emulator.
func onGPU(t testing.TB) engine.Engine {
	t.Helper()
	open := func() (device.Device, error) { return emulator.Open(emulator.Options{}) }
	name := os.Getenv("ETC_TEST_DEVICE")
	switch name {
	case "metal":
		open = metal.Open
	case "cuda":
		open = func() (device.Device, error) { return cuda.Open(cuda.Options{}) }
	default:
		name = "emulator"
	}
	d, err := open()
	if errors.Is(err, device.ErrUnavailable) && name == "emulator" {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return gpu.Engine{Device: name, Open: open}
}
