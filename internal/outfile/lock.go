package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrLocked says that another process has locked a file.
var ErrLocked = errors.New("another process has it locked")

// ErrReplaced says that another process renamed or removed a file while this one opened it.
var ErrReplaced = errors.New("another process has just renamed or removed it")

// OpenLocked opens a file as [OpenAside] does, and locks it against other processes until it is closed. On file
// systems without locks it only opens the file. The error is [ErrLocked] or [ErrReplaced] if another process uses the
// file.
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

// Lock keeps other processes from locking the same name until unlock is called. It locks a hidden file beside the
// named one, since that one is replaced when it is written. A hidden file that a killed process left behind locks
// nothing.
func Lock(path string) (unlock func() error, err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for range 10 { // its last owner removes it
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
