package command

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
)

// BenchmarkSlot saves and loads states as those of 32k tokens of Qwen3.5-35B: 20 caches of 32 MiB in bfloat16.
func BenchmarkSlot(b *testing.B) {
	var states []engine.State
	for i := range 80 { // parts as a server writes them
		v := make([]float32, 4<<20)
		for j := range v {
			v[j] = float32(j % 128)
		}
		states = append(states, engine.State{Buffer: string(rune('a' + i/4)), Tensor: eval.Floats(ir.BF16, []int{4 << 20}, v)})
	}
	kept := batch.NewKept(make([]int32, 32<<10), "blocks of 64 positions", states)
	folder := &slotFolder{dir: b.TempDir(), model: "m", program: "p", precision: "mixed"}
	save := func() {
		_, err := folder.Save(b.Context(), "x", kept)
		require.NoError(b, err)
	}
	b.Run("save", func(b *testing.B) {
		b.SetBytes(20 * 32 << 20)
		for b.Loop() {
			save()
		}
	})
	if _, err := os.Stat(folder.path("x")); err != nil {
		save()
	}
	b.Run("load", func(b *testing.B) {
		b.SetBytes(20 * 32 << 20)
		for b.Loop() {
			got, _, err := folder.Load("x")
			require.NoError(b, err)
			var group errgroup.Group
			group.SetLimit(runtime.GOMAXPROCS(0))
			for i := range got.Parts {
				group.Go(func() error { _, err := got.Read(b.Context(), i); return err })
			}
			require.NoError(b, group.Wait())
			require.NoError(b, got.Close())
		}
	})
}
