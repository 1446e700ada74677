package gpu_test

import (
	"fmt"
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
	describe := func(name string, chunk int) {
		m := fusetest.Load(t, name)
		for _, device := range []string{"metal", "cuda"} {
			for _, precision := range []eval.Precision{eval.FP32, eval.Mixed} {
				var out strings.Builder
				require.NoError(t, gpu.Describe(&out, m, device, chunk, engine.Options{Precision: precision}))
				require.NotContains(t, out.String(), "reference", "%s on %s", name, device)
				require.NotContains(t, out.String(), "no kernel", "%s on %s", name, device)
				plan, _, _ := strings.Cut(out.String(), "\nby kind\n")
				kernels[name] = strings.Count(plan, "\n") - 3
				require.Contains(t, out.String(), fmt.Sprintf("plan of forward for a chunk of %d tokens", chunk))
			}
		}
	}
	for _, name := range fusetest.Names() {
		describe(name, 64)
	}
	for _, name := range fusetest.Neighbours() {
		describe(name, 5) // the windows allow 16
		describe(name, 16)
	}
	// 4 layers, one of attention; 6 layers of attention.
	require.Equal(t, 30, kernels["etc-qwen35moe-chat-sample"])
	require.Equal(t, 50, kernels["etc-gemma4-chat-sample"])
	require.Equal(t, 80, kernels["neighbours/gemma4moe-4w"])
}
