package host

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// The functions of this file read what Linux tells in files. They take the root of the file system, so that
// they are tested everywhere.

// linuxMemory reads /proc/meminfo and the limits of the control groups that the process is in.
func linuxMemory(root fs.FS) (m Memory) {
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		m.Total, m.Available = meminfo(b, "MemTotal"), meminfo(b, "MemAvailable")
	}
	m.Limit = cgroupLimit(root)
	if m.Limit >= m.Total && m.Total > 0 {
		m.Limit = 0
	}
	return m
}

// meminfo finds a line "MemTotal: 24576 kB" and gives bytes, 0 where there is none.
func meminfo(b []byte, key string) int64 {
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok || string(name) != key {
			continue
		}
		kib, ok := strings.CutSuffix(strings.TrimSpace(string(rest)), " kB")
		if n, err := strconv.ParseInt(kib, 10, 64); ok && err == nil && n >= 0 && n <= math.MaxInt64>>10 {
			return n << 10
		}
	}
	return 0
}

// cgroupLimit returns the smallest memory limit of the process's control group and those around it, version 2 or
// 1; 0 where there is none.
func cgroupLimit(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	limit := int64(0)
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		if fields[1] != "" { // version 1 has a hierarchy per controller
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if fields[1] != "memory" {
				continue
			}
		}
		// In a container the path may be the host's, of which only the root is visible.
		for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
			b, err := fs.ReadFile(root, path.Join(base, dir, file))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && bad == nil && n > 0 &&
				(limit == 0 || n < limit) {
				limit = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// addressSpace returns the size of the process's address space in bytes, from /proc/self/statm, whose first number
// counts pages; 0 where it is not told.
func addressSpace(root fs.FS, page int64) int64 {
	b, err := fs.ReadFile(root, "proc/self/statm")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/page {
		return 0
	}
	return n * page
}

// linuxCPUModel returns the processor's name from /proc/cpuinfo, or the machine's from the device tree, as small ARM
// machines have it.
func linuxCPUModel(root fs.FS) string {
	if f, err := root.Open("proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	b, err := fs.ReadFile(root, "proc/device-tree/model")
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b), "\x00\n")
}
