//go:build amd64 || arm64

package standin

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Checked returns the stand-in with default settings; without compilers the test is skipped. When the test ends, no
// object may be left, and there must be one complaint for each of those named, which contains it. There is one
// stand-in in the process, so tests that use it must not run in parallel.
func Checked(t testing.TB, complaints ...string) *Library {
	l, err := Load()
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	l.Reset()
	t.Cleanup(func() {
		got := strings.FieldsFunc(l.Complaints(), func(r rune) bool { return r == '\n' })
		require.Len(t, got, len(complaints), "complaints: %q", got)
		for i := range complaints {
			require.Contains(t, got[i], complaints[i])
		}
		require.Zero(t, l.Live(), "objects that are left")
	})
	return l
}
