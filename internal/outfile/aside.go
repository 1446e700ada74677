package outfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// OpenAside opens the unfinished file of an interrupted write, to continue it, or creates a new one with this mode,
// for reading and writing. It uses an existing file only if that is a regular file of this user with no other name.
// For links, devices, FIFOs and files of other users it returns a [*TargetError]: somebody may have put them there so
// that etc overwrites another file.
func OpenAside(path string, mode fs.FileMode) (File, error) {
	for range 3 { // another process may create or remove the name meanwhile
		file, err := current().OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, mode)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
		file, err = OpenOwn(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, &TargetError{path, "is made and removed by another process all the time"}
}

// OpenOwn opens an existing file as [OpenAside] does. It creates none.
func OpenOwn(path string) (File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if problem := irregular(path, before); problem != "" {
		return nil, &TargetError{path, problem}
	}
	file, err := current().OpenFile(path, os.O_RDWR|noFollow|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		switch problem := foreign(info); {
		case !info.Mode().IsRegular() || !os.SameFile(before, info):
			err = &TargetError{path, "was replaced by another file while it was opened; try again"}
		case problem != "":
			err = &TargetError{path, problem + "; remove it, or choose another name"}
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// CopyFile copies a file to a new name. It returns an error if there is a file of that name.
func CopyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := current().OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(&writer{out, to}, in)
	return errors.Join(err, named("close", to, out.Close()))
}
