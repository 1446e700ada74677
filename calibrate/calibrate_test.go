package calibrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/calibrate"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// prepared is a checkpoint of testdata, ready to be calibrated.
func prepared(t testing.TB, name string) *ir.Module {
	t.Helper()
	c, err := loaders.Open("../testdata/checkpoints/" + name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	m, err := c.Build(loaders.Options{MaxSeqLen: 512})
	require.NoError(t, err)
	_, err = calibrate.Prepare(m, passes.Options{})
	require.NoError(t, err)
	return m
}

// windows are conversations that the checkpoint was trained on: those to calibrate with, and those held out.
func windows(t testing.TB, name string) (text, held [][]int) {
	t.Helper()
	raw, err := os.ReadFile("../testdata/answers/" + name + ".json")
	require.NoError(t, err)
	var questions []struct {
		Prompt []int `json:"prompt_ids"`
		Answer []int `json:"ids"`
	}
	require.NoError(t, json.Unmarshal(raw, &questions))
	for i, q := range questions {
		w := append(q.Prompt, q.Answer...)
		if i%3 == 1 {
			held = append(held, w)
		} else {
			text = append(text, w)
		}
	}
	return text, held
}

func scheme(m quantize.Method) passes.Recipe {
	return passes.DefaultRecipe(&quantize.Scheme{Method: m, Bits: 4, GroupSize: 64}, nil)
}

// TestMethods pins what each method gains on trained models: the divergence of the predictions for held-out windows.
func TestMethods(t *testing.T) {
	for _, name := range []string{"gemma4-chat", "qwen35moe-chat"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "gemma4-chat" {
				t.Skip("takes some seconds")
			}
			text, held := windows(t, name)
			m := prepared(t, name)
			kl, median := map[quantize.Method]float64{}, map[quantize.Method]float64{}
			for _, method := range []quantize.Method{quantize.MinMax, quantize.Best, quantize.Weighted,
				quantize.GPTQ, quantize.Learned} {
				r, err := calibrate.Run(context.Background(), m,
					calibrate.Options{Windows: text, HeldOut: held, Recipe: scheme(method), Dir: t.TempDir()})
				require.NoError(t, err)
				q := r.Quality
				t.Logf("%-8s KL %.5f mean, %.5f median, %.4f p99, same %.3f, perplexity %.4f of %.4f", method, q.Mean,
					q.Median, q.P99, q.Top1, q.Perplexity, q.Reference)
				kl[method], median[method] = q.Mean, q.Median
				require.NoError(t, r.Close())
			}
			require.Less(t, kl[quantize.Weighted], 0.6*kl[quantize.MinMax])
			require.Less(t, kl[quantize.GPTQ], 0.4*kl[quantize.MinMax])
			require.Less(t, kl[quantize.Learned], 0.9*kl[quantize.GPTQ])
			// a few tokens decide what the mean is
			require.Less(t, median[quantize.Learned], 0.7*median[quantize.GPTQ])
		})
	}
}

// stored are the files of a directory.
func stored(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.weight"))
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		out[filepath.Base(f)] = string(b[:len(b)-16]) // without the sums for people
	}
	return out
}

// TestSameBytes has the same weights for any number of workers, and when a run goes on with what another has left.
func TestSameBytes(t *testing.T) {
	const name = "qwen35moe-chat"
	text, held := windows(t, name)
	text = text[:4]
	method := quantize.Learned
	if testing.Short() {
		method = quantize.GPTQ
	}
	m := prepared(t, name)
	run := func(dir string, jobs int, o calibrate.Options) error {
		o.Windows, o.Recipe, o.Dir, o.Identity, o.Jobs = text, scheme(method), dir, "one", jobs
		r, err := calibrate.Run(context.Background(), m, o)
		if err == nil {
			require.NoError(t, r.Close())
		}
		return err
	}
	one, four, cut := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, run(one, 1, calibrate.Options{HeldOut: held[:1]}))
	require.NoError(t, run(four, 4, calibrate.Options{}))
	want := stored(t, one)
	require.NotEmpty(t, want)
	require.Equal(t, want, stored(t, four))

	ctx, cancel := context.WithCancel(context.Background())
	solved := 0
	_, err := calibrate.Run(ctx, m, calibrate.Options{Windows: text, Recipe: scheme(method),
		Dir: cut, Identity: "one",
		Progress: func(done, total int, _ string) {
			if solved++; 2*done > total {
				cancel()
			}
		}})
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	left := stored(t, cut)
	require.NotEmpty(t, left)
	require.Less(t, len(left), len(want))
	times := map[string]os.FileInfo{}
	for f := range left {
		times[f], err = os.Stat(filepath.Join(cut, f))
		require.NoError(t, err)
	}
	require.NoError(t, run(cut, 2, calibrate.Options{}))
	require.Equal(t, want, stored(t, cut))
	for f, before := range times {
		after, err := os.Stat(filepath.Join(cut, f))
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), "%s is computed again", f)
	}

	r, err := calibrate.Run(context.Background(), m,
		calibrate.Options{Windows: text[1:], Recipe: scheme(method), Dir: cut, Identity: "other"})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NotEqual(t, want, stored(t, cut), "what is there of another text is not taken")
}

func TestRefused(t *testing.T) {
	m := prepared(t, "gemma4-chat")
	_, err := calibrate.Run(context.Background(), m, calibrate.Options{Dir: t.TempDir()})
	require.ErrorContains(t, err, "at least one window")
	_, err = calibrate.Run(context.Background(), m, calibrate.Options{Windows: [][]int{{}}, Dir: t.TempDir()})
	require.ErrorContains(t, err, "without tokens")
	_, err = calibrate.Run(context.Background(), m, calibrate.Options{Windows: [][]int{{1 << 20}}, Dir: t.TempDir()})
	require.ErrorContains(t, err, "token 1048576")
}

func TestCorpus(t *testing.T) {
	lines := 0
	for d := json.NewDecoder(bytes.NewReader(calibrate.Corpus())); d.More(); lines++ {
		var x struct {
			Text     string
			Messages []struct{ Role, Content string }
		}
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&x))
		require.NotEqual(t, x.Text == "", len(x.Messages) == 0, "document %d", lines)
	}
	require.Equal(t, 86, lines)
	require.LessOrEqual(t, len(calibrate.Corpus()), 200_000)
}
