package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/prove"
	"github.com/etc-ml/etc/runtime/gpu/tune"
)

// TestGPUsAreProvedAndTuned: what --device takes tries kernels against their known answers before it uses them, and chooses
// among the ways to divide their work, and keeps both where the package keeps them.
func TestGPUsAreProvedAndTuned(t *testing.T) {
	for _, name := range []string{"metal", "cuda"} {
		e, err := findEngine(name)
		require.NoError(t, err)
		g, ok := e.(gpu.Engine)
		require.True(t, ok, "--device %s is %T", name, e)
		require.Equal(t, &prove.Options{}, g.Prove, "--device %s takes kernels on trust", name)
		require.Equal(t, &tune.Options{}, g.Tune, "--device %s tunes nothing", name)
	}
}
