package loaders

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/inputtest"
)

// TestGGUFDraft: a GGUF file with a layer that drafts tokens has the weights of the checkpoint that it was made of.
func TestGGUFDraft(t *testing.T) {
	dir := chatCheckpoint("qwen35-tiny")
	source, err := inputtest.Read(dir)
	require.NoError(t, err)
	source.WithDraft = true
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, source.WriteGGUF(path, func(string) string { return "F32" }))

	values := func(c *Checkpoint) map[string][]float32 {
		require.Empty(t, c.FindDraft())
		require.Equal(t, MultiTokenDraft, c.Draft())
		require.Zero(t, c.Skipped()[builder.MultiToken])
		m := build(t, c, Options{MaxSeqLen: 64, NoSampler: true})
		require.NotNil(t, m.Named(builder.Draft))
		out := map[string][]float32{}
		for _, constant := range m.Constants {
			if !strings.HasPrefix(constant.Name, "mtp.") {
				continue
			}
			raw, err := ir.ReadData(constant.Data)
			require.NoError(t, err)
			v := make([]float32, ir.Elements(constant.Data.Shape()))
			if constant.Data.DType() == ir.BF16 {
				numeric.BF16SliceToF32(v, raw)
			} else {
				numeric.F32SliceFromBytes(v, raw)
			}
			out[constant.Name] = v
		}
		return out
	}
	want := values(openCheckpoint(t, dir))
	require.Len(t, want, 15)
	c, err := OpenGGUF(path, false)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, want, values(c))
	drafts := 0
	for _, s := range c.Sources() {
		if s.Draft {
			drafts++
			require.Contains(t, s.Name, "blk.4.")
		}
	}
	require.Equal(t, 15, drafts)
}

// TestDraftSources: tensors of an assistant have names of tensors of the model, and are kept apart.
func TestDraftSources(t *testing.T) {
	c := openCheckpoint(t, chatCheckpoint("gemma4-chat"))
	before := len(c.Sources())
	require.NoError(t, c.OpenDraft(chatCheckpoint("gemma4-chat-assistant")))
	seen := map[string]bool{}
	for _, s := range c.Sources() {
		require.False(t, seen[s.Provenance()], s.Provenance())
		seen[s.Provenance()] = true
	}
	require.Greater(t, len(c.Sources()), before)
	m := build(t, c, Options{MaxSeqLen: 64})
	names := map[string]bool{}
	for _, constant := range m.Constants {
		require.False(t, names[constant.Name], constant.Name)
		names[constant.Name] = true
	}
	require.True(t, names["assistant.layers.0.input_layernorm.weight"])
}
