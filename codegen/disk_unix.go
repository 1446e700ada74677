//go:build unix

package codegen

import (
	"errors"
	"syscall"

	"github.com/etc-ml/etc/internal/outfile"
)

// allocated returns the part of a file that takes space on the disk already.
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
