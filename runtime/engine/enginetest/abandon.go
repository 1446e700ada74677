package enginetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// Countdown is a context that ends when it was asked often enough whether it has ended.
type Countdown struct {
	context.Context
	// Left is how often Err says that it has not.
	Left int
}

// Err counts the questions.
func (c *Countdown) Err() error {
	if c.Left--; c.Left < 0 {
		return context.Canceled
	}
	return nil
}

// Abandon requires of an engine what [engine.Instance] says of contexts: one that has ended leaves the state as it
// was; one that ends in a call is an [engine.AbandonedError], after which Reset and Restore make the instance whole.
// during gives a context that ends while a call runs on an instance that o made.
func Abandon(t *testing.T, e engine.Engine, m *ir.Module, o engine.Options, during func() context.Context) {
	t.Helper()
	const prompt, chunk = 9, 60
	x, plain := Start(t, e, m, o), Start(t, e, m, o)
	run := func(x engine.Instance, ctx context.Context, position, n int) ([]eval.Value, error) {
		return x.Run(ctx, fusetest.Inputs(m, position, n))
	}
	must := func(x engine.Instance, position, n int) []eval.Value {
		out, err := run(x, context.Background(), position, n)
		require.NoError(t, err)
		return out
	}
	first := must(plain, 0, prompt)
	next := must(plain, prompt, chunk)

	require.Equal(t, first, must(x, 0, prompt))
	saved, err := x.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = run(x, ended, prompt, chunk)
	require.ErrorIs(t, err, context.Canceled)
	var abandoned *engine.AbandonedError
	require.NotErrorAs(t, err, &abandoned, "nothing has run")
	after, err := x.(engine.Stateful).Snapshot()
	require.NoError(t, err)
	require.Equal(t, saved, after)

	for range 2 {
		_, err = run(x, during(), prompt, chunk)
		require.ErrorAs(t, err, &abandoned)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, x.(engine.Stateful).Restore(saved))
		require.Equal(t, next, must(x, prompt, chunk), "after Restore")
		_, err = run(x, during(), 0, chunk)
		require.ErrorAs(t, err, &abandoned)
		require.NoError(t, x.Reset())
		require.Equal(t, first, must(x, 0, prompt), "after Reset")
	}
}
