package gpu_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/metal/metaltest"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
)

// TestOnMetalsStandIn: a model on the host for Metal, whose compiler takes the text for Metal, tries its kernels at the
// first start, and remembers them for the second.
func TestOnMetalsStandIn(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a whole model on Metal's stand-in")
	}
	e := gpu.Engine{Device: "metal", Open: metaltest.StandIn(t), SelfTest: &selftest.Options{Dir: t.TempDir()}}
	m := fusetest.Load(t, "etc-qwen35moe-chat-portable")
	calls := []int{9, 1}
	want := runCalls(t, m, compile(t, onDevice(t), m, engine.Options{Precision: eval.FP32}), calls)
	for range 2 {
		var warnings []string
		x, err := e.Compile(m, engine.Options{Precision: eval.FP32,
			Warn: func(text string) { warnings = append(warnings, text) }})
		require.NoError(t, err)
		i, err := x.NewInstance()
		require.NoError(t, err)
		requireClose(t, want, runCalls(t, m, i, calls), 1e-4)
		require.Empty(t, strings.Join(warnings, "\n"))
		require.NoError(t, i.Close())
		require.NoError(t, x.Close())
	}
	files, err := os.ReadDir(e.SelfTest.Dir)
	require.NoError(t, err)
	require.Greater(t, len(files), 15)
}
