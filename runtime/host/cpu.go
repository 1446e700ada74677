package host

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// feature is a CPU feature that kernels care for.
type feature struct {
	name string
	has  bool
}

// CPUFeatures names the vector and matrix extensions that the processor has and the operating system lets
// programs use, as Linux names them in /proc/cpuinfo.
func CPUFeatures() []string {
	var all []feature
	switch x, a := cpu.X86, cpu.ARM64; runtime.GOARCH {
	case "amd64", "386":
		all = []feature{{"sse4_2", x.HasSSE42}, {"avx", x.HasAVX}, {"f16c", x.HasF16C}, {"fma", x.HasFMA},
			{"avx2", x.HasAVX2}, {"bmi2", x.HasBMI2},
			{"avx_vnni", x.HasAVXVNNI}, {"avx512f", x.HasAVX512F}, {"avx512bw", x.HasAVX512BW},
			{"avx512dq", x.HasAVX512DQ}, {"avx512vl", x.HasAVX512VL},
			{"avx512_vnni", x.HasAVX512VNNI}, {"avx512_bf16", x.HasAVX512BF16}, {"amx_tile", x.HasAMXTile},
			{"amx_int8", x.HasAMXInt8}, {"amx_bf16", x.HasAMXBF16}}
	case "arm64":
		all = []feature{{"asimd", a.HasASIMD}, {"asimdhp", a.HasASIMDHP}, {"asimddp", a.HasASIMDDP},
			{"asimdfhm", a.HasASIMDFHM}, {"i8mm", a.HasI8MM},
			{"sve", a.HasSVE}, {"sve2", a.HasSVE2}}
	}
	names := []string{}
	for _, f := range all {
		if f.has {
			names = append(names, f.name)
		}
	}
	return names
}
