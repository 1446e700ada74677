package outfile

import (
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// FileSystem has the functions of a file system that this package uses. They behave as those of package os.
type FileSystem interface {
	OpenFile(name string, flag int, mode fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(name string) error
}

// File is an open file that is being written.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	Name() string
	Fd() uintptr
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	// Truncate sets the size in bytes.
	Truncate(size int64) error
	// Allocate sets the size in bytes, and reserves the space for it if the file system can.
	Allocate(size int64) error
	// Sync brings content and metadata to the disk.
	Sync() error
	// SyncData brings the content to the disk, and the metadata that reading it needs.
	SyncData() error
}

// disk is the file system of the machine.
type disk struct{}

func (disk) OpenFile(name string, flag int, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err // not f: a nil pointer in an interface is not nil
	}
	return diskFile{f}, nil
}
func (disk) Rename(from, to string) error { return os.Rename(from, to) }
func (disk) Remove(name string) error     { return os.Remove(name) }

type diskFile struct{ *os.File }

func (f diskFile) Allocate(size int64) error { return allocate(f.File, size) }
func (f diskFile) SyncData() error           { return syncData(f.File) }

var system atomic.Pointer[FileSystem]

func init() { SetFileSystem(Disk()) }

// Disk returns the file system of the machine.
func Disk() FileSystem { return disk{} }

// SetFileSystem makes etc write all files with another file system until restore is called. Tests use it to let
// writes fail.
func SetFileSystem(f FileSystem) (restore func()) {
	before := system.Swap(&f)
	return func() { system.Store(before) }
}

func current() FileSystem { return *system.Load() }

// Rename gives a file another name.
func Rename(from, to string) error { return current().Rename(from, to) }

// Remove removes a file.
func Remove(name string) error { return current().Remove(name) }
