package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/emulator"
)

// TestSequences runs some of the cases at small dims on the emulator.
func TestSequences(t *testing.T) {
	d, err := emulator.Open(emulator.Options{Cache: t.TempDir()})
	if err != nil {
		t.Skip(err)
	}
	var out strings.Builder
	require.NoError(t, bench(&out, d, sequences(256),
		options{run: "^(qwen attention (step )?at 16|qwen attention of the last 2 at 2|qwen delta step|qwen delta (solve|scan) of 2|qwen attention of 8 at 2|sample |draw |norm of 1x2048|qwen (conv|rope))", top: mostVariants(), dispatches: 1, repeat: 1, rotate: 1 << 16}))
	for _, name := range []string{"qwen attention of the last 2 at 2, with rotation and writes (",
		"qwen attention of the last 2 at 2 (", "qwen attention step at 16 (", "qwen attention at 16 (",
		"qwen attention at 16, merge (", "qwen delta step (", "qwen delta solve of 2 (", "qwen delta scan of 2 (",
		"sample choose (", "draw adjust (", "draw choose (", "draw logprobs (", "qwen attention of 8 at 2 (",
		"norm of 1x2048 (", "qwen rope ("} {
		require.Contains(t, out.String(), name)
	}
	t.Log(out.String())
}
