package gpu

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/program"
)

// weighing is a device on paper that counts what is wrapped and what is copied to it.
type weighing struct {
	paper
	wrapped map[*byte]int // bytes, by where they begin
	copied  []int         // bytes of every write
}

func (w *weighing) Wrap(memory []byte) (device.Buffer, error) {
	w.wrapped[unsafe.SliceData(memory)] += len(memory)
	return w.paper.Wrap(memory)
}

func (w *weighing) NewBuffer(size int) (device.Buffer, error) {
	return &weighed{sheet{size: size}, w}, nil
}

// weighed is a buffer of such a device.
type weighed struct {
	sheet
	on *weighing
}

func (b *weighed) Write(_ int, p []byte) error {
	b.on.copied = append(b.on.copied, len(p))
	return nil
}

// TestWeightsAreWrapped: of a program of ours, kernels read every matrix, with its scales and biases, where it lies in
// the file's map. It is wrapped once, for all instances and plans. What is copied is not larger than the largest of the
// rest (weights of norms and of convolutions, numbers) as float32.
func TestWeightsAreWrapped(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, name := range fusetest.Names() {
		if !strings.HasPrefix(name, "etc-") {
			continue
		}
		path := filepath.Join(t.TempDir(), "model.pte")
		require.NoError(t, codegen.Write(t.Context(), path, codegen.File{Module: fusetest.Load(t, name)}))
		file, err := program.Open(path)
		require.NoError(t, err)
		m, err := file.Module("forward")
		require.NoError(t, err)
		d := &weighing{paper{device.Info{Machine: kernels.Machine{Target: kernels.Metal}}}, map[*byte]int{}, nil}
		exe, err := Engine{Device: "paper", Open: func() (device.Device, error) { return d, nil }}.Compile(m,
			engine.Options{Precision: eval.Mixed})
		require.NoError(t, err)
		var copied []int
		for range 2 {
			x, err := exe.NewInstance()
			require.NoError(t, err)
			d.copied = nil // the zeros of the states
			for _, tokens := range []int{1, 64} {
				_, err := x.(*instance).bind(plan.Shapes(exe.(*executable).fused, tokens))
				require.NoError(t, err)
			}
			copied = append(copied, d.copied...)
			require.NoError(t, x.Close())
		}
		rest := int64(0)
		for _, c := range m.Constants {
			dims, _ := c.Value.Type.Static()
			if len(dims) < 2 || strings.Contains(c.Name, "conv1d") {
				rest = max(rest, 4*ir.Elements(dims))
				continue
			}
			data, err := eval.ConstantBytes(c)
			require.NoError(t, err)
			require.Equal(t, len(data), d.wrapped[unsafe.SliceData(data)],
				"%s: bytes of %s %v that are wrapped where they lie", name, c.Name, dims)
			delete(d.wrapped, unsafe.SliceData(data))
			seen++
		}
		require.Empty(t, d.wrapped, "%s: what is wrapped and is no matrix", name)
		require.NotEmpty(t, copied, name)
		require.LessOrEqual(t, int64(slices.Max(copied)), rest, "%s: bytes of the largest copy", name)
		require.NoError(t, exe.Close())
		require.NoError(t, file.Close())
	}
	require.NotZero(t, seen)
}
