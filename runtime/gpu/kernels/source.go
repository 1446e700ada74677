package kernels

import (
	"embed"
	"fmt"
	"strings"
)

//go:generate go run ./gen *.metal

//go:embed *.metal *.entry.h prelude/*.h prelude/metal/port.h prelude/cuda/port.h prelude/cpu prelude/lint/include
var files embed.FS

// Target is a language and compiler that sources are made for.
type Target int

// The targets.
const (
	// Metal is Metal's newLibraryWithSource, with Metal 3.1 or later and math mode safe.
	Metal Target = iota
	// CUDA is NVRTC with NVRTCOptions.
	CUDA
	// CPU is a C++17 compiler; the result is part of a shared object that is linked with the emulator of EmulatorFiles.
	CPU
)

var preludes = map[Target]string{Metal: "prelude/metal/port.h", CUDA: "prelude/cuda/port.h", CPU: "prelude/cpu/port.h"}

// NVRTCOptions are the options of NVRTC besides --gpu-architecture. Helpers have no __device__, and warnings about
// Metal's attributes are off.
var NVRTCOptions = []string{"--device-as-default-execution-space", "--std=c++14", "--diag-suppress=1097,550,177"}

// EmulatorFiles returns emulator.h and emulator.cc: the header that a kernel for CPU includes, and the source that it
// is linked with. emulator_launch starts a kernel.
func EmulatorFiles() map[string][]byte {
	out := map[string][]byte{}
	for _, name := range []string{"emulator.h", "emulator.cc"} {
		out[name] = mustRead("prelude/cpu/" + name)
	}
	return out
}

// LintFiles returns headers that let clang, in its mode for C++ for OpenCL, read a source for Metal.
func LintFiles() map[string][]byte {
	out := map[string][]byte{}
	for _, name := range []string{"metal_stdlib", "metal_simdgroup", "metal_simdgroup_matrix"} {
		out[name] = mustRead("prelude/lint/include/" + name)
	}
	return out
}

// EntryName returns the name of the kernel's function in a compiled library of the target.
func (l Launch) EntryName(t Target) string {
	if t == Metal {
		return l.Kernel
	}
	return l.Kernel + "_entry"
}

// Source returns the complete source of a launch for a target: definitions, prelude, the kernel's source and, except
// for Metal, its entry point.
func (l Launch) Source(t Target) (string, error) {
	text := texts.of(textKey{l.File, t}, func() *text { return newText(l.File, t) })
	if text.err != nil {
		return "", text.err
	}
	if !strings.Contains(text.entries, "#ifdef ENTRY_"+l.Kernel+"\n") {
		return "", fmt.Errorf("kernels: %s.metal has no kernel %q", l.File, l.Kernel)
	}
	parts := make([]string, 0, 5*len(l.Defines)+6)
	parts = append(parts, text.head)
	for _, d := range l.Defines {
		parts = append(parts, "#define ", d.Name, " ", d.Value, "\n")
	}
	parts = append(parts, text.body)
	if t != Metal {
		parts = append(parts, "#define ENTRY_", l.Kernel, "\n", text.entries)
	}
	return strings.Join(parts, ""), nil
}

// text is what the sources of all kernels of a file have in common on a target.
type text struct {
	head, body string // before and behind the definitions
	entries    string
	err        error
}

type textKey struct {
	file   string
	target Target
}

var texts remembered[textKey, *text]

func newText(file string, t Target) *text {
	whole, err := files.ReadFile(file + ".metal")
	if err != nil {
		return &text{err: fmt.Errorf("kernels: there is no source %q", file)}
	}
	includes, body, line, err := splitIncludes(file, string(whole))
	if err != nil {
		return &text{err: err}
	}
	b := &strings.Builder{}
	for _, name := range includes {
		b.Write(mustRead(name))
	}
	fmt.Fprintf(b, "#line %d \"%s.metal\"\n%s", line, file, body)
	return &text{head: string(mustRead(preludes[t])) + string(mustRead("prelude/common.h")), body: b.String(),
		entries: string(mustRead(file + ".entry.h"))}
}

// splitIncludes takes the includes from the head of a kernel's source: "port.h", which comes first and is not returned,
// and others from prelude/. line is the number of the body's first line.
func splitIncludes(file, text string) (includes []string, body string, line int, err error) {
	const prefix = "#include \""
	body = text
	for line = 1; strings.HasPrefix(body, prefix); line++ {
		head, rest, _ := strings.Cut(body, "\n")
		name := strings.TrimSuffix(strings.TrimPrefix(head, prefix), "\"")
		if line == 1 != (name == "port.h") {
			return nil, "", 0, fmt.Errorf("kernels: %s.metal must include port.h first, and once", file)
		}
		if line > 1 {
			name = "prelude/" + name
			if _, err := files.ReadFile(name); err != nil {
				return nil, "", 0, fmt.Errorf("kernels: %s.metal includes %s, which is not there", file, name)
			}
			includes = append(includes, name)
		}
		body = rest
	}
	if line == 1 {
		return nil, "", 0, fmt.Errorf("kernels: the first line of %s.metal must be #include \"port.h\"", file)
	}
	return includes, body, line, nil
}

// mustRead returns an embedded file, which exists in every build.
func mustRead(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic("kernels: " + err.Error())
	}
	return b
}
