//go:build !linux || (!amd64 && !arm64)

package metaltest

import (
	"testing"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// StandIn is for Linux.
func StandIn(t testing.TB) (open func() (device.Device, error)) {
	t.Skip("the stand-in for Metal runs on Linux, amd64 and arm64")
	return nil
}
