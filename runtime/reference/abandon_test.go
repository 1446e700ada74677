package reference_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestAbandon: what engine.Instance says of contexts, at every operation in which one may end.
func TestAbandon(t *testing.T) {
	m, err := ir.Parse(`module {
  buffer @sum : f32[2]
  entry forward(%x: f32[2]) {
    %0 = load @sum() : f32[2]
    %1 = add(a=%0, b=%x) : f32[2]
    store @sum(x=%1)
    %2 = neg(x=%1) : f32[2]
    return %2: f32[2]
  }
}
`)
	require.NoError(t, err)
	in := []eval.Value{{Tensor: eval.Floats(ir.F32, []int{2}, []float32{3, 1})}}
	want := []float32{-3, -1}
	x := enginetest.Start(t, reference.Engine{}, m, engine.Options{})
	for left := range 12 {
		out, err := x.Run(&enginetest.Countdown{Context: t.Context(), Left: left}, in)
		if err == nil {
			require.Equal(t, 6, left, "asked by the engine, by the machine and after each of 4 operations")
			require.Equal(t, want, out[0].Tensor.F)
			return
		}
		require.ErrorIs(t, err, context.Canceled)
		var abandoned *engine.AbandonedError
		if left > 0 {
			require.ErrorAs(t, err, &abandoned)
		} else {
			require.NotErrorAs(t, err, &abandoned)
		}
		require.NoError(t, x.Reset())
		out, err = x.Run(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, want, out[0].Tensor.F, "after Reset")
		require.NoError(t, x.Reset())
	}
	t.Fatal("the call never ended")
}
