package command

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/statefile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/synthetic"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
)

// slotModel is a program with the state of Qwen3.5-35B and a context of 33k tokens, and small in all else.
func slotModel(b *testing.B) *ir.Module {
	b.Helper()
	c := synthetic.Qwen35MoE35B(40)
	c.VocabSize, c.HiddenSize, c.Experts, c.ExpertsPerToken, c.ExpertIntermediate, c.SharedExpertIntermediate = 512, 64,
		4, 2, 64, 64
	dir, file := b.TempDir(), filepath.Join(b.TempDir(), "m.pte")
	require.NoError(b, synthetic.Generate(dir, synthetic.Spec{Config: c, Seed: 1}))
	require.Zero(b, Main([]string{"export", dir, "-o", file, "--max-seq-len", "33792", "--qlinear", "4w"}))
	p, err := openProgram(file)
	require.NoError(b, err)
	b.Cleanup(func() { p.Close() })
	m, err := p.Module("forward")
	require.NoError(b, err)
	return m
}

// BenchmarkSlot saves states of 32k tokens of Qwen3.5-35B, of random numbers, and restores them from the page cache
// into a runner on the CPU. There is room for one, so that each is restored anew.
func BenchmarkSlot(b *testing.B) {
	x, err := batch.NewRagged(slotModel(b), cpu.Engine{}, batch.RaggedOptions{Sequences: 1, Budget: 3 << 30, Rows: 256,
		Engine: engine.Options{Precision: eval.Mixed}})
	require.NoError(b, err)
	runner, err := batch.New(x, batch.Options{Budget: 3 << 30, Prefix: 1 << 30})
	require.NoError(b, err)
	defer runner.Close()
	layout := x.Layout()
	units := []cache.Unit{{Pool: layout.SlotPool()}}
	for i := range (32 << 10) / layout.BlockRows {
		units = append(units, cache.Unit{Pool: cache.BlockPool, ID: int32(i)})
	}
	saver := x.(batch.PartSaver)
	parts, err := saver.Parts(units)
	require.NoError(b, err)
	random := rand.New(rand.NewPCG(1, 2))
	var saved []batch.Part
	var contents [][]byte
	size := int64(0)
	for _, p := range parts {
		t, err := eval.NewTensor(p.DType, p.Shape...)
		require.NoError(b, err)
		for i := range t.F {
			t.F[i] = float32(int(random.Uint32()>>24)-128) / 64 // bfloat16 has it
		}
		saved, contents = append(saved, p.Part), append(contents, t.Encode())
		size += int64(p.Size())
	}
	folder := &statefile.Slots{Dir: b.TempDir(), Model: "m", Of: statefile.Owner{Program: "p", Precision: "mixed"}}
	save := func(name string) {
		tokens := make([]int32, 32<<10)
		tokens[0] = int32(name[0])
		_, err := folder.Save(b.Context(), name, batch.NewSaved(tokens, saver.Form(), saved, contents))
		require.NoError(b, err)
	}
	save("a")
	save("b")
	b.Run("save", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			save("a")
		}
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(size)
		for i := 0; b.Loop(); i++ {
			saved, _, err := folder.Load([]string{"a", "b"}[i%2])
			require.NoError(b, err)
			require.NoError(b, runner.Restore(b.Context(), saved))
			require.NoError(b, saved.Close())
		}
	})
}
