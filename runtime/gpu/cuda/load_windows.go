package cuda

import (
	"os"
	"path/filepath"
	"syscall"
)

// The driver's library, and the patterns of file names of the others.
var (
	driverNames = []string{"nvcuda.dll"}
	nvrtcNames  = []string{"nvrtc64_1*_0.dll"}
	cublasNames = []string{"cublas64_1*.dll"}
)

func openLibrary(path string) (uintptr, error) {
	h, err := syscall.LoadLibrary(path)
	return uintptr(h), err
}

func findSymbol(library uintptr, name string) (uintptr, error) {
	return syscall.GetProcAddress(syscall.Handle(library), name)
}

// bareNames returns no names: on Windows they contain versions and have to be searched for.
func bareNames(string) []string { return nil }

// libraryFolders returns the folders in which the toolkit's libraries may be: its own folder, then those of PATH.
func libraryFolders() []string {
	var out []string
	if toolkit := os.Getenv("CUDA_PATH"); toolkit != "" {
		out = append(out, filepath.Join(toolkit, "bin", "x64"), filepath.Join(toolkit, "bin"))
	}
	return append(out, filepath.SplitList(os.Getenv("PATH"))...)
}
