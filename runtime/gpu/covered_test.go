package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// TestTrialsCoverPlans: every kernel of a plan is in the trial of one of its launches, on every device.
func TestTrialsCoverPlans(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, name := range fusetest.Names() {
		m := fusetest.Load(t, name)
		for _, target := range []kernels.Target{kernels.Metal, kernels.CUDA} {
			for _, p := range []eval.Precision{eval.FP32, eval.Mixed} {
				e := Engine{Device: "paper", Open: func() (device.Device, error) {
					return paper{device.Info{Machine: kernels.Machine{Target: target}}}, nil
				}}
				made, err := e.Compile(m, engine.Options{Precision: p})
				require.NoError(t, err)
				x, err := made.NewInstance()
				require.NoError(t, err)
				for _, tokens := range []int{1, 4, 64} {
					plan, err := x.(*instance).bind(bind.Shapes(made.(*executable).fused, tokens))
					require.NoError(t, err)
					tried := map[string]bool{}
					for _, s := range plan.steps {
						if s.host == nil && s.kernel == nil && s.launch.Trial != nil && !tried[s.launch.Key()] {
							for _, l := range s.launch.Trial().Launches {
								tried[l.Launch.Key()] = true
							}
						}
					}
					for _, s := range plan.steps {
						if s.host == nil && s.kernel == nil {
							seen++
							require.True(t, tried[s.launch.Key()], "%s, %d tokens: no trial has kernel %s", name, tokens, s.launch.Key())
						}
					}
				}
				require.NoError(t, x.Close())
				require.NoError(t, made.Close())
			}
		}
	}
	require.NotZero(t, seen)
}
