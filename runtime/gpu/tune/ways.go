package tune

import (
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Ways are launches that do the same with the same buffers.
type Ways struct {
	// Launches has the default first.
	Launches []kernels.Launch
	// Near reports whether launches i and j differ in one respect; nil where all of them are near each other.
	Near func(i, j int) bool
}

func (w Ways) near(i, j int) bool { return w.Near == nil || w.Near(i, j) }

// Product is a kernel at a shape that is to be tuned.
type Product struct {
	Ways
	// Bytes are what a pass of the model reads of weights for it: where the time does not suffice for all products,
	// it goes to those that read most.
	Bytes int
	// Runs are the buffers of the dispatches that measure it, in the order of the kernel's: the same kernel on one set
	// of weights after the other, so that no cache holds them. The kernel may write what it writes there.
	Runs [][]device.Argument
}
