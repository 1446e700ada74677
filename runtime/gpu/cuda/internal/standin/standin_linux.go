//go:build amd64 || arm64

package standin

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Library is the loaded stand-in, driver and NVRTC in one file, with what tests ask it.
type Library struct {
	// Path is the file that was loaded; it is gone, but its name still finds it.
	Path string
	// Live counts what was made and not given up.
	Live func() int32
	// Programmatic counts the edges of graphs that let a kernel start early.
	Programmatic func() int32
	// Complaints are lines: what was wrong since Reset.
	Complaints func() string
	// Reset forgets complaints, errors of kernels, and what was left by a program that ended in one.
	Reset func()
}

// Load builds and loads the stand-in, once in the process. Its error wraps device.ErrUnavailable where there
// are no compilers.
var Load = sync.OnceValues(func() (*Library, error) {
	cc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err == nil {
		_, err = exec.LookPath(cmp.Or(os.Getenv("CXX"), "c++"))
	}
	if err != nil {
		return nil, fmt.Errorf("the stand-in for CUDA needs a C and a C++ compiler (CC, CXX): %w: %w", err, device.ErrUnavailable)
	}
	folder, err := os.MkdirTemp("", "standin")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	text := filepath.Join(folder, "standin.c")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		return nil, err
	}
	l := &Library{Path: filepath.Join(folder, "standin.so")}
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", l.Path, text).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	handle, err := purego.Dlopen(l.Path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	purego.RegisterLibFunc(&l.Live, handle, "standin_live")
	purego.RegisterLibFunc(&l.Programmatic, handle, "standin_programmatic")
	purego.RegisterLibFunc(&l.Complaints, handle, "standin_complaints")
	purego.RegisterLibFunc(&l.Reset, handle, "standin_reset")
	var setCompiler func(uintptr)
	purego.RegisterLibFunc(&setCompiler, handle, "standin_compiler")
	setCompiler(purego.NewCallback(compile))
	return l, nil
})

// compile is the stand-in's compiler: it writes the path of a shared object, or an error, to size bytes at out.
func compile(text, out, size uintptr) uintptr {
	path, err := sharedObject(cText(text))
	ok := uintptr(1)
	if err != nil {
		path, ok = err.Error(), 0
	}
	to := unsafe.Slice((*byte)(pointer(out)), size)
	to[copy(to[:size-1], path)] = 0
	return ok
}

var (
	kernelHead = regexp.MustCompile(`\bkernel\s+void\s+(\w+)\s*\(([^{]*)\{`)
	constant   = regexp.MustCompile(`\bconstant\s+(\w+)\s*&\s*\w+\s*\[\[buffer\((\d+)\)\]\]`)
)

// sharedObject compiles a text for CUDA for the emulator: the prelude is exchanged for the emulator's, which
// takes the emulator's half of the entries, and for every entry stands there which argument is a constant
// struct, of which size.
func sharedObject(text string) (string, error) {
	body, ok := strings.CutPrefix(text, kernels.Prelude(kernels.CUDA))
	if !ok {
		return "", errors.New("the text begins with no prelude for CUDA")
	}
	for _, k := range kernelHead.FindAllStringSubmatch(body, -1) {
		value := "~0u, 0"
		if c := constant.FindStringSubmatch(k[2]); c != nil {
			value = c[2] + ", sizeof(" + c[1] + ")"
		}
		body += fmt.Sprintf("\nextern \"C\" __attribute__((visibility(\"default\"))) const unsigned %s_entry_constant[2] = {%s};", k[1], value)
	}
	return emulator.SharedObject(kernels.Prelude(kernels.CPU) + body + "\n")
}

func cText(address uintptr) string {
	start := pointer(address)
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return strings.Clone(unsafe.String((*byte)(start), n))
}

// pointer is an address of memory that is not Go's.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
