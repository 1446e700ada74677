package tune

import "github.com/etc-ml/etc/runtime/gpu/kernels"

// Ways are launches that do the same with the same buffers.
type Ways struct {
	// Launches has the default first.
	Launches []kernels.Launch
	// Near reports whether launches i and j differ in one respect; nil where all of them are near each other.
	Near func(i, j int) bool
}
