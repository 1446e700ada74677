//go:build linux && (amd64 || arm64)

package kerneltest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// lintArgs are clang's arguments.
var lintArgs = []string{"-x", "clcpp", "-cl-std=clc++2021", "-Xclang",
	"-cl-ext=-__opencl_c_generic_address_space,-__opencl_c_pipes,-__opencl_c_device_enqueue", "-cl-no-stdinc",
	"-Wno-unknown-attributes", "-Wno-undefined-inline", "-Wno-undefined-internal", "-Wno-pass-failed",
	"-fsyntax-only", "-I", ".", "kernel.metal"}

// Lint reads a text for Metal as C++ for OpenCL, whose address-space rules clang checks: device is global,
// threadgroup is local, and there is no generic address space. A text that passed is remembered in the user's cache
// folder, under the hash of all that the answer depends on.
func Lint(text string) error {
	if !HasLint() {
		return nil
	}
	_, err := linted.get(text, func() (struct{}, error) {
		files := kernels.LintFiles()
		files["kernel.metal"] = []byte(text)
		mark, err := lintMark(files)
		if err != nil {
			return struct{}{}, err
		}
		if _, err := os.Stat(mark); err == nil {
			return struct{}{}, nil
		}
		if err := inFolder(files, lintFolder); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, os.WriteFile(mark, nil, 0o600)
	})
	return err
}

// lintFolder reads kernel.metal in a folder.
func lintFolder(folder string) error {
	c := exec.Command(clang(), lintArgs...)
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(clang()), err, out)
	}
	return nil
}

// clangVersion identifies this version of clang.
var clangVersion = sync.OnceValues(func() ([]byte, error) { return exec.Command(clang(), "--version").Output() })

// lintMark returns the path of the file that records that these files passed. It makes the file's folder.
func lintMark(files map[string][]byte) (string, error) {
	version, err := clangVersion()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", clang(), err)
	}
	hash := sha256.New()
	parts := append([]string{clang(), string(version)}, lintArgs...)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parts = append(parts, name, string(files[name]))
	}
	for _, part := range parts {
		fmt.Fprintf(hash, "%d %s", len(part), part)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a folder for what clang has read: %w", err)
	}
	folder := filepath.Join(user, "etc", "lint")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("a folder for what clang has read: %w", err)
	}
	return filepath.Join(folder, hex.EncodeToString(hash.Sum(nil)[:16])), nil
}
