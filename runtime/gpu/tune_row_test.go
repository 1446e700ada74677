package gpu_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
)

// rowInputs are the inputs of a call of one row of a module for many sequences: a token at a position of the only
// sequence, whose blocks are the first ones and whose state is updated in slot 0.
func rowInputs(f *ir.Func, token, position int64) (out []eval.Value) {
	for _, p := range f.Params {
		dims := make([]int, len(p.Type.Shape))
		for i, d := range p.Type.Shape {
			n, known := d.Const()
			if dims[i] = int(n); !known {
				dims[i] = 1
			}
		}
		n := 1
		for _, d := range dims {
			n *= d
		}
		content := make([]int64, n)
		switch p.Param {
		case "tokens":
			content[0] = token
		case "input_pos":
			content[0] = position
		case "entries":
			content = []int64{0, 1, 0}
		case "sequences", "writes", "wanted":
		default:
			for i := range content {
				content[i] = int64(i)
			}
		}
		out = append(out, eval.Value{Tensor: eval.Ints(p.Type.DType, dims, content)})
	}
	return out
}

// TestTuneOneRow: the plan of a call of one row among many sequences is measured in place, as that of a session's token
// is, and the measurements leave nothing behind in its slots and blocks. That holds where Tune may measure later, too:
// then no call follows that would write the blocks again.
func TestTuneOneRow(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner of whole models on the emulator")
	}
	t.Parallel()
	emulated(t)
	for _, name := range []string{"etc-qwen35moe-chat-sample", "gemma4-chat-bf16-ropefix"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := batch.RaggedModule(fusetest.Load(t, name), onDevice(t).(gpu.Engine),
				batch.RaggedOptions{Rows: 4, Sequences: 1, BlockRows: 16})
			require.NoError(t, err)
			run := func(i engine.Instance) (out []*eval.Tensor) {
				for position := range int64(3) {
					result, err := i.Run(t.Context(), rowInputs(m.Entry, 9+position, position))
					require.NoError(t, err)
					out = append(out, result[0].Tensor)
				}
				require.NoError(t, i.(engine.Tunable).Tune(t.Context()))
				states, err := i.(engine.Stateful).Snapshot()
				require.NoError(t, err)
				for _, s := range states {
					out = append(out, s.Tensor)
				}
				return out
			}
			o := engine.Options{Precision: eval.Mixed, NoTune: true, Warn: func(string) {}}
			want, program := spied(t, m, o, run)
			require.Len(t, program, 1)
			o.NoTune = false
			for _, o.TuneLater = range []bool{false, true} {
				got, lists := spied(t, m, o, run)
				require.True(t, reflect.DeepEqual(want, got), "TuneLater: %v", o.TuneLater)
				require.Equal(t, shape(program[0]), shape(lists[0]), "a pass comes first")
				require.Greater(t, slices.Max(requireInPlace(t, program, lists)), 1)
			}
		})
	}
}
