//go:build amd64 || arm64

package emulator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// flags are the compiler's flags. With -ffp-contract=off the results are the ones that the source says, on every
// processor.
var flags = []string{"-std=c++17", "-w", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off"}

// sanitizer makes undefined behaviour of a kernel end the process and say where.
var sanitizer = []string{"-fsanitize=undefined", "-fno-sanitize=vptr,object-size,alignment",
	"-fno-sanitize-recover=undefined"}

// compiler is a C++ compiler with what tells it from others.
type compiler struct {
	path, version string
	cache         string

	plain, sanitized func() (string, error) // the compiled emulator, that for sanitized kernels
}

func newCompiler(cache string) (*compiler, error) {
	name := cmp.Or(os.Getenv("CXX"), "c++")
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("emulator: it needs a C++ compiler, and %s is not there (install g++ or set CXX): %w",
			name, device.ErrUnavailable)
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("emulator: %s --version: %w", path, err)
	}
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("emulator: a folder for compiled kernels: %w", err)
		}
		cache = filepath.Join(user, "etc", "emulator")
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, fmt.Errorf("emulator: a folder for compiled kernels: %w", err)
	}
	c := &compiler{path: path, version: string(version), cache: cache}
	// Kernels are linked against the emulator by its path. The sanitizer's library comes with it. It stays loaded when
	// the last kernel goes: it keeps memory for the next.
	emulator := func(more ...string) func() (string, error) {
		return sync.OnceValues(func() (string, error) {
			return c.build("emulator.so", nil,
				append([]string{"-O2", "-shared", "emulator.cc", "-pthread", "-Wl,-z,nodelete"}, more...))
		})
	}
	c.plain, c.sanitized = emulator(), emulator("-fsanitize=undefined")
	return c, nil
}

// shared compiles a kernel's text to a shared object and gives its path.
func (c *compiler) shared(text string) (string, error) {
	return c.kernel(text, c.plain, "-O1")
}

// kernel compiles a kernel's text and links it against an emulator. It names the few libraries that a kernel can
// need: what a compiler links by default takes as long as the compilation of a small kernel.
func (c *compiler) kernel(text string, emulator func() (string, error), more ...string) (string, error) {
	path, err := emulator()
	if err != nil {
		return "", err
	}
	args := append(more, "-shared", "-nostdlib", "kernel.cc", path, "-lm", "-lc", "-lgcc")
	return c.build("kernel.so", map[string][]byte{"kernel.cc": []byte(text)}, args)
}

// SharedObject compiles a text as Compile does, and gives the path of the result in the user's cache. It is for
// what runs kernels by itself, such as the stand-in for Metal.
func SharedObject(text string) (string, error) {
	c, err := users()
	if err != nil {
		return "", err
	}
	return c.shared(text)
}

// SanitizedObject is SharedObject of a kernel that ends the process, and says where, when its behaviour is undefined.
// It runs a few times only, so it is compiled with -Og: with -O1 the compiler takes longer than -Og's slower code
// costs.
func SanitizedObject(text string) (string, error) {
	c, err := users()
	if err != nil {
		return "", err
	}
	return c.kernel(text, c.sanitized, append([]string{"-Og"}, sanitizer...)...)
}

// users is the compiler with the user's cache.
var users = sync.OnceValues(func() (*compiler, error) { return newCompiler("") })

// build compiles sources with a command to a file, unless the cache has it.
func (c *compiler) build(out string, sources map[string][]byte, args []string) (string, error) {
	files := kernels.EmulatorFiles()
	hash := sha256.New()
	parts := []string{c.path, c.version, strings.Join(flags, " "), string(files["emulator.h"]),
		string(files["emulator.cc"]), out, string(sources["kernel.cc"])}
	for _, part := range append(parts, args...) {
		fmt.Fprintf(hash, "%d %s", len(part), part)
	}
	path := filepath.Join(c.cache, hex.EncodeToString(hash.Sum(nil)[:16])+filepath.Ext(out))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	folder, err := os.MkdirTemp(c.cache, "build")
	if err != nil {
		return "", fmt.Errorf("emulator: %w", err)
	}
	defer os.RemoveAll(folder)
	for _, set := range []map[string][]byte{files, sources} {
		for name, content := range set {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
				return "", fmt.Errorf("emulator: %w", err)
			}
		}
	}
	command := exec.Command(c.path, append(append(append([]string{}, flags...), "-o", out), args...)...)
	command.Dir = folder
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, text)
	}
	if err := os.Rename(filepath.Join(folder, out), path); err != nil {
		return "", fmt.Errorf("emulator: %w", err)
	}
	return path, nil
}

// library is a shared object of kernels.
type library struct {
	name   string
	handle uintptr
	launch uintptr
}

func (d *emulator) Compile(source device.Source) (device.Library, error) {
	path, err := d.compiler.shared(source.Text)
	if err != nil {
		return nil, fmt.Errorf("emulator: %s: %w", source.Name, err)
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("emulator: %s: %w", source.Name, err)
	}
	launch, err := purego.Dlsym(handle, "emulator_launch")
	if err != nil {
		return nil, fmt.Errorf("emulator: %s: %w", source.Name, err)
	}
	return &library{source.Name, handle, launch}, nil
}

func (l *library) Kernel(name string) (device.Kernel, error) {
	entry, err := purego.Dlsym(l.handle, name+"_entry")
	if err != nil {
		return nil, fmt.Errorf("emulator: %s has no kernel %s", l.name, name)
	}
	info, err := purego.Dlsym(l.handle, name+"_entry_info")
	if err != nil {
		return nil, fmt.Errorf("emulator: %s: kernel %s has no %s_entry_info", l.name, name, name)
	}
	// An object of the library, not of Go: two ints, the threads and the arguments.
	numbers := *(**[2]int32)(unsafe.Pointer(&info))
	return &kernel{name, l, entry, info, int(numbers[0]), int(numbers[1])}, nil
}

func (l *library) Close() error { return purego.Dlclose(l.handle) }

type kernel struct {
	name               string
	library            *library
	entry, info        uintptr
	threads, arguments int
}

func (k *kernel) Name() string    { return k.name }
func (k *kernel) MaxThreads() int { return k.threads }
func (k *kernel) Close() error    { return nil }
