//go:build amd64 || arm64

package standin

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Load builds a library of a C text, loads it, and sets functions, pointers to variables of function types by the names
// of its functions. The text has a function standin_compiler, which is told what compiles: it gives the path of a
// shared object for the text of kernels. name says for what the library stands in. Load gives the library's path; the
// file is gone, but its name still finds it. The error wraps device.ErrUnavailable where there are no compilers.
func Load(name string, source []byte, compile func(text string) (path string, err error),
	functions map[string]any) (path string, err error) {
	cc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err == nil {
		_, err = exec.LookPath(cmp.Or(os.Getenv("CXX"), "c++"))
	}
	if err != nil {
		return "", fmt.Errorf("the stand-in for %s needs a C and a C++ compiler (CC, CXX): %w: %w", name,
			err, device.ErrUnavailable)
	}
	folder, err := os.MkdirTemp("", "standin")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	text := filepath.Join(folder, "standin.c")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(folder, "standin.so")
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", path, text,
		"-pthread").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the stand-in for %s: %w\n%s", name, err, out)
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return "", err
	}
	var setCompiler func(uintptr)
	purego.RegisterLibFunc(&setCompiler, handle, "standin_compiler")
	for name, function := range functions {
		purego.RegisterLibFunc(function, handle, name)
	}
	setCompiler(purego.NewCallback(callback(compile)))
	return path, nil
}

// callback is a compiler as C calls it: it writes the path of a shared object, or an error, to size bytes at out, and
// gives 1 for a path.
func callback(compile func(text string) (string, error)) func(text, out, size uintptr) uintptr {
	return func(text, out, size uintptr) uintptr {
		path, err := compile(cText(text))
		ok := uintptr(1)
		if err != nil {
			path, ok = err.Error(), 0
		}
		to := unsafe.Slice((*byte)(pointer(out)), size)
		to[copy(to[:size-1], path)] = 0
		return ok
	}
}

func cText(address uintptr) string {
	start := pointer(address)
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return strings.Clone(unsafe.String((*byte)(start), n))
}

// pointer returns an address of memory that is not Go's.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
