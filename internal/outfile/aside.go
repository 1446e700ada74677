package outfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// OpenAside opens the unfinished file of an interrupted write, to continue it, or creates a new one with this mode. It
// is opened for reading and writing. An existing file is used only if it is a regular file of this user without another
// name. For links, devices, FIFOs and files of other users, which somebody may have put there so that they are
// overwritten, it returns a [*TargetError].
func OpenAside(path string, mode fs.FileMode) (File, error) {
	for range 3 { // a name may go and come while it is looked at
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

// OpenOwn opens a file that is there as [OpenAside] does, and makes none.
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

// CopyFile makes a copy of a file under a new name; a file of that name is an error.
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
