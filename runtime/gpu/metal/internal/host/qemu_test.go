//go:build linux && amd64

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The calling convention of Apple's processors is that of linux/arm64, but for what has no part here: these tests
// run again in an emulated processor, stand-in and kernels compiled for it.
func TestARM64(t *testing.T) {
	for _, tool := range []string{"go", "qemu-aarch64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the tests on arm64 need qemu-user and g++-aarch64-linux-gnu:", err)
		}
	}
	if testing.Short() {
		t.Skip("-short")
	}
	binary := filepath.Join(t.TempDir(), "host.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.Command("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", binary, "-test.v", "-test.run",
		"Conformance/macOS_15|Complains|Windows|Barrier")
	run.Env = append(os.Environ(), "CC=aarch64-linux-gnu-gcc", "CXX=aarch64-linux-gnu-g++",
		"QEMU_LD_PREFIX=/usr/aarch64-linux-gnu")
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestConformance/macOS_15/two_in_flight")
	require.Contains(t, string(out), "--- PASS: TestWindows")
}
