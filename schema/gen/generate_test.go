package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckedIn regenerates every file and compares it with the one in the repository.
func TestCheckedIn(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it compiles flatc")
	}
	m, err := flatbuffersModule(t.Context())
	require.NoError(t, err)
	compiler, err := flatc(t.Context(), m)
	if errors.Is(err, errNoCompiler) {
		t.Skipf("flatc %s is not built yet: %v", m.version, err)
	}
	require.NoError(t, err)
	version, err := exec.CommandContext(t.Context(), compiler, "--version").Output()
	require.NoError(t, err)
	require.Contains(t, "v"+string(bytes.TrimPrefix(version, []byte("flatc version "))), m.version)

	checkedIn, err := filepath.Abs("..")
	require.NoError(t, err)
	files, dir := outputs(checkedIn, m.dir), t.TempDir()
	require.NoError(t, generate(t.Context(), compiler, files, dir))
	for _, file := range files {
		want, err := os.ReadFile(filepath.Join(dir, file.target))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(checkedIn, file.target))
		require.NoError(t, err)
		// Not Equal: half a megabyte of diff helps nobody.
		require.True(t, bytes.Equal(want, got), "schema/%s is not what its schema generates: run go generate ./schema",
			file.target)
	}
}
