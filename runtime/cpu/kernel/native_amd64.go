package kernel

import "golang.org/x/sys/cpu"

// native returns the levels of this CPU, the best last.
func native() []*implementation {
	var levels []*implementation
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasBMI2 {
		levels = append(levels, &avx2)
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL &&
		cpu.X86.HasAVX512VNNI && cpu.X86.HasBMI2 && cpu.X86.HasFMA {
		levels = append(levels, &avx512)
		if cpu.X86.HasAMXTile && cpu.X86.HasAMXInt8 && requestAMX() {
			levels = append(levels, amx())
		}
	}
	return levels
}
