package outfile

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Stream is the stream that a name stands for, nil where it is the name of a file: - and /dev/stdout are stdout,
// /dev/stderr is stderr, /dev/fd/N and /proc/self/fd/N are what the process was started with under that number, as
// shells do it for >(command). The caller does not close it.
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
			return os.NewFile(uintptr(n), path)
		}
	}
	return nil
}
