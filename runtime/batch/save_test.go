package batch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// raggedRunner is a runner of a model, with room for some whole contexts.
func raggedRunner(t *testing.T, m *ir.Module, e engine.Engine, p eval.Precision) *batch.Runner {
	t.Helper()
	x, err := batch.NewRagged(m, e, batch.RaggedOptions{Rows: 16, Sequences: 4, BlockRows: 4,
		Engine: engine.Options{Precision: p}})
	require.NoError(t, err)
	budget := x.Layout().Bytes(x.Units())
	r, err := batch.New(x, batch.Options{Queue: 10, Budget: budget, Prefix: budget / 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// ask runs a request to its end.
func ask(t *testing.T, r *batch.Runner, q batch.Request) ([]int, batch.End) {
	t.Helper()
	s, err := r.Submit(t.Context(), q)
	require.NoError(t, err)
	return collect(t, s)
}

// TestKeptStateIsExact: a state that was taken out and put into another runner is there bit for bit, and answers go on
// from it as from the one that was computed.
func TestKeptStateIsExact(t *testing.T) {
	for name, c := range map[string]struct {
		graph     string
		e         engine.Engine
		precision eval.Precision
	}{
		"windows":   {"etc-gemma4-chat-sample", cpu.Engine{}, eval.Mixed},
		"hybrid":    {"etc-qwen35moe-chat-sample", cpu.Engine{}, eval.Mixed},
		"float32":   {"neighbours/qwen35-4w", cpu.Engine{}, eval.FP32},
		"reference": {"neighbours/qwen35-4w", reference.Engine{}, eval.Mixed},
	} {
		t.Run(name, func(t *testing.T) {
			requireKept(t, c.graph, c.e, c.precision)
		})
	}
}

// TestKeptStateOnGPU is the same on the emulator, or the device that ETC_TEST_DEVICE names.
func TestKeptStateOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: TestUnits of runtime/gpu reads and writes parts of buffers")
	}
	requireKept(t, "etc-qwen35moe-chat-sample", onGPU(t), eval.Mixed)
}

// requireIdle requires that only the prefix cache holds memory.
func requireIdle(t *testing.T, r *batch.Runner) {
	t.Helper()
	require.NoError(t, r.Do(t.Context(), func(batch.Executor) {})) // what answers left is counted
	require.Equal(t, r.Stats().Used, r.Stats().Idle)
}

// save takes out the state after some tokens, until the test ends.
func save(t *testing.T, r *batch.Runner, tokens []int) *batch.Saved {
	t.Helper()
	k, err := r.Save(t.Context(), tokens)
	require.NoError(t, err)
	require.NotNil(t, k)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k
}

// requireKept takes a state out of a runner and puts it into another.
func requireKept(t *testing.T, graph string, e engine.Engine, precision eval.Precision) {
	t.Helper()
	m := fusetest.Load(t, graph)
	from, to := raggedRunner(t, m, e, precision), raggedRunner(t, m, e, precision)
	q := plain()
	for _, id := range ids(0, 19) {
		q.Prompt = append(q.Prompt, int(id))
	}
	q.MaxTokens, q.Marks, q.Stop = 6, []int{18}, nil
	want, end := ask(t, from, q)
	require.Zero(t, end.Cached)
	saved := save(t, from, q.Prompt[:18])
	require.Len(t, saved.Tokens, 18)
	require.NoError(t, to.Restore(t.Context(), saved))
	got, end := ask(t, to, q)
	require.Equal(t, 18, end.Cached)
	require.Equal(t, want, got)
	again := save(t, to, q.Prompt[:18])
	require.Equal(t, saved.Parts, again.Parts)
	contents, err := saved.Contents(t.Context())
	require.NoError(t, err)
	contentsAgain, err := again.Contents(t.Context())
	require.NoError(t, err)
	require.Equal(t, contents, contentsAgain)
	require.NoError(t, to.Restore(t.Context(), saved), "what is there is not put again")
	require.NoError(t, again.Close())
	require.NoError(t, again.Close())
	requireIdle(t, to)
}

// TestAnswersGoOnBesideStates: while a state is taken out, and while one is put in, other requests are answered as
// ever, and the state is that of the moment when it was asked for.
func TestAnswersGoOnBesideStates(t *testing.T) {
	m := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	from, to := raggedRunner(t, m, cpu.Engine{}, eval.Mixed), raggedRunner(t, m, cpu.Engine{}, eval.Mixed)
	prompt := func(n int) []int {
		var out []int
		for _, id := range ids(0, n) {
			out = append(out, int(id))
		}
		return out
	}
	q := batch.Request{Prompt: prompt(19), MaxTokens: 6, Marks: []int{18}, Logprobs: -1,
		Sampling: batch.Sampling{TopP: 1}}
	want, _ := ask(t, from, q)
	others := batch.Request{Prompt: append(prompt(19), 7, 8, 9), MaxTokens: 9, Logprobs: -1,
		Sampling: batch.Sampling{TopP: 1}}
	wantOthers, _ := ask(t, raggedRunner(t, m, cpu.Engine{}, eval.Mixed), others)
	before := save(t, from, q.Prompt[:18])
	contents, err := before.Contents(t.Context())
	require.NoError(t, err)

	during := save(t, from, q.Prompt[:18])
	var got [][]byte
	for i := range during.Parts {
		answer, end := ask(t, from, others) // goes on from the state that is taken out
		require.Equal(t, wantOthers, answer)
		require.GreaterOrEqual(t, end.Cached, 18, i)
		content, err := during.Read(t.Context(), i)
		require.NoError(t, err)
		got = append(got, content)
	}
	require.Equal(t, contents, got)

	slow := batch.NewSaved(before.Tokens, before.Form, before.Parts, contents)
	read := slow.Read
	slow.Read = func(ctx context.Context, i int) ([]byte, error) {
		answer, _ := ask(t, to, others)
		require.Equal(t, wantOthers, answer)
		return read(ctx, i)
	}
	require.NoError(t, to.Restore(t.Context(), slow))
	answer, end := ask(t, to, q)
	require.GreaterOrEqual(t, end.Cached, 18)
	require.Equal(t, want, answer)

	// A state that is half read is given back with the runner, or by its reader.
	gone, cancel := context.WithCancel(t.Context())
	slow = batch.NewSaved(append([]int32{5}, before.Tokens[1:]...), before.Form, before.Parts, contents)
	slow.Read = func(ctx context.Context, i int) ([]byte, error) { cancel(); return read(ctx, i) }
	require.ErrorIs(t, to.Restore(gone, slow), context.Canceled)
	ask(t, to, q)
	requireIdle(t, to)
}

// TestKeptSession is the same for one sequence at a time.
func TestKeptSession(t *testing.T) {
	from, to := start(t, &hasher{}, false, 2, 20), start(t, &hasher{}, false, 2, 20)
	q := plain(5, 6, 7, 8, 9, 10)
	want, _ := ask(t, from, q)
	saved, err := from.Save(t.Context(), q.Prompt[:3])
	require.NoError(t, err)
	require.Nil(t, saved, "no checkpoint is there")
	q.Marks = []int{5}
	q.Prompt = append(q.Prompt, 11)
	want2, _ := ask(t, from, q)
	saved, err = from.Save(t.Context(), q.Prompt[:5])
	require.NoError(t, err)
	require.NoError(t, to.Restore(t.Context(), saved))
	got, end := ask(t, to, q)
	require.Equal(t, 5, end.Cached)
	require.Equal(t, want2, got)
	require.NotEqual(t, want, got)
}

// TestPutRefuses: what is of another program, another form or damaged is refused, and leaves nothing.
func TestPutRefuses(t *testing.T) {
	m := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	r := raggedRunner(t, m, cpu.Engine{}, eval.Mixed)
	q := plain(1, 2, 3, 4, 5, 6, 7, 8, 9)
	q.Marks = []int{8}
	ask(t, r, q)
	good := save(t, r, q.Prompt[:8])
	fresh := raggedRunner(t, m, cpu.Engine{}, eval.Mixed)
	for name, change := range map[string]func(k *batch.Saved){
		"form":     func(k *batch.Saved) { k.Form = "another" },
		"no":       func(k *batch.Saved) { k.Tokens = nil },
		"context":  func(k *batch.Saved) { k.Tokens = make([]int32, 1<<20) },
		"token":    func(k *batch.Saved) { k.Tokens = []int32{1 << 30} },
		"parts":    func(k *batch.Saved) { k.Parts = k.Parts[1:] },
		"buffer 0": func(k *batch.Saved) { k.Parts[0].Buffer = "x" },
		"dtype":    func(k *batch.Saved) { k.Parts[0].DType = ir.I64 },
		"stored":   func(k *batch.Saved) { k.Parts[0].Stored = ir.F16 },
		"content": func(k *batch.Saved) {
			k.Read = func(context.Context, int) ([]byte, error) { return make([]byte, 4), nil }
		},
		"damage": func(k *batch.Saved) {
			k.Read = func(ctx context.Context, i int) ([]byte, error) {
				if i == len(k.Parts)-1 {
					return nil, errors.New("damaged")
				}
				return good.Read(ctx, i)
			}
		},
		"blocks": func(k *batch.Saved) { k.Tokens = append(k.Tokens, 1, 2, 3, 4, 5) },
	} {
		bad := &batch.Saved{Tokens: append([]int32{}, good.Tokens...), Form: good.Form,
			Parts: append([]batch.Part{}, good.Parts...),
			Read:  good.Read}
		change(bad)
		require.Error(t, fresh.Restore(t.Context(), bad), name)
		saved, err := fresh.Save(t.Context(), q.Prompt[:8])
		require.NoError(t, err)
		require.Nil(t, saved, name)
	}
	require.NoError(t, fresh.Restore(t.Context(), good))
	_, end := ask(t, fresh, q)
	require.Equal(t, 8, end.Cached)
	requireIdle(t, fresh)
	none := start(t, &hasher{stays: true}, false, 2, 2)
	_, err := none.Save(t.Context(), q.Prompt)
	require.ErrorIs(t, err, batch.ErrNotSavable)
	require.ErrorIs(t, none.Restore(t.Context(), good), batch.ErrNotSavable)
	small, err := batch.NewOneByOne(load(t, &hasher{}, false), 100, 1, "")
	require.NoError(t, err)
	off, err := batch.New(small, batch.Options{Budget: 200})
	require.NoError(t, err)
	defer off.Close()
	require.ErrorIs(t, off.Restore(t.Context(), &batch.Saved{Tokens: []int32{5}, Form: "a session"}), cache.ErrOff)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, err := r.Save(gone, q.Prompt)
	if late != nil {
		require.NoError(t, late.Close())
	}
	if err != nil { // it may have run already
		require.ErrorIs(t, err, context.Canceled)
	}
}
