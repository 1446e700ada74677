package host

import (
	"os"
	"path/filepath"
)

// CUDADriver returns the path of CUDA's driver library, "" where it is in none of the places that loaders search.
func CUDADriver() string {
	return findLibrary(append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), libraryDirs...), cudaLibraries)
}

// findLibrary finds the first file of one of the names in the directories.
func findLibrary(dirs, names []string) string {
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path
			}
		}
	}
	return ""
}
