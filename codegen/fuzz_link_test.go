package codegen_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/outfile"
)

// FuzzLink: parts of which one has other bytes, or is cut, are linked to the very file or refused.
func FuzzLink(f *testing.F) {
	f.Cleanup(codegen.SetSizes(1000, 5000))
	whole := filepath.Join(f.TempDir(), "whole.pte")
	require.NoError(f, codegen.Write(f.Context(), whole, manyWeights(f)))
	want, err := os.ReadFile(whole)
	require.NoError(f, err)
	var parts [][]byte
	for i := 1; i <= 2; i++ {
		path := filepath.Join(f.TempDir(), "part")
		require.NoError(f, codegen.WritePart(f.Context(), path, manyWeights(f), i, 2))
		b, err := os.ReadFile(path)
		require.NoError(f, err)
		parts = append(parts, b)
	}
	f.Add(uint8(0), uint32(0), uint8(1), uint32(0), uint8(0))
	f.Add(uint8(1), uint32(40), uint8(255), uint32(0), uint8(0))
	f.Add(uint8(1), uint32(1<<20), uint8(1), uint32(100), uint8(3))
	f.Fuzz(func(t *testing.T, part uint8, at uint32, change uint8, cut uint32, repeat uint8) {
		dir := t.TempDir()
		var paths []string
		for i, b := range parts {
			if i == int(part)%2 {
				b = slices.Clone(b)
				for n := range int(repeat)%4 + 1 {
					b[(int(at)+n*4099)%len(b)] ^= change
				}
				b = b[:len(b)-int(cut)%len(b)]
			}
			paths = append(paths, filepath.Join(dir, string(rune('a'+i))))
			require.NoError(t, os.WriteFile(paths[i], b, 0o600))
		}
		path := filepath.Join(dir, "model.pte")
		if err := codegen.Link(t.Context(), path, paths, 1, outfile.Options{}); err != nil {
			require.NoFileExists(t, path)
			return
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "another file is linked without an error")
	})
}
