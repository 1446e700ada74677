package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
)

// TestWaysTakeTheSameArguments: a step is bound once, so whatever the tuner chooses takes what the default takes.
func TestWaysTakeTheSameArguments(t *testing.T) {
	checked := 0
	for _, name := range []string{"etc-qwen35moe-chat-sample", "etc-gemma4-chat-sample"} {
		m := fusetest.Load(t, name)
		for _, on := range dumpDevices {
			e := Engine{Device: "paper", Open: func() (device.Device, error) { return paper{on.info}, nil }}
			exe, err := e.Compile(m, engine.Options{Precision: eval.Mixed})
			require.NoError(t, err)
			made, err := exe.NewInstance()
			require.NoError(t, err)
			n := made.(*instance)
			for _, tokens := range []int{1, 64} {
				p, err := n.bind(plan.Shapes(n.exe.fused, tokens))
				require.NoError(t, err)
				for i := range p.steps {
					if s := &p.steps[i]; s.variants != nil {
						require.NotNil(t, s.launch.Signature(), s.launch.Kernel)
						for _, l := range s.variants().Launches {
							require.Same(t, s.launch.Signature(), l.Signature(), "%s and %s on %s",
								s.launch.Kernel, l.Kernel, on.name)
							checked++
						}
					}
				}
			}
			require.NoError(t, made.Close())
			require.NoError(t, exe.Close())
		}
	}
	require.NotZero(t, checked)
}
