package session_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// hinted is a scripted engine that records which calls it was told are likely to follow.
type hinted struct {
	scripted
	told  [][]eval.Value // for each call; nil where nothing was told
	calls [][]eval.Value
}

func (e *hinted) Compile(*ir.Module, engine.Options) (engine.Executable, error) { return e, nil }
func (e *hinted) NewInstance() (engine.Instance, error)                         { return e, nil }

func (e *hinted) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	return e.RunPipelined(ctx, inputs, nil)
}

func (e *hinted) RunPipelined(ctx context.Context, inputs, next []eval.Value) ([]eval.Value, error) {
	e.told, e.calls = append(e.told, next), append(e.calls, inputs)
	return e.scripted.Run(ctx, inputs)
}

// TestForetold: the engine is told of the call that feeds the next token, with its position and seed, where there will
// be one unless the answer stops.
func TestForetold(t *testing.T) {
	sampling := session.Sampling{Temperature: 0.5, TopK: 3, TopP: 0.9, Seed: 40}
	for _, test := range []struct {
		name string
		r    session.Request
		told []bool // of the calls after the prompt
	}{
		{"length", session.Request{MaxNewTokens: 4}, []bool{true, true, false}},
		{"the last token fed too", session.Request{MaxNewTokens: 3, FeedLast: true}, []bool{true, true, false}},
		{"a stop token", session.Request{Stop: []int{6}}, []bool{true, true, true}},
		{"forced tokens", session.Request{Force: []int{9, 9, 2}}, []bool{false, false}},
		{"full context", session.Request{Prompt: sequence(0, testContext-3)}, []bool{true, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &hinted{scripted: scripted{answer: count}}
			_, s := start(t, samplerModule(), e)
			r := test.r
			if r.Sampling = sampling; r.Prompt == nil {
				r.Prompt = sequence(0, 3)
			}
			_, err := s.Generate(context.Background(), r)
			require.NoError(t, err)
			require.Nil(t, e.told[0], "a prompt")
			var told []bool
			for i, next := range e.told[1:] {
				told = append(told, next != nil)
				if next == nil || i+2 == len(e.calls) {
					continue
				}
				require.Equal(t, e.calls[i+2][1:], next[1:], "call %d", i+1)
				require.Equal(t, e.calls[i+2][0].Tensor.Shape, next[0].Tensor.Shape)
			}
			require.Equal(t, test.told, told)
		})
	}
	// The host chooses the token of logits.
	e := &hinted{scripted: scripted{answer: countLogits}}
	_, s := start(t, logitsModule(), e)
	_, err := s.Generate(context.Background(),
		session.Request{Prompt: sequence(0, 3), Sampling: session.Greedy, MaxNewTokens: 3})
	require.NoError(t, err)
	require.Equal(t, make([][]eval.Value, 3), e.told)
	// The device draws from them where it can.
	d := &hintedDrawing{hinted{scripted: scripted{answer: count}}}
	rows := slices.Repeat([][]float32{make([]float32, 16)}, 16)
	model, err := session.LoadTokens(table(t, rows), d, engine.Options{})
	require.NoError(t, err)
	if s, err = model.NewSession(); err == nil {
		_, err = s.Generate(context.Background(),
			session.Request{Prompt: sequence(0, 3), Sampling: sampling, MaxNewTokens: 4})
	}
	require.NoError(t, err)
	for i, next := range d.told[1:3] {
		require.Equal(t, d.calls[i+2][1:], next[1:], "call %d", i+1)
	}
	require.Nil(t, d.told[3])
}

// hintedDrawing is an engine that draws on its device.
type hintedDrawing struct{ hinted }

func (e *hintedDrawing) Compile(*ir.Module, engine.Options) (engine.Executable, error) { return e, nil }
func (e *hintedDrawing) DrawsOnDevice() bool                                           { return true }
