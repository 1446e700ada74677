//go:build !unix

package devicetest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// MapFile reads a file; mapping is for the tests on Unix.
func MapFile(t testing.TB, path string) (memory []byte, closeFile func()) {
	memory, err := os.ReadFile(path)
	require.NoError(t, err)
	return memory, func() {}
}
