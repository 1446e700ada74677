package gpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/ragged"
)

// TestRaggedHasKernels: in calls of many sequences, of 1 to 64 rows, no operation of any model runs on a reference
// kernel, and every kernel of a plan is in the trial of one of its launches.
func TestRaggedHasKernels(t *testing.T) {
	t.Parallel()
	precisions, sizes := []eval.Precision{eval.FP32, eval.Mixed}, []int{1, 2, 3, 6, 16, 64}
	if testing.Short() {
		precisions, sizes = precisions[1:], []int{1, 6, 64}
	}
	for _, name := range append(fusetest.Names(), fusetest.Neighbours()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			choose := func(*ragged.Model) (ragged.Options, error) {
				return ragged.Options{BlockRows: 16, Rows: 64, Sequences: 8, Units: cache.Demand{20, 20, 20, 20, 20}},
					nil
			}
			m, _, err := fuse.Ragged(fusetest.Load(t, name), ragged.Options{}, choose, passes.Control{})
			require.NoError(t, err)
			for _, p := range precisions {
				e := Engine{Device: "paper", Open: func() (device.Device, error) {
					return paper{device.Info{Machine: kernels.Machine{Target: kernels.CUDA}}}, nil
				}}
				made, err := e.Compile(m, engine.Options{Precision: p, Warn: func(text string) { t.Error(text) }})
				require.NoError(t, err)
				x, err := made.NewInstance()
				require.NoError(t, err)
				for _, rows := range sizes {
					requireKernels(t, x.(*instance), 0, rows, fmt.Sprintf("%d rows, precision %d", rows, p))
				}
				if m.Named(ragged.CopyEntry) != nil {
					requireKernels(t, x.(*instance), 1, 3, "copies")
				}
				require.NoError(t, x.Close())
				require.NoError(t, made.Close())
			}
		})
	}
}

// requireKernels binds an entry for so many rows, or pairs.
func requireKernels(t *testing.T, x *instance, entry, rows int, what string) {
	t.Helper()
	var shapes [][]int
	for _, p := range x.exe.entries[entry].Entry.Params {
		var shape []int
		for _, d := range p.Type.Shape {
			n, known := d.Const()
			if !known {
				n = int64(rows)
			}
			shape = append(shape, int(n))
		}
		shapes = append(shapes, shape)
	}
	bound, err := x.bindEntry(entry, shapes)
	require.NoError(t, err)
	tried := map[string]bool{}
	for _, s := range bound.steps {
		require.Nil(t, s.host, "%s: %s runs on the host", what, s.op.Def.Name)
		if s.kernel == nil && s.launch.Case != nil && !tried[s.launch.Key()] {
			for _, l := range s.launch.Case(kernels.Sizes{}).Launches {
				tried[l.Launch.Key()] = true
			}
		}
	}
	for _, s := range bound.steps {
		require.True(t, s.kernel != nil || tried[s.launch.Key()], "%s: no case has kernel %s", what, s.launch.Key())
	}
}
