package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/container/containertest"
)

// files are the programs that others have written, by name.
func files(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../container/testdata/*.pte")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	out := map[string][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		out[filepath.Base(path)] = b
	}
	return out
}

// openBytes opens a file in memory.
func openBytes(t testing.TB, name string, data []byte) *Program {
	t.Helper()
	f, err := container.OpenBytes(name, data)
	require.NoError(t, err)
	p, err := New(f)
	require.NoError(t, err)
	return p
}

// takeApart reads a file with one delegate.
func takeApart(t testing.TB, data []byte) *containertest.Parts {
	t.Helper()
	p, err := containertest.TakeApart("test.pte", data)
	require.NoError(t, err)
	return p
}

// alignment of segments in files that tests put together.
const alignment = 16
