package speculate_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/speculate"
)

// written exports a model with its draft and opens the file.
func written(t *testing.T, dir, draft string) *program.Program {
	t.Helper()
	c, err := loaders.Open(dir)
	require.NoError(t, err)
	defer c.Close()
	if draft == "auto" {
		require.Empty(t, c.FindDraft())
	} else {
		require.NoError(t, c.OpenDraft(draft))
	}
	m, err := c.Build(loaders.Options{MaxSeqLen: 512})
	require.NoError(t, err)
	require.NoError(t, passes.Run(m, &passes.Options{}))
	path := filepath.Join(t.TempDir(), "m.pte")
	require.NoError(t, codegen.Write(context.Background(), path, codegen.File{Module: m, Jobs: 1}))
	p, err := program.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// TestFiles: what is read from a file drafts as what was written.
func TestFiles(t *testing.T) {
	p := written(t, filepath.Join(checkpoints, "qwen35-tiny"), "auto")
	whole, err := p.Whole("forward")
	require.NoError(t, err)
	require.Equal(t, speculate.MultiToken, speculate.KindOf(whole.Named(speculate.Method)))
	require.Equal(t, speculate.None, speculate.KindOf(whole.Entry))
	g := openGoldens(t, filepath.Join("testdata", "qwen35-tiny.safetensors"))
	for device, e := range engines {
		t.Run("mtp/"+device, func(t *testing.T) {
			checkMultiToken(t, compile(t, e, whole), g, "prompt1.", true)
		})
	}
	p = written(t, filepath.Join(checkpoints, "gemma4-chat"), filepath.Join(checkpoints, "gemma4-chat-assistant"))
	whole, err = p.Whole("forward")
	require.NoError(t, err)
	require.Equal(t, speculate.Assistant, speculate.KindOf(whole.Named(speculate.Method)))
	g = openGoldens(t, filepath.Join("testdata", "gemma4-chat.safetensors"))
	for device, e := range engines {
		t.Run("assistant/"+device, func(t *testing.T) {
			checkAssistant(t, compile(t, e, whole), g, "prompt3.")
		})
	}
}

// TestDraftAlone: the method draft by itself, as etc exec --method draft runs it, on recorded hidden states.
func TestDraftAlone(t *testing.T) {
	m, err := written(t, filepath.Join(checkpoints, "qwen35-tiny"), "auto").Module(speculate.Method)
	require.NoError(t, err)
	g := openGoldens(t, filepath.Join("testdata", "qwen35-tiny.safetensors"))
	ids, base := g.ints("prompt1.ids"), g.rows("prompt1.base_hidden")
	text, n := append(ids, g.ints("prompt1.greedy_ids")...), len(ids)+8
	inputs := append(tokensAt(text[1:n+1], 0), hiddenOf(base...))
	for device, e := range engines {
		t.Run(device, func(t *testing.T) {
			x, err := engine.Compile(e, m, engine.Options{Precision: eval.FP32, Threads: 1, Warn: func(string) {}})
			require.NoError(t, err)
			defer x.Close()
			i, err := x.NewInstance()
			require.NoError(t, err)
			defer i.Close()
			out, err := i.Run(t.Context(), inputs)
			require.NoError(t, err)
			require.InDeltaSlice(t, g.rows("prompt1.draft_logits")[n-1], out[0].Tensor.F, tolerance)
			for row, want := range g.rows("prompt1.mtp_hidden") {
				require.InDeltaSlice(t, want, out[1].Tensor.F[row*len(want):(row+1)*len(want)], tolerance)
			}
		})
	}
}
