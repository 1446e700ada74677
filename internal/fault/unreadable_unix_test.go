//go:build unix

package fault_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/etc-ml/etc/internal/fault"
)

var sink byte

// A file that is cut while it is mapped is an error, not the end of the process, for reads in Go and for copies.
func TestCutFile(t *testing.T) {
	size := 4 * os.Getpagesize()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(data) //nolint:errcheck // the test is over
	require.NoError(t, os.Truncate(path, 10))
	for name, read := range map[string]func(){
		"byte": func() { sink = data[size-1] + data[size-2] },
		"copy": func() { copy(make([]byte, size), data) },
	} {
		done := make(chan error)
		go func() {
			fault.Readable()
			done <- guarded(read)
		}()
		err := <-done
		var of *fault.Error
		require.ErrorAs(t, err, &of, name)
		require.True(t, of.Unreadable(), name)
		require.ErrorContains(t, err, "memory that a file is mapped to cannot be read: the file was cut, or its disk fails")
	}
}
