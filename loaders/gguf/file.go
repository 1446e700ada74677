package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Model is an open GGUF model: one file, or all shards of one.
type Model struct {
	path     string
	metadata map[string]any
	tensors  []*Tensor
	byName   map[string]*Tensor
	files    []*file
}

// file is one GGUF file.
type file struct {
	path     string
	data     io.ReaderAt
	closer   io.Closer
	metadata map[string]any
	tensors  []*Tensor
	byName   map[string]*Tensor
}

// Tensor is a tensor of a [Model]. Its bytes stay in the file until they are read.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int64 // in PyTorch's order; must not be changed

	file   *file
	offset int64 // of the first byte; relative to the data until place makes it absolute
	size   int64
}

// Size is the number of bytes of the tensor in its file.
func (t *Tensor) Size() int64 { return t.size }

// Offset returns the position of the tensor's first byte in its file.
func (t *Tensor) Offset() int64 { return t.offset }

// File returns the path of the file that holds the tensor.
func (t *Tensor) File() string { return t.file.path }

// ReadAt reads the tensor's stored bytes; it implements [io.ReaderAt]. It is safe for concurrent use.
func (t *Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: tensor %s: expected an offset ≥ 0, found %d", t.file.path, t.Name, off)
	}
	want := min(int64(len(p)), t.size-off)
	if want <= 0 {
		return 0, io.EOF
	}
	n, err := t.file.data.ReadAt(p[:want], t.offset+off)
	if int64(n) < want {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF // the file was whole when it was opened
		}
		return n, fmt.Errorf("%s: tensor %s at byte %d: %w", t.file.path, t.Name, off+int64(n), err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// shardName is the form of the names of shards.
var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// Open opens the model at path and checks its metadata and the places of its tensors. Of a split model path is the
// first shard; the others lie beside it. The caller closes the model.
func Open(path string) (*Model, error) {
	first, err := openFile(path)
	if err != nil {
		return nil, err
	}
	m := &Model{path: path, metadata: first.metadata, byName: map[string]*Tensor{}}
	if err := m.add(first); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := m.openShards(first); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// New reads the model in the size bytes after data, which is not split. The path serves for messages only.
func New(path string, data io.ReaderAt, size int64) (*Model, error) {
	f, err := newFile(path, data, size)
	if err != nil {
		return nil, err
	}
	m := &Model{path: path, metadata: f.metadata, byName: map[string]*Tensor{}}
	return m, m.add(f)
}

// openShards opens the shards after the first.
func (m *Model) openShards(first *file) error {
	count, _ := first.metadata["split.count"].(int64)
	if count <= 1 {
		return nil
	}
	name := shardName.FindStringSubmatch(filepath.Base(m.path))
	if no, _ := first.metadata["split.no"].(int64); no != 0 {
		return &FormatError{m.path, "split.no", -1, "0: the first shard, which names the model", fmt.Sprint(no)}
	}
	if name == nil || name[3] != fmt.Sprintf("%05d", count) {
		return &FormatError{m.path, "split.count", -1,
			fmt.Sprintf("the file name NAME-00001-of-%05d.gguf, by which the other shards are found", count),
			filepath.Base(m.path)}
	}
	for i := int64(1); i < count; i++ {
		path := filepath.Join(filepath.Dir(m.path), fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count))
		f, err := openFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return &FormatError{m.path, "split.count", -1,
				fmt.Sprintf("%d shards, %s among them", count, filepath.Base(path)),
				"no such file; the download is incomplete"}
		}
		if err != nil {
			return err
		}
		if err := m.add(f); err != nil {
			return err
		}
		if no, ok := f.metadata["split.no"].(int64); !ok || no != i {
			return &FormatError{path, "split.no", -1, strconv.FormatInt(i, 10), fmt.Sprint(f.metadata["split.no"])}
		}
	}
	if want, ok := first.metadata["split.tensors.count"].(int64); ok && want != int64(len(m.tensors)) {
		return &FormatError{m.path, "split.tensors.count", -1, fmt.Sprintf("%d tensors in all shards", want),
			fmt.Sprint(len(m.tensors))}
	}
	return nil
}

// add takes the tensors of a file.
func (m *Model) add(f *file) error {
	m.files = append(m.files, f)
	for _, t := range f.tensors {
		if m.byName[t.Name] != nil {
			return &FormatError{f.path, "tensor " + t.Name, -1, "each tensor in one shard",
				"it in " + filepath.Base(m.byName[t.Name].File()) + " too"}
		}
		m.tensors, m.byName[t.Name] = append(m.tensors, t), t
	}
	return nil
}

func openFile(path string) (*file, error) {
	handle, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := handle.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &FormatError{path, "", -1, "a regular file", "one of mode " + info.Mode().String()}
	}
	var f *file
	if err == nil {
		f, err = newFile(path, handle, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	f.closer = handle
	return f, nil
}

func newFile(path string, data io.ReaderAt, size int64) (*file, error) {
	f := &file{path: path, data: data, metadata: map[string]any{}, byName: map[string]*Tensor{}}
	return f, newReader(path, data, size).header(f)
}

// place makes the offsets of tensors absolute, sorts the tensors by them and checks that they lie in the file and do
// not overlap.
func (f *file) place(start, alignment, size int64) error {
	slices.SortStableFunc(f.tensors, func(a, b *Tensor) int { return cmp.Compare(a.offset, b.offset) })
	end := int64(0) // of the tensor before, after start
	for _, t := range f.tensors {
		fault := func(expected, found string, args ...any) error {
			return &FormatError{f.path, "tensor " + t.Name, -1, expected, fmt.Sprintf(found, args...)}
		}
		switch {
		case t.offset < 0 || t.offset%alignment != 0:
			return fault(fmt.Sprintf("an offset that is a multiple of the alignment %d", alignment), "%d", t.offset)
		case t.offset < end:
			return fault(fmt.Sprintf("an offset from %d on, where the tensor before ends", end), "%d", t.offset)
		case start > size || t.offset > size-start || t.size > size-start-t.offset:
			return fault(fmt.Sprintf("%d bytes at offset %d of the data", t.size, t.offset),
				"data of %d bytes; the file is truncated", max(size-start, 0))
		}
		end = t.offset + t.size
		t.offset += start
	}
	return nil
}

// Path returns the path that the model was opened with.
func (m *Model) Path() string { return m.path }

// Tensors lists the tensors in the order of their bytes, file by file. The slice must not be changed.
func (m *Model) Tensors() []*Tensor { return m.tensors }

// Tensor looks a tensor up by its name.
func (m *Model) Tensor(name string) (*Tensor, bool) {
	t, ok := m.byName[name]
	return t, ok
}

// Close closes the model's files.
func (m *Model) Close() error {
	var errs []error
	for _, f := range m.files {
		if f.closer != nil {
			errs = append(errs, f.closer.Close())
		}
	}
	return errors.Join(errs...)
}
