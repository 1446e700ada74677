package outfile

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"
)

// Write writes a file under a name, of the bytes that write gives. They go to a file of another name beside it, which
// is brought to the disk and renamed when it is whole. After an error of any kind, the place holds what it held, and
// nothing is left beside it. What [Check] refuses is refused before write is called, and again before the file gets
// its name.
func Write(path string, o Options, write func(io.Writer) error) (err error) {
	if _, err := o.check(path); err != nil {
		return err
	}
	mode := fs.FileMode(0o666)
	if o.Private {
		mode = 0o600
	}
	aside := asideName(path)
	file, err := current().OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, mode)
	if err != nil {
		return named("create", path, err)
	}
	unfinished.Store(aside, nil)
	defer unfinished.Delete(aside)
	defer func() {
		if err != nil {
			file.Close() //nolint:errcheck // it is closed already, or was not whole
			if left := current().Remove(aside); left != nil && !errors.Is(left, fs.ErrNotExist) {
				err = errors.Join(err, left)
			}
		}
	}()
	if err := write(&writer{file, path}); err != nil {
		return err
	}
	if !o.Unsynced {
		if err := file.Sync(); err != nil {
			return named("sync", path, err)
		}
	}
	if err := file.Close(); err != nil {
		return named("close", path, err)
	}
	old, err := o.check(path) // it may have come meanwhile
	if err != nil {
		return err
	}
	if err := current().Rename(aside, path); err != nil {
		return named("rename", path, err)
	}
	o.replaced(path, old)
	return nil
}

// unfinished are the names of files that are being written.
var unfinished sync.Map

// RemoveUnfinished removes the files that [Write] has begun and not ended. It is for a process that ends at once.
func RemoveUnfinished() {
	unfinished.Range(func(name, _ any) bool {
		current().Remove(name.(string)) //nolint:errcheck // the process ends
		return true
	})
}

// asideName is a name beside a file's that nobody can guess, for as long as the file is not whole.
func asideName(path string) string {
	base := filepath.Base(path)
	const most = 200 // bytes: with what is added, no more than file systems take
	if len(base) > most {
		base = base[:most]
		for !utf8.ValidString(base) && len(base) > most-utf8.UTFMax {
			base = base[:len(base)-1]
		}
	}
	return filepath.Join(filepath.Dir(path), "."+base+"."+strings.ToLower(rand.Text())+".part")
}

// IsAside reports whether a name is one that [Write] gives files for as long as they are not whole. A process that was
// killed leaves such a file.
func IsAside(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".part")
}

// writer writes to a file; its errors have the name that the file is to get.
type writer struct {
	file File
	path string
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, named("write", w.path, err)
}

// named is an error of a file with the name that the user knows it by.
func named(operation, path string, err error) error {
	if err == nil {
		return nil
	}
	var of *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &of):
		err = of.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return &fs.PathError{Op: operation, Path: path, Err: err}
}
