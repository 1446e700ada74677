package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestWarnings: operations without a kernel give what the reference engine gives, and one warning tells of them all, however
// many there are, however many instances, and for however many shapes there are plans.
func TestWarnings(t *testing.T) {
	m, err := ir.Parse(`module {
  symbol n [1, 64]
  constant @w : f32[64,32]
  entry forward(%x: f32[n,32]) {
    %0 = linear(x=%x, weight=@w) : f32[n,64]
    %1 = cumsum(x=%0) {axis=1} : f32[n,64]
    %2 = tanh(x=%1) : f32[n,64]
    %3 = sort(x=%2) {axis=1} : f32[n,64]
    return %3: f32[n,64]
  }
}
`)
	require.NoError(t, err)
	random := normals(1)
	random.fill(t, m, 1)
	var warnings []string
	o := engine.Options{Precision: eval.FP32, Warn: func(text string) { warnings = append(warnings, text) }}
	exe, err := onDevice(t).Compile(m, o)
	require.NoError(t, err)
	require.Empty(t, warnings, "before anything runs")
	want := compile(t, reference.Engine{}, m, engine.Options{Precision: eval.FP32})
	for range 2 {
		x, err := exe.NewInstance()
		require.NoError(t, err)
		for _, tokens := range []int{1, 1, 3} {
			requireSameRun(t, want, x, eval.Value{Tensor: random.tensor(t, tokens, 32)})
		}
		require.NoError(t, x.Close())
	}
	require.NoError(t, exe.Close())
	require.Len(t, warnings, 1)
	require.Regexp(t, `^--device \w+ has no kernel for cumsum and perhaps other operations of this program: they run on reference kernels, slowly$`, warnings[0])
}
