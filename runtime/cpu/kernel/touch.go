package kernel

import "encoding/binary"

// Touch reads data as fast as the level can and gives the exclusive or of its little-endian 64-bit words, the
// last one filled up with zeros. It measures the bandwidth that other kernels are compared with, and brings
// pages into memory.
func Touch(data []byte) uint64 {
	whole := len(data) &^ 255
	return active.touch(data[:whole]) ^ touchGeneric(data[whole:])
}

func touchGeneric(data []byte) uint64 {
	var all uint64
	for ; len(data) >= 8; data = data[8:] {
		all ^= binary.LittleEndian.Uint64(data)
	}
	if len(data) > 0 {
		var last [8]byte
		copy(last[:], data)
		all ^= binary.LittleEndian.Uint64(last[:])
	}
	return all
}
