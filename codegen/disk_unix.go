//go:build unix

package codegen

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/etc-ml/etc/internal/outfile"
)

// openLocked opens a file for writing and locks it against other exports, until it is closed.
func openLocked(path string) (outfile.File, error) {
	file, err := outfile.OpenAside(path, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s: another export is writing it", path)
	} else if err != nil { // a file system without locks
		err = nil
	}
	if err == nil {
		// Between opening and locking, the other export may have given the file its name.
		mine, there := stat(file), statPath(path)
		if mine == nil || there == nil || !os.SameFile(mine, there) {
			err = fmt.Errorf("%s: another export has just written it", path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// allocated is the part of a file that takes space on the disk already.
func allocated(file outfile.File) int64 {
	info, err := file.Stat()
	if err != nil {
		return 0
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return int64(s.Blocks) * 512
}

// renameOpen gives an open file another name and closes it.
func renameOpen(file outfile.File, from, to string) error {
	if err := outfile.Rename(from, to); err != nil {
		return err
	}
	return file.Close()
}

// removeOpen removes an open file and closes it.
func removeOpen(file outfile.File, path string) error {
	return errors.Join(removeIfThere(path), ignoreClosed(file.Close()))
}
