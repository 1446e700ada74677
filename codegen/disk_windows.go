package codegen

import (
	"errors"

	"golang.org/x/sys/windows"

	"github.com/etc-ml/etc/internal/outfile"
)

// freeSpace returns the space of a directory's disk that the user may take, in bytes.
func freeSpace(dir string) (int64, bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil || int64(free) < 0 {
		return 0, false
	}
	return int64(free), true
}

// allocated returns the part of a file that takes space on the disk already: setting the end takes it.
func allocated(file outfile.File) int64 {
	info, err := file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// renameOpen gives an open file another name and closes it, which has to come first here.
func renameOpen(file outfile.File, from, to string) error {
	if err := file.Close(); err != nil {
		return err
	}
	return outfile.Rename(from, to)
}

// removeOpen removes an open file and closes it, which has to come first here.
func removeOpen(file outfile.File, path string) error {
	return errors.Join(ignoreClosed(file.Close()), removeIfThere(path))
}
