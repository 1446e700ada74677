//go:build unix

package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShrunkFile: a file that gets shorter while it is mapped is an error, not the end of the process.
func TestShrunkFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shrinks.pte")
	require.NoError(t, os.WriteFile(path, testdata(t)["qwen35moe-tiny-4w-g32-scan.noweights.pte"], 0o644))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	m, _ := f.Method("forward")
	require.NoError(t, os.Truncate(path, 64))
	_, err = f.MLX(m, 0)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, panicked)
}
