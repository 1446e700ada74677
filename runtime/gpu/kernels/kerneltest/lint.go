//go:build linux && (amd64 || arm64)

package kerneltest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// clang is a clang that reads C++ for OpenCL, or "".
var clang = sync.OnceValue(func() string {
	for _, name := range []string{"clang-19", "clang", "clang-20", "clang-21", "clang-18", "clang-17", "clang-16"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
})

// HasLint reports whether Lint checks anything: whether there is a clang.
func HasLint() bool { return clang() != "" }

var linted once[struct{}]

// Lint reads a text for Metal as C++ for OpenCL, whose address-space rules clang checks: device is global,
// threadgroup is local, and there is no generic address space.
func Lint(text string) error {
	if !HasLint() {
		return nil
	}
	_, err := linted.get(text, func() (struct{}, error) {
		files := kernels.LintFiles()
		files["kernel.metal"] = []byte(text)
		return struct{}{}, inFolder(files, func(folder string) error {
			c := exec.Command(clang(), "-x", "clcpp", "-cl-std=clc++2021", "-Xclang",
				"-cl-ext=-__opencl_c_generic_address_space,-__opencl_c_pipes,-__opencl_c_device_enqueue",
				"-cl-no-stdinc",
				"-Wno-unknown-attributes", "-Wno-undefined-inline", "-Wno-undefined-internal", "-Wno-pass-failed",
				"-fsyntax-only", "-I", ".", "kernel.metal")
			c.Dir = folder
			if out, err := c.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", filepath.Base(clang()), err, out)
			}
			return nil
		})
	})
	return err
}
