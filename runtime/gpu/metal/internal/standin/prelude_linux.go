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

// emulated returns a prelude for Metal behind what stands in for the headers that it includes: the emulator's
// prelude, in which every name that the prelude for Metal defines has another. So all of that prelude runs, but for
// its threadgroup memory.
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

// vocabulary has the names that the prelude for Metal takes from Metal's headers and the emulator's prelude lacks.
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

// threadgroupMemory is the emulator's: no definition of the word threadgroup makes C++ declare what the threads of a
// group share.
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
