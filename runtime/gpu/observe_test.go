package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestObserve: kernels and steps of the host are told of, one after the other, with what they are about; what is
// observed changes no result.
func TestObserve(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol n [1, 64]
  constant @layers.3.w : f32[64,32]
  entry forward(%x: f32[n,32]) {
    %0 = linear(x=%x, weight=@layers.3.w) : f32[n,64]
    %1 = cumsum(x=%0) {axis=1} : f32[n,64]
    %2 = tanh(x=%1) : f32[n,64]
    return %2: f32[n,64]
  }
}
`)
	require.NoError(t, err)
	random := normals(1)
	random.fill(t, m, 1)
	var steps []engine.Step
	exe, err := onDevice(t).Compile(m, engine.Options{Precision: eval.FP32, Warn: func(string) {},
		Observe: func(s *engine.Step) { steps = append(steps, *s) }})
	require.NoError(t, err)
	want := compile(t, reference.Engine{}, m, engine.Options{Precision: eval.FP32})
	x, err := exe.NewInstance()
	require.NoError(t, err)
	for _, tokens := range []int{1, 3} {
		steps = nil
		requireSameRun(t, want, x, eval.Value{Tensor: random.tensor(t, tokens, 32)})
		require.Len(t, steps, 4)
		call := steps[3]
		require.Equal(t, engine.Call, call.Kind)
		require.Equal(t, engine.NoLayer, call.Layer)
		at, bytes := call.Start, 0
		for i, kind := range []string{"linear", "reference", "tanh"} {
			s := steps[i]
			require.Equal(t, kind, s.Kind)
			require.Equal(t, 3, s.Layer)
			require.Equal(t, tokens, s.Tokens)
			require.Equal(t, at, s.Start, "steps follow each other")
			at, bytes = at.Add(s.Time), bytes+s.Bytes
		}
		require.Equal(t, "layers.3.w", steps[0].Name)
		require.Equal(t, at, call.Start.Add(call.Time))
		require.Equal(t, 4*64*32, bytes)
		require.Equal(t, bytes, call.Bytes)
	}
	require.NoError(t, x.Close())
	require.NoError(t, exe.Close())
}
