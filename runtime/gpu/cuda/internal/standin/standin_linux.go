//go:build amd64 || arm64

package standin

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/internal/standin"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Library is the loaded stand-in, driver and NVRTC in one file, with what tests ask it.
type Library struct {
	// Path is the file that was loaded; it is gone, but its name still finds it.
	Path string
	// Live returns the number of objects that were made and not destroyed.
	Live func() int32
	// Programmatic counts the edges of graphs that let a kernel start early.
	Programmatic func() int32
	// Complaints returns lines that say what was wrong since Reset.
	Complaints func() string
	// Pinned lets so many allocations of pinned memory succeed, and no more until Reset.
	Pinned func(count int32)
	// Reset clears complaints, errors of kernels, and what a program left that ended with an error.
	Reset func()
}

// Load compiles the stand-in for libcuda and NVRTC and loads it, once in the process. Its error wraps
// device.ErrUnavailable where there is no C compiler or no C++ compiler.
var Load = sync.OnceValues(func() (*Library, error) {
	l := &Library{}
	var err error
	l.Path, err = standin.Load("CUDA", source, sharedObject, map[string]any{
		"standin_live":         &l.Live,
		"standin_programmatic": &l.Programmatic,
		"standin_complaints":   &l.Complaints,
		"standin_pinned":       &l.Pinned,
		"standin_reset":        &l.Reset,
	})
	return l, err
})

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
		body += fmt.Sprintf("\nextern \"C\" __attribute__((visibility(\"default\"))) const unsigned "+
			"%s_entry_constant[2] = {%s};", k[1], value)
	}
	return emulator.SharedObject(kernels.Prelude(kernels.CPU) + body + "\n")
}
