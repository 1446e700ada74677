package kernel

// amx is the level avx512 with integer matrix products by the matrix unit of Sapphire Rapids and later.
func amx() *implementation {
	level := avx512
	level.name = "amx"
	level.blockInteger = blockIntegerAMX
	level.blockRows = [2]func(panel, data []byte, rowBytes, rows, pieces, piece int){blockRowsQ4AMX, blockRowsQ8AMX}
	level.blockStore = blockStoreAMX
	return &level
}
