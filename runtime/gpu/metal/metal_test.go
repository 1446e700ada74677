//go:build darwin || (standin && linux && (amd64 || arm64))

package metal

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
)

// TestConformance runs the device's test on the system's GPU.
func TestConformance(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) device.Device {
		d, err := Open()
		if errors.Is(err, device.ErrUnavailable) {
			t.Skip(err)
		}
		require.NoError(t, err)
		return d
	})
}
