package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrLocked is the error of a file that another process has locked.
var ErrLocked = errors.New("another process has it locked")

// ErrReplaced is the error of a file that another process has renamed or removed while it was opened.
var ErrReplaced = errors.New("another process has just renamed or removed it")

// OpenLocked opens a file as [OpenAside] does and locks it against other processes until it is closed. A file system
// without locks locks nothing. The error is [ErrLocked] or [ErrReplaced] where another process is in the way.
func OpenLocked(path string, mode fs.FileMode) (File, error) {
	file, err := OpenAside(path, mode)
	if err != nil {
		return nil, err
	}
	err = tryLock(file.Fd())
	if err == nil {
		// Between opening and locking, the file may have got another name.
		mine, one := file.Stat()
		there, two := os.Lstat(path)
		if one != nil || two != nil || !os.SameFile(mine, there) {
			err = ErrReplaced
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return file, nil
}

// Lock keeps other processes from [Lock] of the same name until unlock is called. It does so by a hidden file beside
// it, since the file itself is replaced when it is written. What a killed process leaves of it locks nothing.
func Lock(path string) (unlock func() error, err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for range 10 { // the one who had it removes it
		file, err := OpenLocked(name, 0o600)
		if errors.Is(err, ErrReplaced) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return func() error { return removeOpen(file, name) }, nil
	}
	return nil, fmt.Errorf("%s: %w", name, ErrLocked)
}
