package single_test

import (
	"context"
	"slices"
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
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/single"
)

// ids are tokens of a sequence.
func ids(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = (i*37)%200 + 3
	}
	return out
}

// TestSessionIsASequence: a session gives, bit for bit, what a sequence of an executor of many gives that is fed token
// by token, in chunks, after a snapshot, past the windows; and the logits of all positions.
func TestSessionIsASequence(t *testing.T) {
	for name, s := range map[string]ragged.Storage{
		"qwen35moe-chat-4w-g64-f32-scan": {Q8: true, HalfState: true}, "gemma4-chat-bf16-ropefix": {Q8: true},
		"neighbours/qwen35-4w": {HalfState: true}, "neighbours/gemma4e-bf16": {Q8: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := fuse.StripSampler(fusetest.Load(t, name))
			require.NoError(t, err)
			m.Metadata = slices.DeleteFunc(slices.Clone(m.Metadata),
				func(k ir.Method) bool { return k.Name == "use_sampling" })
			total := 24
			tokens := ids(total)
			want := alone(t, m, s, tokens)
			o := engine.Options{Precision: eval.Mixed}
			model, err := session.Load(m, single.Engine{Engine: reference.Engine{}, Storage: s}, o)
			require.NoError(t, err)
			defer model.Close()
			require.Equal(t, "reference", model.Device)
			x, err := model.NewSession()
			require.NoError(t, err)
			defer x.Close()
			var kept *session.Snapshot
			for at, n := 0, 0; at < total; at += n {
				n = min([]int{5, 1, 7, 2}[at%4], total-at, model.MaxChunk)
				step, err := x.Prefill(t.Context(), tokens[at:at+n], session.Greedy)
				require.NoError(t, err)
				require.Equal(t, want[at+n-1], step.Logits, "position %d", at+n-1)
				if at+n > total/2 && kept == nil {
					kept, err = x.Snapshot()
					require.NoError(t, err)
				}
			}
			require.NoError(t, model.CheckSnapshot(kept))
			require.NoError(t, x.Restore(kept))
			at := x.Position()
			step, err := x.Prefill(t.Context(), tokens[at:], session.Greedy)
			require.NoError(t, err)
			require.Equal(t, want[total-1], step.Logits, "behind a snapshot")
			requireRows(t, m, s, o, tokens, want)
			plain, err := session.Load(m, reference.Engine{}, o)
			require.NoError(t, err)
			defer plain.Close()
			require.ErrorContains(t, plain.CheckSnapshot(kept), "is not", "a snapshot of another form")
		})
	}
}

// alone is what a sequence gives that is fed token by token.
func alone(t *testing.T, m *ir.Module, s ragged.Storage, tokens []int) (out [][]float32) {
	t.Helper()
	r := batch.RaggedOptions{Rows: 16, Sequences: 1, BlockRows: 4, Storage: s}
	r.Engine.Precision = eval.Mixed
	x, err := batch.NewRagged(m, reference.Engine{}, r)
	require.NoError(t, err)
	pool, err := batch.NewPool(x, 1<<40)
	require.NoError(t, err)
	defer pool.Close()
	q := pool.Open()
	for _, token := range tokens {
		given, err := q.Feed(t.Context(), []int32{int32(token)}, batch.Row{Logits: true})
		require.NoError(t, err)
		out = append(out, given[0].Logits)
	}
	return out
}

// requireRows requires the logits of all positions of one call, where the program gives them.
func requireRows(t *testing.T, m *ir.Module, s ragged.Storage, o engine.Options, tokens []int, want [][]float32) {
	t.Helper()
	model, err := session.LoadRows(m, single.Engine{Engine: reference.Engine{}, Storage: s}, o)
	require.NoError(t, err)
	defer model.Close()
	x, err := model.NewSession()
	require.NoError(t, err)
	defer x.Close()
	steps, err := x.Rows(t.Context(), tokens, 0)
	require.NoError(t, err)
	for i, step := range steps {
		require.Equal(t, want[i], step.Logits, "row %d", i)
	}
}

// TestDraws: the runtime's sampler, and a sampling head of the file, draw from the same logits.
func TestDraws(t *testing.T) {
	m := fusetest.Load(t, "etc-gemma4-chat-sample")
	e := single.Engine{Engine: cpu.Engine{}, Storage: ragged.Storage{Q8: true}}
	o := engine.Options{Precision: eval.Mixed, Threads: 2, Exact: true}
	p := session.Sampling{Temperature: 1.3, TopK: 40, TopP: 0.95, Seed: 5}
	var answers [2][]int
	for i, load := range []func() (*session.Model, error){
		func() (*session.Model, error) { return session.Load(m, e, o) },
		func() (*session.Model, error) { return session.LoadDraws(m, e, o, session.Draws{}) },
	} {
		model, err := load()
		require.NoError(t, err)
		defer model.Close()
		x, err := model.NewSession()
		require.NoError(t, err)
		defer x.Close()
		a, err := x.Generate(t.Context(), session.Request{Prompt: ids(9), Sampling: p, MaxNewTokens: 12})
		require.NoError(t, err)
		answers[i] = a.Tokens
	}
	require.Len(t, answers[0], 12)
	require.Equal(t, answers[0], answers[1])
}

// TestDrawsOnDevice: where the engine draws on its device, a program that gives logits ends with the draw there, and its
// tokens are those of logits on the host.
func TestDrawsOnDevice(t *testing.T) {
	m := fusetest.Load(t, "etc-qwen35moe-chat-portable")
	s, o := ragged.Storage{HalfState: true}, engine.Options{Precision: eval.Mixed, Threads: 2, Exact: true}
	answer := func(load func(*ir.Module, engine.Engine, engine.Options) (*session.Model, error), e engine.Engine,
		logits bool) []int {
		model, err := load(m, single.Engine{Engine: e, Storage: s}, o)
		require.NoError(t, err)
		defer model.Close()
		require.Equal(t, session.Logits, model.Form)
		require.Equal(t, logits, model.GivesLogits())
		x, err := model.NewSession()
		require.NoError(t, err)
		defer x.Close()
		a, err := x.Generate(t.Context(), session.Request{Prompt: ids(9), Sampling: session.Greedy, MaxNewTokens: 12})
		require.NoError(t, err)
		require.Len(t, a.Tokens, 12)
		return a.Tokens
	}
	for _, test := range []struct {
		name   string
		engine engine.Engine
		logits bool // what is asked for are tokens
	}{
		{"the engine draws", cpu.Engine{}, false},
		{"the engine does not", reference.Engine{}, true},
		{"the engine says no", onHost{}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, answer(session.Load, test.engine, true), answer(session.LoadTokens, test.engine, test.logits))
		})
	}
}

// onHost is an engine on which draws are no faster than on the host.
type onHost struct{ cpu.Engine }

func (onHost) DrawsOnDevice() bool { return false }

// TestTune: a session reaches the measurements of the engine.
func TestTune(t *testing.T) {
	tuned := 0
	m := fusetest.Load(t, "etc-gemma4-chat-sample")
	e := single.Engine{Engine: tuning{tuned: &tuned}, Storage: ragged.Storage{Q8: true}}
	model, err := session.Load(m, e, engine.Options{Precision: eval.Mixed, TuneLater: true})
	require.NoError(t, err)
	defer model.Close()
	x, err := model.NewSession()
	require.NoError(t, err)
	defer x.Close()
	require.NoError(t, x.Tune(t.Context()))
	require.Equal(t, 1, tuned)
}

// tuning is an engine with instances that count how often they are to measure.
type tuning struct {
	reference.Engine
	tuned *int
}

func (e tuning) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	x, err := e.Engine.Compile(m, o)
	return tuningExecutable{x, e.tuned}, err
}

type tuningExecutable struct {
	engine.Executable
	tuned *int
}

func (x tuningExecutable) NewInstance() (engine.Instance, error) {
	i, err := x.Executable.NewInstance()
	return tuningInstance{i, x.tuned}, err
}

type tuningInstance struct {
	engine.Instance
	tuned *int
}

func (x tuningInstance) Tune(context.Context) error {
	*x.tuned++
	return nil
}

// TestRefusals: what a program has no state for, or an engine does not keep, is an error.
func TestRefusals(t *testing.T) {
	gemma := fusetest.Load(t, "etc-gemma4-chat-sample")
	load := func(e engine.Engine, s ragged.Storage, p eval.Precision) error {
		_, err := session.Load(gemma, single.Engine{Engine: e, Storage: s}, engine.Options{Precision: p})
		return err
	}
	require.ErrorContains(t, load(cpu.Engine{}, ragged.Storage{HalfState: true}, eval.Mixed), "no recurrent state")
	require.ErrorContains(t, load(cpu.Engine{}, ragged.Storage{Q8: true}, eval.Strict), "keeps state as it is declared")
}
