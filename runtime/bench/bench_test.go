package bench_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/bench"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

const (
	vocabulary = 16
	contextLen = 64
	stopToken  = 1
)

// recorder is an engine that notes what it is fed, always answers with the stop token, and lets a clock go
// on by a second per token and once per call by extra seconds.
type recorder struct {
	calls  [][]int64 // nil marks a reset, an empty call that a state was put back
	clock  time.Time
	extra  []time.Duration
	broken error
}

func (*recorder) Name() string { return "recorder" }
func (e *recorder) Compile(*ir.Module, engine.Options) (engine.Executable, error) {
	return e, nil
}
func (e *recorder) NewInstance() (engine.Instance, error) { return e, nil }
func (*recorder) Close() error                            { return nil }
func (e *recorder) Reset() error {
	e.calls = append(e.calls, nil)
	return nil
}
func (*recorder) Snapshot() ([]engine.State, error) { return nil, nil }
func (e *recorder) Restore([]engine.State) error {
	e.calls = append(e.calls, []int64{})
	return nil
}
func (e *recorder) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	if e.broken != nil {
		return nil, e.broken
	}
	e.calls = append(e.calls, inputs[0].Tensor.I)
	e.clock = e.clock.Add(time.Duration(len(inputs[0].Tensor.I)) * time.Second)
	if len(e.extra) > 0 {
		e.clock = e.clock.Add(e.extra[0])
		e.extra = e.extra[1:]
	}
	return []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1}, []int64{stopToken})}}, nil
}

// load makes a model whose chunks have at most 16 tokens.
func load(t *testing.T, e engine.Engine, vocab int64) *session.Model {
	t.Helper()
	sequence := ir.Sym(&ir.Symbol{Lo: 1, Hi: 16})
	f := &ir.Func{Name: "forward", Body: &ir.Region{}, Outputs: []ir.Type{ir.StaticType(ir.I64, 1)}}
	f.NewParam("tokens", ir.TensorType(ir.I64, ir.Const(1), sequence))
	f.NewParam("input_pos", ir.TensorType(ir.I64, sequence))
	for i, d := range []ir.DType{ir.F32, ir.I64, ir.F32, ir.I64} {
		f.NewParam([]string{"temperature", "top_k", "top_p", "seed"}[i], ir.StaticType(d))
	}
	m := &ir.Module{Entry: f, Metadata: []ir.Method{{Name: "get_max_seq_len", Values: []any{int64(contextLen)}},
		{Name: "get_vocab_size", Values: []any{vocab}}}}
	model, err := session.Load(m, e, engine.Options{})
	require.NoError(t, err)
	return model
}

// The protocol of requirement E10: a warm-up of each shape in the same process, every measurement from an
// empty context, stop tokens ignored, the same tokens each time.
func TestProtocol(t *testing.T) {
	e := &recorder{}
	var started []string
	rows, err := bench.Run(t.Context(), load(t, e, vocabulary),
		bench.Options{Prompt: []int{20, 0}, Generate: []int{6}, Repetitions: 2,
			Now: func() time.Time { return e.clock }, Started: func(name string) { started = append(started, name) }})
	require.NoError(t, err)
	require.Equal(t, []string{"pp20", "tg6"}, started)
	require.Len(t, rows, 2)
	for i, want := range []bench.Row{
		{Test: "pp20", Tokens: 20, Samples: []float64{1, 1}, Median: 1, Min: 1, Max: 1},
		{Test: "tg6", Tokens: 6, Samples: []float64{1, 1}, Median: 1, Min: 1, Max: 1},
	} {
		require.Equal(t, want, rows[i])
	}
	var lengths []int
	for _, c := range e.calls {
		lengths = append(lengths, len(c))
	}
	prefill, generate := []int{0, 16, 4}, []int{0, 1, 1, 1, 1, 1, 1}
	require.Equal(t, slices.Concat(prefill, prefill, prefill, generate[:5], generate, generate), lengths)
	require.Equal(t, e.calls[1], e.calls[4], "the tokens of the repetitions")
	require.Equal(t, e.calls[1], e.calls[7], "the tokens of the repetitions")
	require.Greater(t, len(slices.Compact(slices.Sorted(slices.Values(e.calls[1])))), 4, "different tokens")
	for _, c := range e.calls {
		for _, token := range c {
			require.True(t, token >= 0 && token < vocabulary, "token %d", token)
		}
	}
}

// A depth is fed once and brought back before each run.
func TestDepth(t *testing.T) {
	e := &recorder{}
	rows, err := bench.Run(t.Context(), load(t, e, vocabulary),
		bench.Options{Prompt: []int{5}, Generate: []int{2}, Depth: []int{0, 20}, Repetitions: 2,
			Now: func() time.Time { return e.clock }})
	require.NoError(t, err)
	var tests []string
	for _, r := range rows {
		tests = append(tests, r.Test)
	}
	require.Equal(t, []string{"pp5", "tg2", "pp5 @ d20", "tg2 @ d20"}, tests)
	require.Equal(t, 20, rows[3].Depth)
	var deep []string
	for _, c := range e.calls[len(e.calls)-16:] {
		if c == nil {
			deep = append(deep, "reset")
			continue
		}
		deep = append(deep, fmt.Sprint(len(c)))
	}
	measured := []string{"0", "5", "0", "5", "0", "5", "0", "1", "1", "0", "1", "1", "0", "1", "1"}
	require.Equal(t, slices.Concat([]string{"4"}, measured), deep)
}

// The median stands for the row, and the spread says how far to trust it (requirement E10).
func TestSpread(t *testing.T) {
	second := time.Second
	for _, test := range []struct {
		name             string
		extra            []time.Duration // of the warm-up, then of the repetitions
		median, min, max float64
		noisy            bool
	}{
		{"odd", []time.Duration{9 * second, 0, 6 * second, 2 * second}, 0.8, 8. / 14, 1, true},
		{"even", []time.Duration{0, 0, 8 * second}, 0.75, 0.5, 1, true},
		{"quiet", []time.Duration{40 * second, 2 * second, 2 * second, 2 * second}, 0.8, 0.8, 0.8, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &recorder{extra: test.extra}
			rows, err := bench.Run(t.Context(), load(t, e, vocabulary),
				bench.Options{Prompt: []int{8}, Repetitions: len(test.extra) - 1,
					Now: func() time.Time { return e.clock }})
			require.NoError(t, err)
			require.InDelta(t, test.median, rows[0].Median, 1e-12)
			require.InDelta(t, test.min, rows[0].Min, 1e-12)
			require.InDelta(t, test.max, rows[0].Max, 1e-12)
			require.InDelta(t, (test.max-test.min)/test.median, rows[0].Spread, 1e-12)
			require.Equal(t, test.noisy, rows[0].Noisy())
			require.Len(t, rows[0].Samples, len(test.extra)-1)
		})
	}
}

func TestErrors(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name    string
		ctx     context.Context
		engine  recorder
		vocab   int64
		options bench.Options
		want    string
	}{
		{"prompt beyond the context", t.Context(), recorder{}, vocabulary,
			bench.Options{Prompt: []int{64, 65}, Repetitions: 1},
			"pp65: 65 tokens do not fit the context of 64 tokens"},
		{"generation beyond the context", t.Context(), recorder{}, vocabulary,
			bench.Options{Generate: []int{65}, Repetitions: 1}, "tg65: 65 tokens do not fit"},
		{"negative", t.Context(), recorder{}, vocabulary, bench.Options{Generate: []int{-1}, Repetitions: 1},
			"tg-1: a negative number"},
		{"nothing", t.Context(), recorder{}, vocabulary, bench.Options{Prompt: []int{0}, Repetitions: 1},
			"nothing to measure"},
		{"no repetitions", t.Context(), recorder{}, vocabulary, bench.Options{Prompt: []int{1}},
			"0 repetitions, want 1 to 1000"},
		{"too many repetitions", t.Context(), recorder{}, vocabulary,
			bench.Options{Prompt: []int{1}, Repetitions: 1001}, "want 1 to 1000"},
		{"no vocabulary", t.Context(), recorder{}, 0, bench.Options{Prompt: []int{1}, Repetitions: 1},
			"get_vocab_size"},
		{"engine", t.Context(), recorder{broken: errors.New("out of paper")}, vocabulary,
			bench.Options{Prompt: []int{1}, Repetitions: 1}, "pp1: warm-up: out of paper"},
		{"cancelled", cancelled, recorder{}, vocabulary, bench.Options{Generate: []int{3}, Repetitions: 1},
			"tg3: warm-up: context canceled"},
		{"clock that stands still", t.Context(), recorder{}, vocabulary,
			bench.Options{Prompt: []int{3}, Repetitions: 1, Now: func() time.Time { return time.Time{} }},
			"pp3: the clock is too coarse"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows, err := bench.Run(test.ctx, load(t, &test.engine, test.vocab), test.options)
			require.ErrorContains(t, err, test.want)
			require.Empty(t, rows)
		})
	}
}

// The tokens of a benchmark never change: figures of different versions compare.
func TestTokensAreFixed(t *testing.T) {
	e := &recorder{}
	_, err := bench.Run(t.Context(), load(t, e, vocabulary),
		bench.Options{Prompt: []int{8}, Repetitions: 1, Now: func() time.Time { return e.clock }})
	require.NoError(t, err)
	require.Equal(t, "[2 1 5 0 8 15 0 14]", fmt.Sprint(e.calls[1]))
}
