package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// mostVariants returns how many variants of a case the tests run.
func mostVariants() int {
	if testing.Short() {
		return 2
	}
	return 4
}

// TestBench runs some cases at small dims on the emulator.
func TestBench(t *testing.T) {
	d, err := emulator.Open(emulator.Options{Cache: t.TempDir()})
	if err != nil {
		t.Skip(err)
	}
	var out strings.Builder
	require.NoError(t, bench(&out, d, cases(64),
		options{run: "^(qwen (lm_head|delta in|delta in, conv|out of heads|router|experts down|experts up, chosen, one shared|experts down, one shared|top-k|experts up by 16 of 16|experts sort of 16)$|dequantize)", top: mostVariants(), dispatches: 2, repeat: 1, rotate: 1 << 16}))
	for _, name := range []string{"qwen lm_head (", "qwen delta in (", "qwen delta in, conv (", "qwen out of heads (",
		"qwen experts down (", "dequantize gemma gate ("} {
		require.Contains(t, out.String(), name)
	}
	t.Log(out.String())
	for line := range strings.Lines(out.String()) {
		require.False(t, strings.HasPrefix(line, "  ") && !strings.Contains(line, " diff 0.0e+00"), line)
	}
}

// TestCases makes the launches of all cases at their real dims.
func TestCases(t *testing.T) {
	names := map[string]bool{}
	for _, c := range cases(1) {
		require.False(t, names[c.name], c.name)
		names[c.name] = true
		variants, err := c.variants(kernels.Machine{Target: kernels.CUDA, Cores: 132, TransferMemory: 225 << 10})
		require.NoError(t, err, c.name)
		require.NotEmpty(t, variants, c.name)
		for _, v := range variants {
			if v.product == nil {
				require.Equal(t, kernels.Blank, c.use(v).result().Content, c.name)
			}
		}
	}
}
