package cpu_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

func describe(t *testing.T, m *ir.Module, o engine.Options) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, cpu.Describe(&b, m, 64, o))
	return b.String()
}

func TestDescribe(t *testing.T) {
	text := describe(t, programOf(t, programs["products"]), engine.Options{Precision: eval.Mixed})
	for _, want := range []string{"linear", "1  glu", "1  softcap", "@m", "bf16[1,2,5,6]", "for a chunk of 64 tokens",
		"activations of 8 bits"} {
		require.Contains(t, text, want)
	}
	require.Contains(t, describe(t, programOf(t, programs["a scan"]), engine.Options{Exact: true}),
		"no kernel for scan")
	require.Error(t, cpu.Describe(&strings.Builder{}, programOf(t, programs["products"]), 64,
		engine.Options{Precision: eval.Strict}))
}

// fusedCount is a line of the fused operations.
var fusedCount = regexp.MustCompile(`(?m)^ +([0-9]+)  ([a-z_]+)$`)

// TestPlansAreTheSame: the plans of ExecuTorch's chat files and of ours of the same checkpoints hold the same
// fused operations, and nothing that has a size to speak of runs on a reference kernel. Projections of one
// input, which our files hold as one, count as one.
func TestPlansAreTheSame(t *testing.T) {
	for ours, theirs := range map[string]string{
		"etc-qwen35moe-chat-sample":   "qwen35moe-chat-4w-g64-sample",
		"etc-qwen35moe-chat-portable": "qwen35moe-chat-4w-g64-f32-scan",
		"etc-gemma4-chat-sample":      "gemma4-chat-int4-g64-sample-ropefix",
	} {
		var counts [2]map[string]int
		for i, name := range []string{ours, theirs} {
			text := describe(t, fusetest.Load(t, name), engine.Options{Precision: eval.Mixed})
			require.NotRegexp(t, `(?m)^ +[0-9]+  reference `, text, name)
			require.Contains(t, text, "for a chunk of")
			counts[i] = map[string]int{}
			for _, m := range fusedCount.FindAllStringSubmatch(text, -1) {
				n, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				counts[i][strings.Replace(m[2], "linears", "linear", 1)] += n
			}
			require.NotEmpty(t, counts[i])
		}
		require.Equal(t, counts[1], counts[0], "%s and %s", ours, theirs)
	}
}
