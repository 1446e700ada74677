//go:build (linux && !nocuda) || windows

package cuda

import (
	"regexp"
	"strings"
	"unsafe"
)

// From Hopper on a kernel can be put on the GPU while the one it depends on still runs, and wait there: the time
// between two kernels of a graph shrinks (programmatic dependent launch). Every kernel says at its start that
// its dependents may come, then waits until what it depends on is done and its memory is written, so that
// nothing changes but the time. Kernels of a text that defines PORT_WAITS wait by themselves, by port_wait, and read
// weights meanwhile; those of one that defines PORT_RELEASES say by themselves when their dependents may come.

var entry = regexp.MustCompile(`(?m)^(extern "C" __global__ void .*_entry\(.*\) \{)$`)

// startEarly puts the two instructions at the start of every entry of a text. It is false, and the text as it
// was, where there are kernels that it does not know.
func startEarly(text string) (string, bool) {
	if n := len(entry.FindAllStringIndex(text, -1)); n == 0 || n != strings.Count(text, "__global__ ") {
		return text, false
	}
	start := "$1"
	if !strings.Contains(text, "\n#define PORT_RELEASES\n") {
		start += `
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");`
	}
	if !strings.Contains(text, "\n#define PORT_WAITS\n") {
		start += `
  asm volatile("griddepcontrol.wait;" ::: "memory");`
	}
	return entry.ReplaceAllString(text, start), true
}

// edge is CUgraphEdgeData.
type edge struct {
	fromPort, toPort, kind uint8
	_                      [5]uint8
}

// depend makes a kernel's node depend on others; where both are early it may start before they are done.
func (s *sequence) depend(graph uintptr, n node, after []node, early bool) error {
	if len(after) == 0 {
		return nil
	}
	edges, to := make([]edge, len(after)), make([]node, len(after))
	for i, from := range after {
		to[i] = n
		if early && s.early[from] {
			edges[i] = edge{fromPort: 1, kind: 1} // both are "programmatic"
		}
	}
	return s.device.call("cuGraphAddDependencies_v2", graph, uintptr(unsafe.Pointer(&after[0])), uintptr(unsafe.Pointer(&to[0])), uintptr(unsafe.Pointer(&edges[0])), uintptr(len(after)))
}
