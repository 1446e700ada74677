//go:build !darwin && !(standin && linux && (amd64 || arm64))

package metal

import (
	"fmt"
	"runtime"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Open is for macOS.
func Open() (device.Device, error) {
	return nil, fmt.Errorf("metal: it is for macOS, this is %s: %w", runtime.GOOS, device.ErrUnavailable)
}
