//go:build linux && (amd64 || arm64)

package kerneltest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// HasEmulator reports whether kernels can run on this machine's processor.
const HasEmulator = true

// library is a kernel's text as a shared object, the emulator included.
type library struct {
	handle uintptr
	start  func(entry, info uintptr, args unsafe.Pointer, count int, shape unsafe.Pointer, schedule uint32, limit,
		memory int, text unsafe.Pointer, size int) int32
}

// once makes a value of a key one time, however many tests ask for it.
type once[V any] struct {
	mu    sync.Mutex
	tries map[string]func() (V, error)
}

func (o *once[V]) get(key string, make_ func() (V, error)) (V, error) {
	o.mu.Lock()
	if o.tries == nil {
		o.tries = map[string]func() (V, error){}
	}
	try := o.tries[key]
	if try == nil {
		try = sync.OnceValues(make_)
		o.tries[key] = try
	}
	o.mu.Unlock()
	return try()
}

var libraries once[*library]

// open compiles a text for the emulator, with a sanitizer, once per process.
func open(text string) (*library, error) {
	return libraries.get(text, func() (*library, error) {
		path, err := emulator.SanitizedObject(text)
		if err != nil {
			return nil, err
		}
		handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			return nil, err
		}
		start, err := purego.Dlsym(handle, "emulator_launch")
		if err != nil {
			return nil, err
		}
		l := &library{handle: handle}
		purego.RegisterFunc(&l.start, start)
		return l, nil
	})
}

// inFolder runs f in a folder with the files, and removes it.
func inFolder(files map[string][]byte, f func(folder string) error) error {
	folder, err := os.MkdirTemp("", "kerneltest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return err
		}
	}
	return f(folder)
}

// launch runs a kernel on guarded copies of the buffers, one for each slice however often it is given, and
// gives what they hold then.
func (lib *library) launch(l kernels.Launch, limit int, schedule uint32, buffers []any) ([][]byte, error) {
	name := l.EntryName(kernels.CPU)
	entry, err := purego.Dlsym(lib.handle, name)
	if err != nil {
		return nil, err
	}
	info, err := purego.Dlsym(lib.handle, name+"_info")
	if err != nil {
		return nil, err
	}
	inputs := make([][]byte, 0, len(buffers)+1)
	for _, b := range buffers {
		inputs = append(inputs, raw(b))
	}
	if l.Params != nil {
		inputs = append(inputs, l.Params)
	}
	args := make([]unsafe.Pointer, len(inputs))
	outputs := make([][]byte, len(inputs))
	for i, in := range inputs {
		if first := slices.IndexFunc(inputs[:i], func(other []byte) bool { return same(other, in) }); first >= 0 {
			outputs[i], args[i] = outputs[first], args[first]
			continue
		}
		memory, free, err := guarded(len(in))
		if err != nil {
			return nil, err
		}
		defer free()
		copy(memory, in)
		outputs[i], args[i] = memory, unsafe.Pointer(unsafe.SliceData(memory))
	}
	shape := [6]uint32{}
	for i := range 3 {
		shape[i], shape[3+i] = uint32(l.Groups[i]), uint32(l.Threads[i])
	}
	text := make([]byte, 400)
	failed := lib.start(entry, info, unsafe.Pointer(unsafe.SliceData(args)), len(args), unsafe.Pointer(&shape),
		schedule, limit, l.Memory, unsafe.Pointer(&text[0]), len(text))
	runtime.KeepAlive(args)
	if failed != 0 {
		return nil, fmt.Errorf("%s", text[:max(0, indexZero(text))])
	}
	for i := range outputs {
		outputs[i] = append([]byte(nil), outputs[i]...)
	}
	return outputs[:len(buffers)], nil
}

func indexZero(text []byte) int {
	for i, c := range text {
		if c == 0 {
			return i
		}
	}
	return len(text)
}

// guarded is memory of n bytes that starts at a multiple of 16 and ends, but for the rest to such a multiple,
// at a page that cannot be touched.
func guarded(n int) (memory []byte, free func(), err error) {
	page := os.Getpagesize()
	size := (n + 15) / 16 * 16
	whole := (size + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, whole+page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap of %d bytes: %w", whole+page, err)
	}
	if err := syscall.Mprotect(all[whole:], syscall.PROT_NONE); err != nil {
		return nil, nil, fmt.Errorf("mprotect: %w", err)
	}
	return all[whole-size:][:n:n], func() { syscall.Munmap(all) }, nil
}
