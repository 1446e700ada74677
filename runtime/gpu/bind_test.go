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
			exe, err := Engine{Device: "cuda",
				Open: func() (device.Device, error) { return paper{info}, nil }}.Compile(fusetest.Load(b, name),
				engine.Options{Precision: eval.Mixed})
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

// TestLengthsShareKernels: plans of chunks that differ in their length have the same kernels, so that a prompt of a new
// length compiles and tests none.
func TestLengthsShareKernels(t *testing.T) {
	lengths := map[string][2]int{}
	for _, name := range fusetest.Names() {
		lengths[name] = [2]int{50, 61}
	}
	for _, name := range fusetest.Neighbours() {
		lengths[name] = [2]int{10, 15}
	}
	for name, pair := range lengths {
		for _, on := range dumpDevices {
			t.Run(name+"/"+on.name, func(t *testing.T) {
				t.Parallel()
				open := func() (device.Device, error) { return multiplyingPaper{inkPaper{paper{on.info}}}, nil }
				exe, err := Engine{Device: "paper", Open: open}.Compile(fusetest.Load(t, name),
					engine.Options{Precision: eval.Mixed})
				require.NoError(t, err)
				defer exe.Close()
				made, err := exe.NewInstance()
				require.NoError(t, err)
				defer made.Close()
				x := made.(*instance)
				var keys [2]map[string]bool
				for i, n := range pair {
					p, err := x.bind(plan.Shapes(x.exe.fused, n))
					require.NoError(t, err)
					keys[i] = map[string]bool{}
					for _, s := range p.steps {
						if s.host == nil && s.kernel == nil {
							keys[i][s.launch.Key()] = true
						}
					}
				}
				require.Equal(t, keys[0], keys[1])
			})
		}
	}
}
