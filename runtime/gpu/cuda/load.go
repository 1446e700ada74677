//go:build (linux && !nocuda) || windows

package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// api is a loaded library with the functions that are called.
type api struct {
	path    string
	symbols map[string]uintptr
}

// newAPI resolves functions; those after "?" may be missing.
func newAPI(path string, library uintptr, names []string) (*api, error) {
	a := &api{path, map[string]uintptr{}}
	for _, name := range names {
		name, optional := strings.CutPrefix(name, "?")
		address, err := findSymbol(library, name)
		if err != nil && !optional {
			return nil, fmt.Errorf("cuda: %s has no %s; a newer one is needed: %w", path, name, device.ErrUnavailable)
		}
		if err == nil {
			a.symbols[name] = address
		}
	}
	return a, nil
}

func (a *api) has(name string) bool { return a.symbols[name] != 0 }

// result calls a function and gives its status. Pointers given as uintptr(unsafe.Pointer(p)) in the call stay
// valid during it.
//
//go:uintptrescapes
func (a *api) result(name string, args ...uintptr) int {
	status, _, _ := purego.SyscallN(a.symbols[name], args...)
	return int(int32(status))
}

// find loads a library of NVIDIA's by the base of its name (libnvrtc), or else by the patterns of its file's
// name in the usual folders. variable names an environment variable with a path that comes before all.
func find(base string, patterns []string, variable string) (path string, library uintptr, err error) {
	if path := os.Getenv(variable); path != "" {
		library, err := openLibrary(path)
		if err != nil {
			return "", 0, fmt.Errorf("cuda: %s=%s: %w: %w", variable, path, err, device.ErrUnavailable)
		}
		return path, library, nil
	}
	for _, name := range bareNames(base) {
		if library, err := openLibrary(name); err == nil {
			return name, library, nil
		}
	}
	var problem error
	for _, folder := range libraryFolders() {
		for _, pattern := range patterns {
			found, _ := filepath.Glob(filepath.Join(folder, pattern))
			for i := len(found) - 1; i >= 0; i-- { // the highest version first
				library, err := openLibrary(found[i])
				if err == nil {
					return found[i], library, nil
				}
				problem = fmt.Errorf("%s: %w", found[i], err)
			}
		}
	}
	if problem == nil {
		problem = fmt.Errorf("there is none in the usual folders")
	}
	return "", 0, fmt.Errorf("cuda: %s is needed: install the CUDA toolkit (or: pip install nvidia-cuda-nvrtc "+
		"nvidia-cublas), or name the file in %s: %w: %w", base, variable, problem, device.ErrUnavailable)
}
