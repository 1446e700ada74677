//go:build amd64 || arm64

package standin

import (
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/internal/standin"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Library is the loaded stand-in: its functions that tests call.
type Library struct {
	// Path names the shared library to dlopen. The file is deleted, but dlopen finds what is loaded under the name.
	Path string
	// Live returns the number of Objective-C objects that were made and not released.
	Live func() int32
	// Complaints returns a line for each wrong use of Metal since Reset.
	Complaints func() string
	// Reset forgets complaints and settings.
	Reset func()
	// Set changes a setting until Reset.
	Set func(Setting, uintptr)
}

// Setting names a property of the system or its GPU that the stand-in reports and tests can change.
type Setting int32

// The settings, in the order of standin.c.
const (
	// MacOS is the system's version: 15 unless it is set. Messages of later versions are unknown, and below 14 the
	// version of the Metal language that etc asks for.
	MacOS Setting = iota
	// Family is the newest GPU family of Apple that the GPU belongs to, by Metal's number: 1007 unless it is set.
	Family
	// LargestBuffer is maxBufferLength in bytes.
	LargestBuffer
	// NoCopy is 0 where memory cannot be wrapped.
	NoCopy
	// SimdgroupWidth and StaticMemory are the properties of every pipeline: 32 threads and 0 bytes unless they are set.
	SimdgroupWidth
	StaticMemory
)

// Load compiles the stand-in for the Objective-C runtime and Metal and loads it, once in the process. Its error wraps
// device.ErrUnavailable where there is no C compiler or no C++ compiler.
var Load = sync.OnceValues(func() (*Library, error) {
	l := &Library{}
	var err error
	l.Path, err = standin.Load("Metal", source, sharedObject, map[string]any{
		"standin_live":       &l.Live,
		"standin_complaints": &l.Complaints,
		"standin_reset":      &l.Reset,
		"standin_set":        &l.Set,
	})
	if err == nil {
		l.Reset() // gives every setting its default
	}
	return l, err
})

const plainHeader = "#include <metal_stdlib>\nusing namespace metal;\n"

// sharedObject compiles a Metal source text with the emulator's compiler and returns the path of the shared object. The
// emulator's declarations take the place of the headers that Metal's compiler would include. Where the text has no
// entry points (PORT_ENTRY), sharedObject adds them.
func sharedObject(text string) (string, error) {
	prelude := kernels.Prelude(kernels.Metal)
	body, ok := strings.CutPrefix(text, prelude)
	if !ok {
		prelude = plainHeader
		if body, ok = strings.CutPrefix(text, prelude); !ok {
			return "", errors.New("the text begins with no prelude for Metal")
		}
	}
	head, err := emulated(prelude)
	if err != nil {
		return "", err
	}
	if !strings.Contains(body, "PORT_ENTRY") {
		entries, err := entries(body)
		if err != nil {
			return "", err
		}
		body += entries
	}
	return emulator.SharedObject(head + body)
}

var (
	fileLine   = regexp.MustCompile(`(?m)^#line \d+ "(\w+)\.metal"$`)
	kernelName = regexp.MustCompile(`\bkernel\s+void\s+(\w+)\s*\(`)
)

// putBytes is the entry point of put_bytes, a kernel that is not in package kernels: package host has its text.
const putBytes = `
extern "C" void put_bytes_entry(void* const* a) {
  put_bytes((uchar*)a[0], (const uchar*)a[1], *(const WriteRange*)a[2], PORT_thread_position_in_grid().x);
}
PORT_ENTRY(put_bytes, 64, 3)
`

// entries returns the entry points of all kernels of a file of package kernels. body, the text to compile, names the
// file, but not which of its kernels will be called.
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
