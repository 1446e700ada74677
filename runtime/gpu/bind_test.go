package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
)

// BenchmarkBind makes the plan for one token again and again.
func BenchmarkBind(b *testing.B) {
	info := device.Info{Machine: kernels.Machine{Target: kernels.CUDA}}
	for _, name := range fusetest.Names() {
		b.Run(name, func(b *testing.B) {
			exe, err := Engine{Device: "cuda", Open: func() (device.Device, error) { return paper{info}, nil }}.Compile(fusetest.Load(b, name), engine.Options{Precision: eval.Mixed})
			require.NoError(b, err)
			defer exe.Close()
			made, err := exe.NewInstance()
			require.NoError(b, err)
			defer made.Close()
			x := made.(*instance)
			shapes := plan.Shapes(x.exe.fused, 1)
			for b.Loop() {
				p, err := x.bind(shapes)
				require.NoError(b, err)
				b.ReportMetric(float64(len(p.steps)), "steps")
				require.NoError(b, p.close(x))
			}
		})
	}
}
