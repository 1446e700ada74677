//go:build !linux || (!amd64 && !arm64)

package emulator

import (
	"fmt"
	"runtime"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Open is for Linux, amd64 and arm64.
func Open(Options) (device.Device, error) {
	return nil, fmt.Errorf("emulator: it runs on linux/amd64 and linux/arm64, this is %s/%s: %w", runtime.GOOS,
		runtime.GOARCH, device.ErrUnavailable)
}
