//go:build unix

package devicetest

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// MapFile maps a file to be read, until the function it gives is called.
func MapFile(t testing.TB, path string) (memory []byte, closeFile func()) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	memory, err = syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	require.NoError(t, err)
	return memory, func() { require.NoError(t, syscall.Munmap(memory)) }
}
