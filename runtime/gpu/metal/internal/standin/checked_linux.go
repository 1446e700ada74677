//go:build amd64 || arm64

package standin

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Checked returns the stand-in as it is at the start; the test is skipped where there are no compilers. When the
// test ends, no object may be left, and the complaints must be as many as those named and contain them. The
// stand-in is one for the process: tests that use it do not run in parallel.
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
