//go:build amd64 || arm64

package standin

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

var (
	included = regexp.MustCompile(`(?m)^#include <metal_\w+>$`)
	macro    = regexp.MustCompile(`(?m)^#define (\w+)`)
	helper   = regexp.MustCompile(`(?m)^(?:struct|inline [\w ]*?\w) (\w+)(?: \{|\()`)
)

// emulated turns a prelude for Metal into C++ for the emulator. It puts the emulator's prelude in front, in place of
// the headers of Metal that the prelude includes. Both define some of the same names, so the emulator's are renamed.
// Kernels therefore use the definitions for Metal, except for threadgroup memory (threadgroupMemory).
func emulated(prelude string) (string, error) {
	headers, _, ok := strings.Cut(kernels.Prelude(kernels.CPU), kernels.SharedPrelude)
	if !ok {
		return "", errors.New("the prelude for the emulator does not end where all targets share theirs")
	}
	own, _, _ := strings.Cut(prelude, kernels.SharedPrelude)
	var rename, restore strings.Builder
	for _, m := range helper.FindAllStringSubmatch(own, -1) {
		fmt.Fprintf(&rename, "#define %s emulated_%[1]s\n", m[1])
		fmt.Fprintf(&restore, "#undef %s\n", m[1])
	}
	for _, m := range macro.FindAllStringSubmatch(own, -1) {
		fmt.Fprintf(&restore, "#undef %s\n", m[1])
	}
	return rename.String() + headers + restore.String() + vocabulary + included.ReplaceAllString(prelude,
		"") + threadgroupMemory, nil
}

// vocabulary defines what the prelude for Metal takes from Metal's headers and the emulator's prelude does not have.
const vocabulary = `
namespace metal {
struct simd_vote { typedef ulong vote_t; };
inline simd_vote::vote_t simd_ballot(bool v, PORT_AT) {
  auto& s = emulator::exchange(int(v), "simd_ballot", line);
  simd_vote::vote_t r = 0;
  for (int i = 0; i < 32; i++) r |= simd_vote::vote_t(s[i][0] != 0) << i;
  return r;
}
inline uint simd_prefix_exclusive_sum(uint v, PORT_AT) {
  auto& s = emulator::exchange(v, "simd_prefix_exclusive_sum", line);
  uint r = 0;
  for (int i = 0; i < PORT_LANE; i++) r += s[i][0];
  return r;
}
}
`

// threadgroupMemory defines the macros for threadgroup memory as the emulator does. Metal declares such memory with the
// keyword threadgroup, and C++ has nothing that the keyword could be defined as.
const threadgroupMemory = `
#undef TG_ARRAY
#undef TG_MEMORY
#define TG_ARRAY(T, name, n) \
  static const char name##_place = 0; \
  T(&name)[n] = *(T(*)[n])emulator_threadgroup_memory(&name##_place, sizeof(T) * (n))
#define TG_MEMORY(name, bytes) \
  TG_ARRAY(uchar, name##_memory, bytes); \
  uchar* const name = name##_memory
`
