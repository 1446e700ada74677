package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
)

// TestGPUsAreProvedAndTuned: what --device takes tries kernels against their self-tests before it uses them, and
// chooses among the ways to divide their work, and keeps both where the package keeps them.
func TestGPUsAreProvedAndTuned(t *testing.T) {
	for _, name := range []string{"metal", "cuda"} {
		e, err := findEngine(name)
		require.NoError(t, err)
		g, ok := e.(gpu.Engine)
		require.True(t, ok, "--device %s is %T", name, e)
		require.Equal(t, &selftest.Options{}, g.SelfTest, "--device %s takes kernels on trust", name)
		require.Equal(t, &tune.Options{}, g.Tune, "--device %s tunes nothing", name)
	}
}

// TestAutoOfIfs: a GPU that is not there says nothing of a program that no GPU runs: --device auto takes the CPU.
func TestAutoOfIfs(t *testing.T) {
	for _, g := range devices.GPUs {
		if d, err := g.Open(); err == nil {
			require.NoError(t, d.Close())
			t.Skipf("there is a %s", g.Device)
		}
	}
	m, err := ir.Parse(`module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%c: i64[1], %x: f32[4]) {
    %0 = item_int(x=%c) : int(s0)
    %1 = if(cond=%0) : f32[4] {
      %2 = exp(x=%x) : f32[4]
      yield %2
    } else {
      %3 = neg(x=%x) : f32[4]
      yield %3
    }
    return %1: f32[4]
  }
}
`)
	require.NoError(t, err)
	e, err := findEngine("auto")
	require.NoError(t, err)
	var warnings []string
	o := engine.Options{Precision: eval.FP32, Warn: func(text string) { warnings = append(warnings, text) }}
	x, err := e.Compile(m, o)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	require.Equal(t, "cpu", e.Name())
	require.Empty(t, warnings)
	_, err = devices.GPUs[0].Compile(m, o)
	require.ErrorIs(t, err, device.ErrUnavailable)
}
