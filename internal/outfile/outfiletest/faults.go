package outfiletest

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"

	"github.com/etc-ml/etc/internal/outfile"
)

// Faults is the machine's file system with faults. One operation fails from its Nth call on: "open", "write",
// "allocate", "sync", "close", "rename".
type Faults struct {
	Operation string
	Nth       int // from 1
	Err       error
	// Short makes a write that fails write half of its bytes first, and report no error where Err is nil.
	Short bool
	// Name limits the faults to files whose names contain it.
	Name string

	mu    sync.Mutex
	calls int
}

// Parse reads a fault as "OPERATION:N:ERROR[:short]", as "write:3:ENOSPC"; ERROR is ENOSPC, EIO or none.
func Parse(text string) (*Faults, error) {
	fields := strings.Split(text, ":")
	f := &Faults{}
	if len(fields) < 3 {
		return nil, fmt.Errorf("%q: want OPERATION:N:ERROR[:short]", text)
	}
	f.Operation = fields[0]
	if _, err := fmt.Sscan(fields[1], &f.Nth); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	switch fields[2] {
	case "ENOSPC":
		f.Err = syscall.ENOSPC
	case "EIO":
		f.Err = syscall.EIO
	case "none":
	default:
		return nil, fmt.Errorf("%q: no error %s", text, fields[2])
	}
	f.Short = len(fields) > 3 && fields[3] == "short"
	return f, nil
}

// fails counts a call and reports whether it is to fail.
func (f *Faults) fails(operation, name string) bool {
	if operation != f.Operation || !strings.Contains(name, f.Name) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.calls >= f.Nth
}

func (f *Faults) err(operation, name string) error {
	return &fs.PathError{Op: operation, Path: name, Err: f.Err}
}

// OpenFile opens a file whose operations may fail.
func (f *Faults) OpenFile(name string, flag int, mode fs.FileMode) (outfile.File, error) {
	if f.fails("open", name) {
		return nil, f.err("open", name)
	}
	file, err := outfile.Disk().OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

// Rename renames, or fails.
func (f *Faults) Rename(from, to string) error {
	if f.fails("rename", to) {
		return f.err("rename", from)
	}
	return outfile.Disk().Rename(from, to)
}

// Remove removes a file; that never fails here.
func (f *Faults) Remove(name string) error { return outfile.Disk().Remove(name) }

type faultyFile struct {
	outfile.File
	faults *Faults
}

func (f *faultyFile) write(p []byte, write func([]byte) (int, error)) (int, error) {
	if !f.faults.fails("write", f.Name()) {
		return write(p)
	}
	n := 0
	if f.faults.Short {
		n, _ = write(p[:len(p)/2])
	}
	if f.faults.Err == nil {
		return n, nil
	}
	return n, f.faults.err("write", f.Name())
}

func (f *faultyFile) Write(p []byte) (int, error) { return f.write(p, f.File.Write) }

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

func (f *faultyFile) Allocate(size int64) error {
	if f.faults.fails("allocate", f.Name()) {
		return f.faults.err("allocate", f.Name())
	}
	return f.File.Allocate(size)
}

func (f *faultyFile) Sync() error {
	if f.faults.fails("sync", f.Name()) {
		return f.faults.err("sync", f.Name())
	}
	return f.File.Sync()
}

func (f *faultyFile) SyncData() error {
	if f.faults.fails("sync", f.Name()) {
		return f.faults.err("sync", f.Name())
	}
	return f.File.SyncData()
}

func (f *faultyFile) Close() error {
	err := f.File.Close()
	if f.faults.fails("close", f.Name()) {
		return f.faults.err("close", f.Name())
	}
	return err
}
