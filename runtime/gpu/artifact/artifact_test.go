package artifact

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHash: names of files stay, and texts are told apart by where one ends.
func TestHash(t *testing.T) {
	require.Equal(t, "81dece1c22f9292f6397e2c2fbde6ba8", Hash("a", "bc"))
	require.NotEqual(t, Hash("a", "bc"), Hash("ab", "c"))
	require.Len(t, Hash(), 32)
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "too")
	path := filepath.Join(dir, "file")
	for _, content := range []string{"one", "two"} {
		require.NoError(t, Write(path, []byte(content)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(got))
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "nothing is left aside")
	require.Error(t, Write(filepath.Join(path, "below a file"), nil))
}

func TestDir(t *testing.T) {
	require.Equal(t, "there", Dir("there"))
	if user, err := os.UserCacheDir(); err == nil {
		require.Equal(t, filepath.Join(user, "etc", "kernels"), Dir(""))
	}
}
