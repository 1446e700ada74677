package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
)

// TestDescribe: every graph has kernels for everything, and layers are no more of them than meant: what a layer
// takes is in the numbers of kernels for a token.
func TestDescribe(t *testing.T) {
	kernels := map[string]int{}
	for _, name := range fusetest.Names() {
		for _, device := range []string{"metal", "cuda"} {
			var out strings.Builder
			require.NoError(t, gpu.Describe(&out, fusetest.Load(t, name), device, 64, engine.Options{Precision: eval.Mixed}))
			require.NotContains(t, out.String(), "reference", "%s on %s", name, device)
			require.NotContains(t, out.String(), "no kernel", "%s on %s", name, device)
			plan, _, _ := strings.Cut(out.String(), "\nby kind\n")
			kernels[name] = strings.Count(plan, "\n") - 3
			require.Contains(t, out.String(), "plan of forward for a chunk of 64 tokens")
		}
	}
	// 4 layers, one of attention; 6 layers of attention.
	require.Equal(t, 30, kernels["etc-qwen35moe-chat-sample"])
	require.Equal(t, 50, kernels["etc-gemma4-chat-sample"])
}
