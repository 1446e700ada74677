package codegen

import (
	"os"
	"sync"
)

// inputs tells the operating system when pages of input files are no longer needed: a leaf's pages, after the last task
// that reads the leaf. So a checkpoint that is read once does not fill the page cache, and other programs keep their
// pages. Files that were cached before stay cached.
type inputs struct {
	mu    sync.Mutex
	files map[string]*os.File // by path; nil: to be left alone
	left  map[string]*input   // by provenance
	drop  func(file interface{ Fd() uintptr }, offset, size int64)
}

type input struct {
	Input
	tasks int // that still read it
}

// cachedShare is the part of a file that makes it one that was in the page cache before.
const cachedShare = 0.5

func newInputs(list []Input, tasks []task, done set) *inputs {
	in := &inputs{files: map[string]*os.File{}, left: map[string]*input{}, drop: dropPages}
	if !dropsPages {
		return in
	}
	for _, x := range list {
		file, known := in.files[x.Path]
		if !known {
			// A file that does not open is no matter here: reading it gives the error.
			if f, err := os.Open(x.Path); err == nil && cached(f) < cachedShare {
				file = f
			} else if err == nil {
				f.Close() //nolint:errcheck // only opened
			}
			in.files[x.Path] = file
		}
		if file != nil {
			in.left[x.Provenance] = &input{Input: x}
		}
	}
	for _, t := range tasks {
		if done.has(t.id) {
			continue
		}
		for _, key := range t.reads {
			if i := in.left[key]; i != nil {
				i.tasks++
			}
		}
	}
	return in
}

// completed counts a task as done.
func (in *inputs) completed(t task) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, key := range t.reads {
		i := in.left[key]
		if i == nil {
			continue
		}
		if i.tasks--; i.tasks == 0 {
			in.drop(in.files[i.Path], i.Offset, i.Size)
		}
	}
}

func (in *inputs) close() {
	if in == nil {
		return
	}
	for _, f := range in.files {
		if f != nil {
			f.Close() //nolint:errcheck // nothing was written
		}
	}
}
