package command

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
)

// BenchmarkSlot saves and loads states as those of 32k tokens of Qwen3.5-35B: 20 caches of 32 MiB in bfloat16.
func BenchmarkSlot(b *testing.B) {
	kept := &batch.Kept{Tokens: make([]int32, 32<<10), Form: "blocks of 64 positions"}
	for i := range 20 {
		v := make([]float32, 16<<20)
		for j := range v {
			v[j] = float32(j % 128)
		}
		kept.States = append(kept.States, engine.State{Buffer: string(rune('a' + i)), Tensor: eval.Floats(ir.BF16, []int{16 << 20}, v)})
	}
	folder := &slotFolder{dir: b.TempDir(), model: "m", program: "p", precision: "mixed"}
	b.Run("save", func(b *testing.B) {
		b.SetBytes(20 * 32 << 20)
		for b.Loop() {
			_, err := folder.Save("x", kept)
			require.NoError(b, err)
		}
	})
	_, err := os.Stat(folder.path("x"))
	if err != nil {
		_, err = folder.Save("x", kept)
		require.NoError(b, err)
	}
	b.Run("load", func(b *testing.B) {
		b.SetBytes(20 * 32 << 20)
		for b.Loop() {
			_, _, err := folder.Load("x")
			require.NoError(b, err)
		}
	})
}
