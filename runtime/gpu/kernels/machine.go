package kernels

// Machine is what the texts of kernels and the division of their work depend on.
type Machine struct {
	// Target is the language of its kernels.
	Target Target
	// Cores is the number of multiprocessors; 0 where the system does not tell.
	Cores int
	// TransferMemory is the largest Launch.Memory in bytes; 0 where the device has no transfers that run beside
	// threads, and kernels that use them should not be chosen.
	TransferMemory int
	// TransferLeast is the size of a product's codes in bytes from which on a ring of them may be better. It is that of
	// products among kernels of a model: alone, smaller ones are faster too. Those of a sixteenth of it and more may be
	// held.
	TransferLeast int
}
