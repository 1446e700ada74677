package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// errNoCompiler says that flatc is not in the cache and that there is no C++ compiler to build it.
var errNoCompiler = errors.New("no C++ compiler")

// module is a Go module in the module cache.
type module struct {
	version string
	dir     string
}

// flatbuffersModule finds the flatbuffers module that go.mod requires.
func flatbuffersModule(ctx context.Context) (module, error) {
	const path = "github.com/google/flatbuffers"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}\n{{.Dir}}", path).Output()
	if err != nil {
		return module{}, fmt.Errorf("go list -m %s: %w", path, err)
	}
	version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if dir == "" {
		return module{}, fmt.Errorf("%s %s is not in the module cache: run go mod download", path, version)
	}
	return module{version: strings.TrimSuffix(version, "+incompatible"), dir: dir}, nil
}

// flatc returns the path of the module's own schema compiler, which it builds on first use. The error is
// errNoCompiler when that needs a C++ compiler that is not there; $CXX names another one than g++.
func flatc(ctx context.Context, m module) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "etc", "flatc")
	binary := filepath.Join(dir, m.version+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}

	name := os.Getenv("CXX")
	if name == "" {
		name = "g++"
	}
	cxx, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoCompiler, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	built, err := compile(ctx, cxx, m.dir, work)
	if err != nil {
		return "", err
	}
	// Renamed when it is whole: two builds at once do no harm.
	if err := os.Rename(built, binary); err != nil {
		return "", err
	}
	return binary, nil
}

// compile builds flatc into work, one object per source and as many at a time as there are CPUs. Warnings
// are off and optimization too: the schemas are small and the build is most of the time.
func compile(ctx context.Context, cxx, moduleDir, work string) (string, error) {
	sources, err := flatcSources(filepath.Join(moduleDir, "CMakeLists.txt"))
	if err != nil {
		return "", err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	objects := make([]string, len(sources))
	for i, source := range sources {
		objects[i] = filepath.Join(work, strings.ReplaceAll(source, "/", "_")+".o")
		group.Go(func() error {
			return run(groupCtx, moduleDir, cxx, "-std=c++17", "-O0", "-w", "-Iinclude", "-I.", "-Igrpc",
				"-DFLATBUFFERS_LOCALE_INDEPENDENT=0", "-c", source, "-o", objects[i])
		})
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	binary := filepath.Join(work, "flatc")
	return binary, run(ctx, moduleDir, cxx, append(objects, "-o", binary)...)
}

var (
	sourceList = regexp.MustCompile(`(?ms)^set\(FlatBuffers_(?:Library|Compiler)_SRCS$(.*?)^\)`)
	sourceFile = regexp.MustCompile(`(?m)^\s*(\S+\.(?:cpp|cc))$`)
)

// flatcSources reads from the module's CMakeLists.txt which C++ files flatc is made of.
func flatcSources(cmakeLists string) ([]string, error) {
	text, err := os.ReadFile(cmakeLists)
	if err != nil {
		return nil, err
	}
	var sources []string
	seen := map[string]bool{}
	for _, list := range sourceList.FindAllStringSubmatch(string(text), -1) {
		for _, file := range sourceFile.FindAllStringSubmatch(list[1], -1) {
			if !seen[file[1]] {
				seen[file[1]] = true
				sources = append(sources, file[1])
			}
		}
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%s: no FlatBuffers_Library_SRCS and FlatBuffers_Compiler_SRCS lists", cmakeLists)
	}
	return sources, nil
}

// run executes a command in dir; its output goes into the error.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}
