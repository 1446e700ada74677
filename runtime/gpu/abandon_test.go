package gpu_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
)

// TestAbandon: a call is abandoned between its sequences, here before and after an operation of the host; an instance
// that was reset gives what a new one gives.
func TestAbandon(t *testing.T) {
	m, err := ir.Parse(`module {
  constant @w : f32[64,32]
  buffer @sum : f32[3,64]
  entry forward(%x: f32[3,32]) {
    %0 = linear(x=%x, weight=@w) : f32[3,64]
    %1 = load @sum() : f32[3,64]
    %2 = add(a=%0, b=%1) : f32[3,64]
    store @sum(x=%2)
    %3 = cumsum(x=%2) {axis=0} : f32[3,64]
    %4 = add(a=%3, b=%0) : f32[3,64]
    return %4: f32[3,64]
  }
}
`)
	require.NoError(t, err)
	random := normals(1)
	random.fill(t, m, 1)
	o := engine.Options{Precision: eval.FP32, Warn: func(string) {}}
	in := []eval.Value{{Tensor: random.tensor(t, 3, 32)}}
	x := compile(t, onDevice(t), m, o)
	want, err := x.Run(t.Context(), in)
	require.NoError(t, err)
	for left := range 12 {
		require.NoError(t, x.Reset())
		_, err := x.Run(&enginetest.Countdown{Context: t.Context(), Left: left}, in)
		if err == nil {
			require.Greater(t, left, 2, "asked at the start, before the host's part and behind it")
			return
		}
		require.ErrorIs(t, err, context.Canceled)
		var abandoned *engine.AbandonedError
		require.Equal(t, left > 0, errors.As(err, &abandoned))
		require.NoError(t, x.Reset())
		got, err := x.Run(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, want, got, "after Reset")
	}
	t.Fatal("the call never ended")
}
