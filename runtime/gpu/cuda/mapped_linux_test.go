package cuda

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mapped maps a file until the test ends.
func mapped(t *testing.T, path string) []byte {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s, err := f.Stat()
	require.NoError(t, err)
	p, err := unix.Mmap(int(f.Fd()), 0, int(s.Size()), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(p)) })
	return p
}
