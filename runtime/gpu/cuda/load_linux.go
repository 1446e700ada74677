//go:build !nocuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/ebitengine/purego"
)

// The driver's library, and the patterns of file names of the others.
var (
	driverNames = []string{"libcuda.so.1", "libcuda.so"}
	nvrtcNames  = []string{"libnvrtc.so.1[0-9]", "libnvrtc.so"}
	cublasNames = []string{"libcublas.so.1[0-9]", "libcublas.so"}
)

func openLibrary(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func findSymbol(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }

// bareNames returns the names without a folder that the system's loader is asked for.
func bareNames(name string) []string {
	return []string{name + ".so.13", name + ".so.12", name + ".so.11.2", name + ".so"}
}

// libraryFolders returns where toolkits, wheels of Python and Conda put libraries, patterns among them.
func libraryFolders() []string {
	target := map[string]string{"amd64": "x86_64-linux", "arm64": "sbsa-linux"}[runtime.GOARCH]
	var out []string
	toolkits := []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH"), "/usr/local/cuda",
		"/opt/cuda", "/usr/local/cuda-*"}
	for _, t := range toolkits {
		if t != "" {
			out = append(out, filepath.Join(t, "lib64"), filepath.Join(t, "targets", target, "lib"))
		}
	}
	prefixes := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	if python, err := exec.LookPath("python3"); err == nil {
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(python))) // of a virtual environment too
	}
	if home, err := os.UserHomeDir(); err == nil {
		prefixes = append(prefixes, filepath.Join(home, ".local"))
	}
	prefixes = append(prefixes, "/usr/local", "/usr")
	for _, p := range prefixes {
		if p == "" {
			continue
		}
		for _, packages := range []string{"site-packages", "dist-packages"} {
			wheels := filepath.Join(p, "lib", "python3*", packages, "nvidia")
			out = append(out, filepath.Join(wheels, "cu1[0-9]", "lib"), filepath.Join(wheels, "cuda_nvrtc", "lib"),
				filepath.Join(wheels, "cublas", "lib"))
		}
		out = append(out, filepath.Join(p, "lib"))
	}
	return out
}
