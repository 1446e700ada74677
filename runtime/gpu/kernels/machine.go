package kernels

// Machine has the properties of a device that kernels and their tunings depend on.
type Machine struct {
	// Target is the language of its kernels.
	Target Target
	// Cores is the number of multiprocessors; 0 where the system does not report it.
	Cores int
	// TransferMemory is the largest Launch.Memory in bytes. It is 0 where the device has no asynchronous copies to
	// threadgroup memory, and kernels that use them should not be chosen.
	TransferMemory int
	// TransferLeast is the size in bytes of a product's codes from which on streaming them through a ring may be
	// faster. It holds for products among the kernels of a model; a single product on its own gains from a smaller size
	// on. From a sixteenth of it on, codes may be kept resident.
	TransferLeast int
	// Groups says that four simdgroups together multiply numbers in registers with numbers in threadgroup memory at the
	// full speed of the device (port_group_multiply in prelude/common.h).
	Groups bool
	// Lanes says that tiles whose lanes read weights where they multiply them (Tile.BK 0) are worthwhile. They always are
	// where Target is CUDA.
	Lanes bool
}

// lanes reports whether tiles of BK 0 are worthwhile.
func (m Machine) lanes() bool { return m.Lanes || m.Target == CUDA }
