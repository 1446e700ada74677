//go:build !((linux && !nocuda) || windows)

package cuda

import (
	"fmt"
	"runtime"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Open is for Linux and Windows.
func Open(Options) (device.Device, error) {
	if runtime.GOOS == "linux" {
		return nil, fmt.Errorf("cuda: this program was built with -tags nocuda: %w", device.ErrUnavailable)
	}
	return nil, fmt.Errorf("cuda: it is for Linux and Windows, this is %s: %w", runtime.GOOS, device.ErrUnavailable)
}
