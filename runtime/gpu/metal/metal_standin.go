//go:build standin && linux && (amd64 || arm64)

package metal

import (
	"fmt"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/metal/internal/host"
	"github.com/etc-ml/etc/runtime/gpu/metal/internal/standin"
)

// Open opens the stand-in for Metal: with the tag standin, whatever is written for a Mac runs on Linux.
func Open() (device.Device, error) {
	l, err := standin.Load()
	if err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	return host.Open(host.Libraries{ObjectiveC: l.Path, Metal: l.Path, Others: []string{l.Path}})
}
