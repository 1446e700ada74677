package outfile

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// streams holds a file for each inherited file descriptor. Closing a second file for one would close the descriptor
// of the first.
var streams = struct {
	sync.Mutex
	files map[uintptr]*os.File
}{files: map[uintptr]*os.File{}}

func inherited(number uintptr, name string) *os.File {
	streams.Lock()
	defer streams.Unlock()
	if streams.files[number] == nil {
		streams.files[number] = os.NewFile(number, name)
	}
	return streams.files[number]
}

// Stream returns the open stream that a name stands for, or nil for the name of a file: - and /dev/stdout stand for
// stdout, /dev/stderr for stderr, /dev/fd/N and /proc/self/fd/N for the descriptor N that the process inherited, as
// shells use for >(command). The caller must not close it.
func Stream(path string, stdout, stderr io.Writer) io.Writer {
	if path == "-" {
		return stdout
	}
	path = filepath.ToSlash(path)
	switch path {
	case "/dev/stdout":
		return stdout
	case "/dev/stderr":
		return stderr
	}
	for _, prefix := range []string{"/dev/fd/", "/proc/self/fd/"} {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		switch n, err := strconv.ParseUint(rest, 10, 16); {
		case err != nil:
			return nil
		case n == 1:
			return stdout
		case n == 2:
			return stderr
		case n > 2:
			return inherited(uintptr(n), path)
		}
	}
	return nil
}
