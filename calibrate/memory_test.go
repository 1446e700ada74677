package calibrate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// longText are windows of so many tokens each, of no meaning.
func longText(count, tokens int) [][]int {
	var out [][]int
	for i := range count {
		w := make([]int, tokens)
		for j := range w {
			w[j] = (i*7919 + j*j*31 + j*17) % 700
		}
		out = append(out, w)
	}
	return out
}

// leastMemory returns the smallest bound for a run, which has to be one.
func leastMemory(t *testing.T, name string, o calibrate.Options) int64 {
	t.Helper()
	n, err := calibrate.Memory(prepared(t, name), o)
	require.NoError(t, err)
	o.MaxRAM, o.Dir = n-1, t.TempDir()
	_, err = calibrate.Run(context.Background(), prepared(t, name), o)
	require.ErrorContains(t, err, fmt.Sprintf("(%d bytes), the bound is %d bytes", n, n-1))
	return n
}

// TestMemoryBound runs shapes of text by each method within the smallest bound, within larger ones and without one:
// what is held never exceeds what was reckoned with, nor that the bound, and the weights have the same bytes.
func TestMemoryBound(t *testing.T) {
	for _, name := range []string{"gemma4-chat", "qwen35moe-chat"} {
		for _, method := range []quantize.Method{quantize.Weighted, quantize.GPTQ, quantize.Learned} {
			t.Run(fmt.Sprintf("%s %s", name, method), func(t *testing.T) {
				if testing.Short() && (name != "gemma4-chat" || method != quantize.GPTQ) {
					t.Skip("takes some seconds")
				}
				text := append(longText(2, 150), longText(1, 70)...)
				o := calibrate.Options{Windows: text, HeldOut: longText(1, 90), Recipe: scheme(method), Identity: "one"}
				var want map[string]string
				var quality *calibrate.Quality
				disk := 0
				for _, jobs := range []int{1, 3} {
					o.Jobs = jobs
					least := leastMemory(t, name, o)
					limits := []int64{0, least, least + least/32, 2 * least}
					if jobs > 1 {
						limits = limits[1:3]
					}
					for _, limit := range limits {
						o.MaxRAM, o.Dir = limit, t.TempDir()
						r, err := calibrate.Run(context.Background(), prepared(t, name), o)
						require.NoError(t, err)
						planned, held := r.Bytes()
						t.Logf("%d workers, bound %d: planned %d, held %d, %d values on disk", jobs, limit,
							planned, held, r.OnDisk())
						require.LessOrEqual(t, held, planned)
						require.Positive(t, held)
						if limit > 0 {
							require.LessOrEqual(t, planned, calibrate.ArrayBytes(limit))
						} else {
							require.Zero(t, r.OnDisk())
						}
						disk += r.OnDisk()
						require.NoError(t, r.Close())
						if want == nil {
							want, quality = stored(t, o.Dir), r.Quality
						}
						require.Equal(t, want, stored(t, o.Dir))
						require.Equal(t, quality, r.Quality)
						left, err := filepath.Glob(filepath.Join(o.Dir, "*.values"))
						require.NoError(t, err)
						require.Empty(t, left)
					}
				}
				require.Positive(t, disk, "the smallest bound puts values on disk")
			})
		}
	}
}

// TestMemoryHeld holds the bytes that are counted to those that the heap really has: at no place is more alive than is
// counted, but for what does not grow with the text.
func TestMemoryHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("collects garbage hundreds of times")
	}
	const slack = 3 << 20 // the graph, the plan, what belongs to calls and files; the values here take much more
	for name, method := range map[string]quantize.Method{"gemma4-chat": quantize.GPTQ,
		"qwen35moe-chat": quantize.Learned} {
		m := prepared(t, name)
		o := calibrate.Options{Windows: longText(12, 512), HeldOut: longText(1, 90), Jobs: 1,
			Recipe: scheme(method), Identity: "one"}
		least, err := calibrate.Memory(m, o)
		require.NoError(t, err)
		for _, limit := range []int64{0, least} {
			o.MaxRAM, o.Dir = limit, t.TempDir()
			alive := func() int64 {
				runtime.GC()
				var s runtime.MemStats
				runtime.ReadMemStats(&s)
				return int64(s.HeapAlloc)
			}
			before, most, places := alive(), int64(0), 0
			r, err := calibrate.Run(context.Background(), m, o.Observed(func(held int64) {
				places++
				if places%3 != 0 {
					return
				}
				most = max(most, held)
				require.LessOrEqual(t, alive()-before, held+slack)
			}))
			require.NoError(t, err)
			require.NoError(t, r.Close())
			require.Greater(t, places, 100)
			if limit == 0 {
				require.Greater(t, most, int64(5*slack), "the check sees what the text takes")
			}
			t.Logf("%s: %d places, %d bytes held at most", name, places, most)
		}
	}
}

// TestMemoryGrows pins what the smallest bound depends on: not on the length of the text, but for what is known of each
// token.
func TestMemoryGrows(t *testing.T) {
	m := prepared(t, "qwen35moe-chat")
	need := func(windows, jobs int, method quantize.Method) int64 {
		n, err := calibrate.Memory(m, calibrate.Options{Windows: longText(windows, 200), Jobs: jobs,
			Recipe: scheme(method)})
		require.NoError(t, err)
		return n
	}
	few, many := need(4, 1, quantize.Learned), need(64, 1, quantize.Learned)
	require.Less(t, many-few, int64(60*200*4*24*2), "the experts that a token chooses")
	require.Equal(t, many, need(64, 16, quantize.Learned), "one worker is enough")
	require.LessOrEqual(t, need(4, 1, quantize.Weighted), few)
	_, err := calibrate.Memory(m, calibrate.Options{})
	require.ErrorContains(t, err, "at least one window")
}

// TestMemoryPlans plans runs within many bounds: what is reckoned with never exceeds one, and nothing lies on disk
// where there is memory for all.
func TestMemoryPlans(t *testing.T) {
	for _, name := range []string{"gemma4-chat", "qwen35moe-chat"} {
		if testing.Short() && name != "qwen35moe-chat" {
			continue
		}
		m := prepared(t, name)
		for _, method := range []quantize.Method{quantize.Best, quantize.Weighted, quantize.GPTQ, quantize.Learned} {
			for _, jobs := range []int{1, 3, 64} {
				o := calibrate.Options{Windows: longText(30, 300), HeldOut: longText(3, 200), Recipe: scheme(method),
					Jobs: jobs}
				least, err := calibrate.Memory(m, o)
				require.NoError(t, err)
				for step := range 6 {
					o.MaxRAM = least + int64(step*step)<<21
					bytes, _, err := calibrate.Planned(m, o)
					require.NoError(t, err)
					require.LessOrEqual(t, bytes, calibrate.ArrayBytes(o.MaxRAM))
				}
				o.MaxRAM = 4 << 30
				_, onDisk, err := calibrate.Planned(m, o)
				require.NoError(t, err)
				require.Zero(t, onDisk)
				o.MaxRAM = least - 1
				_, _, err = calibrate.Planned(m, o)
				require.ErrorContains(t, err, "the bound is")
			}
		}
	}
}

// TestMemoryResume cancels a run whose values lie on disk, and resumes it within another bound.
func TestMemoryResume(t *testing.T) {
	const name = "gemma4-chat"
	o := calibrate.Options{Windows: longText(4, 150), Recipe: scheme(quantize.GPTQ), Identity: "one", Dir: t.TempDir()}
	m := prepared(t, name)
	r, err := calibrate.Run(context.Background(), m, o)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	want := stored(t, o.Dir)

	cut := o
	cut.Dir = t.TempDir()
	cut.MaxRAM, err = calibrate.Memory(m, cut)
	require.NoError(t, err)
	// A run that was killed leaves its values; the next one does not take them.
	stale := filepath.Join(cut.Dir, "0.values")
	require.NoError(t, os.WriteFile(stale, []byte("other values"), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	onDisk := 0
	cut.Progress = func(done, total int, _ string) {
		files, err := filepath.Glob(filepath.Join(cut.Dir, "*.values"))
		require.NoError(t, err)
		onDisk = max(onDisk, len(files))
		if 2*done > total {
			cancel()
		}
	}
	_, err = calibrate.Run(ctx, m, cut)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, onDisk)
	left := stored(t, cut.Dir)
	require.NotEmpty(t, left)
	require.Less(t, len(left), len(want))
	require.NoFileExists(t, stale)

	cut.MaxRAM, cut.Progress = 0, nil
	r, err = calibrate.Run(context.Background(), m, cut)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.Equal(t, want, stored(t, cut.Dir))
}

// TestDamageMemory measures the damage of weights within the smallest bound.
func TestDamageMemory(t *testing.T) {
	m := prepared(t, "gemma4-chat")
	best := &quantize.Scheme{Method: quantize.Best, Bits: 4, GroupSize: 32}
	o := calibrate.DamageOptions{Windows: longText(2, 80), Dir: filepath.Join(t.TempDir(), "damage"),
		Scheme: func(name string, _ int) *quantize.Scheme {
			if testing.Short() && !strings.HasPrefix(name, "layers.0.") {
				return nil
			}
			return best
		}}
	want, err := calibrate.Damage(context.Background(), m, o)
	require.NoError(t, err)
	require.NoDirExists(t, o.Dir)
	o.MaxRAM, err = calibrate.DamageMemory(m, o)
	require.NoError(t, err)
	one := o
	one.Scheme = func(name string, cols int) *quantize.Scheme {
		if name == "layers.0.mlp.down_proj.weight" {
			return best
		}
		return nil
	}
	need, err := calibrate.DamageMemory(m, one)
	require.NoError(t, err)
	require.Equal(t, need, o.MaxRAM, "what the variants have lies on disk")
	got, err := calibrate.Damage(context.Background(), m, o)
	require.NoError(t, err)
	require.Equal(t, want, got)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	o.MaxRAM--
	_, err = calibrate.Damage(context.Background(), m, o)
	require.ErrorContains(t, err, "the bound is")
}

// TestMemoryOneOperand has the recipe give the two weights of a mixture with the same inputs different methods.
func TestMemoryOneOperand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	const name = "qwen35moe-chat"
	recipe := scheme(quantize.GPTQ)
	weighted := &quantize.Scheme{Method: quantize.Weighted, Bits: 4, GroupSize: 64}
	recipe.Rules = append([]passes.Rule{{Kind: passes.LinearWeight, Pattern: "*.gate_proj", Scheme: weighted}},
		recipe.Rules...)
	o := calibrate.Options{Windows: longText(4, 150), Recipe: recipe, Identity: "one", Jobs: 2}
	for _, limit := range []int64{0, leastMemory(t, name, o)} {
		o.Dir, o.MaxRAM = t.TempDir(), limit
		r, err := calibrate.Run(context.Background(), prepared(t, name), o)
		require.NoError(t, err)
		planned, held := r.Bytes()
		require.LessOrEqual(t, held, planned)
		require.NoError(t, r.Close())
	}
}
