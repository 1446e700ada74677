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

// Library is the loaded stand-in, with what tests ask it.
type Library struct {
	// Path is the file that was loaded; it is gone, but its name still finds it.
	Path string
	// Live counts the objects that were made and not given up.
	Live func() int32
	// Complaints are lines: what was wrong since Reset.
	Complaints func() string
	// Reset forgets complaints, and takes back what follows.
	Reset func()
	// LargestBuffer sets maxBufferLength in bytes.
	LargestBuffer func(uintptr)
	// ResidencySets is 0 for a system without (macOS 14), NoCopy is 0 for memory that cannot be wrapped.
	ResidencySets, NoCopy func(uintptr)
}

// Load builds and loads the stand-in, once in the process. Its error wraps device.ErrUnavailable where there
// are no compilers.
var Load = sync.OnceValues(func() (*Library, error) {
	cc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err == nil {
		_, err = exec.LookPath(cmp.Or(os.Getenv("CXX"), "c++"))
	}
	if err != nil {
		return nil, fmt.Errorf("the stand-in for Metal needs a C and a C++ compiler (CC, CXX): %w: %w", err, device.ErrUnavailable)
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
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", l.Path, text, "-pthread").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	handle, err := purego.Dlopen(l.Path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	purego.RegisterLibFunc(&l.Live, handle, "standin_live")
	purego.RegisterLibFunc(&l.Complaints, handle, "standin_complaints")
	purego.RegisterLibFunc(&l.Reset, handle, "standin_reset")
	purego.RegisterLibFunc(&l.LargestBuffer, handle, "standin_largest_buffer")
	purego.RegisterLibFunc(&l.ResidencySets, handle, "standin_residency_sets")
	purego.RegisterLibFunc(&l.NoCopy, handle, "standin_no_copy")
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

const plainHeader = "#include <metal_stdlib>\nusing namespace metal;\n"

// sharedObject compiles a text for Metal for the emulator: the prelude is exchanged for the emulator's, and
// entries are added where there are none.
func sharedObject(text string) (string, error) {
	body, ok := strings.CutPrefix(text, kernels.Prelude(kernels.Metal))
	if !ok {
		if body, ok = strings.CutPrefix(text, plainHeader); !ok {
			return "", errors.New("the text begins with no prelude for Metal")
		}
	}
	if !strings.Contains(body, "PORT_ENTRY") {
		entries, err := entries(body)
		if err != nil {
			return "", err
		}
		body += entries
	}
	return emulator.SharedObject(kernels.Prelude(kernels.CPU) + body)
}

var (
	fileLine   = regexp.MustCompile(`(?m)^#line \d+ "(\w+)\.metal"$`)
	kernelName = regexp.MustCompile(`\bkernel\s+void\s+(\w+)\s*\(`)
)

// putBytes is the entry of the host's own kernel.
const putBytes = `
extern "C" void put_bytes_entry(void* const* a) {
  put_bytes((uchar*)a[0], (const uchar*)a[1], *(const WriteRange*)a[2], PORT_thread_position_in_grid().x);
}
PORT_ENTRY(put_bytes, 64, 3)
`

// entries are those of the kernels in a text that package kernels made, for all of them: it has the name of
// the file, but not which kernel is meant.
func entries(body string) (string, error) {
	file := fileLine.FindStringSubmatch(body)
	if file == nil {
		return putBytes, nil
	}
	defines, entries := "", ""
	for _, k := range kernelName.FindAllStringSubmatch(body, -1) {
		source, err := kernels.Launch{File: file[1], Kernel: k[1]}.Source(kernels.CPU)
		if err != nil {
			return "", err
		}
		define := "#define ENTRY_" + k[1] + "\n"
		defines += define
		_, entries, _ = strings.Cut(source, "\n"+define) // of all kernels in the file, each under its definition
	}
	return "\n" + defines + entries, nil
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
