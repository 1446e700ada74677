package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
)

// others has the kernels that no model has.
const others = `module {
  symbol n [1, 64]
  constant @w : bf16[512,32]
  entry forward(%x: f32[n,32]) {
    %y = linear(x=%x, weight=@w) : f32[n,512]
    %0 = sum(x=%y) {axes=[1]} : f32[n]
    %1 = mean(x=%y) {axes=[0]} : f32[512]
    %2 = max(x=%y) {axes=[]} : f32[]
    %3 = min(x=%y) {axes=[1]} : f32[n]
    %4 = argmax(x=%1) {axis=0, keepdims=true} : u32[1]
    %5 = argmin(x=%y) {axis=0} : u32[512]
    %6 = take(x=%1, index=%4) {axis=0} : f32[1]
    return %0: f32[n], %2: f32[], %3: f32[n], %5: u32[512], %6: f32[1]
  }
}
`

// TestTrialsCoverPlans: every kernel of a plan is in the trial of one of its launches, on every device.
func TestTrialsCoverPlans(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, name := range append(fusetest.Names(), "others") {
		var m *ir.Module
		if name != "others" {
			m = fusetest.Load(t, name)
		} else {
			var err error
			m, err = ir.Parse(others)
			require.NoError(t, err)
			m.Constants[0].Data = ir.Bytes(ir.BF16, []int64{512, 32}, make([]byte, 2*512*32))
		}
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
					bound, err := x.(*instance).bind(plan.Shapes(made.(*executable).fused, tokens))
					require.NoError(t, err)
					tried := map[string]bool{}
					for _, s := range bound.steps {
						if s.host == nil && s.kernel == nil && s.launch.Case != nil && !tried[s.launch.Key()] {
							for _, l := range s.launch.Case(kernels.Sizes{}).Launches {
								tried[l.Launch.Key()] = true
							}
						}
					}
					for _, s := range bound.steps {
						if s.host == nil && s.kernel == nil {
							seen++
							require.True(t, tried[s.launch.Key()], "%s, %d tokens: no case has kernel %s", name,
								tokens, s.launch.Key())
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
