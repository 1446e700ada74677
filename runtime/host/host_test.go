package host

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// root makes a file system of pairs of path and content.
func root(pairs ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return out
}

func TestLinuxMemory(t *testing.T) {
	const meminfo = "MemTotal:       24576 kB\nMemFree:          100 kB\nMemAvailable:    1024 kB\n"
	for _, test := range []struct {
		name string
		root fstest.MapFS
		want Memory
	}{
		{"no limit", root("proc/meminfo", meminfo, "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "max\n"),
			Memory{Total: 24576 << 10, Available: 1 << 20}},
		{"version 2", root("proc/meminfo", meminfo, "proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max",
			"max\n", "sys/fs/cgroup/a/memory.max", "4096\n"),
			Memory{Total: 24576 << 10, Available: 1 << 20, Limit: 4096}},
		{"the smallest counts", root("proc/meminfo", meminfo, "proc/self/cgroup", "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max", "5000\n", "sys/fs/cgroup/a/memory.max", "8192\n"),
			Memory{Total: 24576 << 10, Available: 1 << 20, Limit: 5000}},
		{"path of the host", root("proc/meminfo", meminfo, "proc/self/cgroup", "0::/docker/123\n",
			"sys/fs/cgroup/memory.max", "7000\n"), Memory{Total: 24576 << 10, Available: 1 << 20, Limit: 7000}},
		{"version 1", root("proc/meminfo", meminfo, "proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/x\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "6000\n", "sys/fs/cgroup/x/memory.max", "1\n"),
			Memory{Total: 24576 << 10, Available: 1 << 20, Limit: 6000}},
		{"no limit of version 1", root("proc/meminfo", meminfo, "proc/self/cgroup", "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
			Memory{Total: 24576 << 10, Available: 1 << 20}},
		{"nothing", root(), Memory{}},
		{"rubbish", root("proc/meminfo", "MemTotal: x kB\nMemAvailable 3 kB\nMemAvailable: 3\nMemTotal: -4 kB\n",
			"proc/self/cgroup", "\n0\n::\n0::/../..\n", "sys/fs/cgroup/memory.max", "-1"), Memory{}},
		{"too large", root("proc/meminfo", "MemTotal: 9223372036854775807 kB\n"), Memory{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, linuxMemory(test.root))
		})
	}
}

func TestUsable(t *testing.T) {
	for _, test := range []struct {
		memory Memory
		want   int64
	}{
		{Memory{}, 0}, {Memory{Total: 9}, 9}, {Memory{Total: 9, Available: 5}, 5},
		{Memory{Total: 9, Available: 5, Limit: 3}, 3},
		{Memory{Total: 9, Available: 5, Limit: 7}, 5}, {Memory{Limit: 7}, 7},
	} {
		require.Equal(t, test.want, test.memory.Usable(), "%+v", test.memory)
	}
}

func TestLinuxCPUModel(t *testing.T) {
	for _, test := range []struct {
		name string
		root fstest.MapFS
		want string
	}{
		{"x86", root("proc/cpuinfo", "processor\t: 0\nmodel\t\t: 6\nmodel name\t: Some CPU @ 2 GHz\n\nmodel name\t: Another\n"), "Some CPU @ 2 GHz"},
		{"arm", root("proc/cpuinfo", "processor\t: 0\nCPU part\t: 0xd0c\n", "proc/device-tree/model",
			"Some Board Rev 1\x00"), "Some Board Rev 1"},
		{"nothing", root(), ""},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, linuxCPUModel(test.root)) })
	}
}

// Whatever the kernel writes, sizes are not negative.
func FuzzMeminfo(f *testing.F) {
	f.Add([]byte("MemTotal:       24576 kB\nMemAvailable:    1024 kB\n"), []byte("0::/a/b\n4:memory:/x\n"),
		[]byte("4096\n"))
	f.Add([]byte("MemTotal: -1 kB"), []byte("0::../../.."), []byte("max"))
	f.Fuzz(func(t *testing.T, meminfo, cgroup, limit []byte) {
		m := linuxMemory(fstest.MapFS{"proc/meminfo": {Data: meminfo}, "proc/self/cgroup": {Data: cgroup},
			"sys/fs/cgroup/memory.max": {Data: limit}})
		require.True(t, m.Total >= 0 && m.Available >= 0 && m.Limit >= 0, "%+v", m)
		require.True(t, m.Limit == 0 || m.Total == 0 || m.Limit < m.Total, "%+v", m)
	})
}

// What this very machine says is plausible where the system says it.
func TestThisMachine(t *testing.T) {
	m := ReadMemory()
	require.LessOrEqual(t, m.Available, m.Total)
	free, err := DiskFree(t.TempDir())
	_, missing := DiskFree(filepath.Join(t.TempDir(), "missing"))
	require.Error(t, missing)
	switch runtime.GOOS {
	case "linux", "darwin", "windows":
		require.Greater(t, m.Total, int64(1<<20))
		require.NoError(t, err)
		require.Positive(t, free)
		require.Less(t, free, int64(math.MaxInt64))
	}
	require.Equal(t, strings.TrimSpace(CPUModel()), CPUModel())
	if features := CPUFeatures(); runtime.GOARCH == "arm64" {
		require.Contains(t, features, "asimd")
	} else if slices.Contains(features, "avx2") {
		require.Contains(t, features, "avx")
	}
}

func TestFindLibrary(t *testing.T) {
	empty, full, folder := t.TempDir(), t.TempDir(), t.TempDir()
	path := filepath.Join(full, "libx.so.1")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "libx.so.1"), 0o700))
	names := []string{"libx.so.2", "libx.so.1"}
	require.Equal(t, path, findLibrary([]string{"", empty, folder, full}, names))
	require.Empty(t, findLibrary([]string{"", empty, folder}, names))
	require.Empty(t, findLibrary(nil, names))
}

func TestAddressSpace(t *testing.T) {
	require.Equal(t, int64(300*4096), addressSpace(root("proc/self/statm", "300 20 10 1 0 5 0\n"), 4096))
	for _, text := range []string{"", "x 1", "-1 2", "9223372036854775807 1"} {
		require.Zero(t, addressSpace(root("proc/self/statm", text), 4096), text)
	}
	require.Zero(t, addressSpace(root(), 4096))
}

func TestFurtherLimit(t *testing.T) {
	for _, test := range []struct{ total, limit, further, want int64 }{{10, 0, 0, 0}, {10, 0, 5, 5}, {10, 0, 10, 0},
		{10, 4, 5, 4}, {10, 6, 5, 5}, {0, 0, 5, 5}} {
		m := Memory{Total: test.total, Limit: test.limit}
		m.limit(test.further)
		require.Equal(t, test.want, m.Limit, "%+v", test)
	}
}
