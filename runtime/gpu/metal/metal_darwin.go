package metal

import (
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/metal/internal/host"
)

// Open makes the device of the system's default GPU. It needs an Apple GPU (M1 or later) and macOS 14; its
// error wraps device.ErrUnavailable and says what is missing.
func Open() (device.Device, error) {
	return host.Open(host.Libraries{
		ObjectiveC: "/usr/lib/libobjc.A.dylib",
		Metal:      "/System/Library/Frameworks/Metal.framework/Metal",
		// In a program of the command line there is no default device unless Core Graphics is loaded.
		Others: []string{"/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"},
	})
}
