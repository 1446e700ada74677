//go:build (linux && !nocuda) || windows

package cuda

import (
	"strings"
	"unsafe"
)

// From Hopper on a kernel can be put on the GPU while the one it depends on still runs, and wait there: the time
// between two kernels of a graph shrinks (programmatic dependent launch). Every kernel says at its start that
// its dependents may come, then waits until what it depends on is done and its memory is written, so that
// nothing changes but the time. Kernels of a text that defines PORT_WAITS wait by themselves, by port_wait, and read
// weights meanwhile; those of one that defines PORT_RELEASES say by themselves when their dependents may come.

// isEntry reports whether a line begins an entry.
func isEntry(line string) bool {
	rest, ok := strings.CutPrefix(line, `extern "C" __global__ void `)
	_, parameters, found := strings.Cut(rest, "_entry(")
	return ok && found && strings.HasSuffix(parameters, ") {")
}

// startEarly puts the two instructions at the start of every entry of a text. It is false, and the text as it
// was, where there are kernels that it does not know.
func startEarly(text string) (string, bool) {
	start := ""
	if !strings.Contains(text, "\n#define PORT_RELEASES\n") {
		start += `
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");`
	}
	if !strings.Contains(text, "\n#define PORT_WAITS\n") {
		start += `
  asm volatile("griddepcontrol.wait;" ::: "memory");`
	}
	var parts []string
	kernels, rest := strings.Count(text, "__global__ "), text
	for {
		at := strings.Index(rest, "__global__ ")
		if at < 0 {
			break
		}
		line := strings.LastIndexByte(rest[:at], '\n') + 1
		end := len(rest)
		if n := strings.IndexByte(rest[at:], '\n'); n >= 0 {
			end = at + n
		}
		if isEntry(rest[line:end]) {
			parts = append(parts, rest[:end], start)
		}
		rest = rest[end:]
	}
	if len(parts) == 0 || len(parts) != 2*kernels {
		return text, false
	}
	return strings.Join(append(parts, rest), ""), true
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
	return s.device.call("cuGraphAddDependencies_v2", graph, uintptr(unsafe.Pointer(&after[0])),
		uintptr(unsafe.Pointer(&to[0])), uintptr(unsafe.Pointer(&edges[0])), uintptr(len(after)))
}
