package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestLevels runs models at every level of kernels that this CPU has. It is not parallel: the level is one
// for the whole process.
func TestLevels(t *testing.T) {
	best := kernel.Level()
	defer func() { require.NoError(t, kernel.SetLevel(best)) }()
	for _, name := range []string{"qwen35moe-tiny-4w-g32-emb8w", "gemma4-chat-bf16-ropefix", "etc-gemma4-chat-sample"} {
		m := fusetest.Load(t, name)
		o := engine.Options{Precision: eval.FP32, Threads: 2}
		want := runChunks(t, m, compile(t, reference.Engine{}, m, o))
		for _, level := range kernel.Levels() {
			require.NoError(t, kernel.SetLevel(level))
			requireClose(t, want, runChunks(t, m, compile(t, cpu.Engine{}, m, o)), 3e-4)
		}
	}
}
