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

// Write writes a file; write gives its bytes. They go to a temporary file beside it, which is synced and then
// renamed. After an error the old file, if there was one, is unchanged, and the temporary file is gone. Write refuses
// what [Check] refuses, before it calls write and again before it renames.
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
	old, err := o.check(path) // another process may have created it meanwhile
	if err != nil {
		return err
	}
	if err := current().Rename(aside, path); err != nil {
		return named("rename", path, err)
	}
	o.replaced(path, old)
	return nil
}

// unfinished has the names of temporary files that are being written.
var unfinished sync.Map

// RemoveUnfinished removes the temporary files of unfinished [Write] calls. It is for a process that ends at once.
func RemoveUnfinished() {
	unfinished.Range(func(name, _ any) bool {
		current().Remove(name.(string)) //nolint:errcheck // the process ends
		return true
	})
}

// asideName returns an unguessable name for a temporary file beside a file.
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

// IsAside reports whether a name is that of a temporary file of [Write]. A killed process leaves such a file behind.
func IsAside(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".part")
}

// writer writes to a file. Its errors name the file that the user asked for, not the temporary one.
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

// named returns an error with the name of the file that the user asked for.
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
