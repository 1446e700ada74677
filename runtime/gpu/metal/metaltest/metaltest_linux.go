//go:build amd64 || arm64

package metaltest

import (
	"testing"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/metal/internal/host"
	"github.com/etc-ml/etc/runtime/gpu/metal/internal/standin"
)

// StandIn returns what opens the device of the stand-in. The test is skipped where there is no C or C++ compiler;
// it ends in an error if an object of Metal's is left then, or if the stand-in saw what Metal would refuse. Tests
// that use it do not run in parallel.
func StandIn(t testing.TB) (open func() (device.Device, error)) {
	l := standin.Checked(t)
	return func() (device.Device, error) {
		return host.Open(host.Libraries{ObjectiveC: l.Path, Metal: l.Path, Others: []string{l.Path}})
	}
}
