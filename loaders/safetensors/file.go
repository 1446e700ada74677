package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxHeaderBytes is the largest header that is read, the limit of the reference implementation.
const MaxHeaderBytes = 100_000_000

// lengthBytes is the size of the field in front of the header.
const lengthBytes = 8

// File is an open safetensors file whose header has been checked.
type File struct {
	path     string
	data     io.ReaderAt
	closer   io.Closer
	metadata map[string]string
	tensors  []*Tensor
	byName   map[string]*Tensor
}

// Open opens the file at path and reads and checks its header. The caller closes the file.
func Open(path string) (*File, error) {
	handle, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := handle.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &FormatError{File: path, Expected: "a regular file", Found: "one of mode " + info.Mode().String()}
	}
	var file *File
	if err == nil {
		file, err = NewFile(path, handle, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	file.closer = handle
	return file, nil
}

// NewFile reads and checks the header of the size bytes after data. The path serves for messages only.
// Closing the result leaves data open.
func NewFile(path string, data io.ReaderAt, size int64) (*File, error) {
	header, err := readHeader(path, data, size)
	if err != nil {
		return nil, err
	}
	file := &File{path: path, data: data, byName: make(map[string]*Tensor)}
	start := lengthBytes + int64(len(header))
	if err := file.parseHeader(header); err != nil {
		return nil, err
	}
	if err := file.checkLayout(start, size-start); err != nil {
		return nil, err
	}
	return file, nil
}

// readHeader returns the header's bytes, after holding its length field against the file's size.
func readHeader(path string, data io.ReaderAt, size int64) ([]byte, error) {
	var field [lengthBytes]byte
	if size < lengthBytes {
		return nil, &FormatError{File: path, Expected: "at least 8 bytes, the header's length",
			Found: fmt.Sprintf("%d bytes", size)}
	}
	if err := readFull(data, field[:], 0); err != nil {
		return nil, fmt.Errorf("%s: reading the header's length: %w", path, err)
	}
	length := binary.LittleEndian.Uint64(field[:])
	switch {
	case string(field[:]) == "version ":
		return nil, &FormatError{File: path, Expected: "a safetensors file",
			Found: "what looks like a Git LFS pointer; fetch the file itself with git lfs pull"}
	case length > MaxHeaderBytes:
		return nil, &FormatError{File: path, Expected: fmt.Sprintf("a header of at most %d bytes", MaxHeaderBytes),
			Found: fmt.Sprintf("the length %d in the first 8 bytes", length)}
	case int64(length) > size-lengthBytes:
		return nil, &FormatError{File: path, Expected: fmt.Sprintf("a header of %d bytes after the length field",
			length), Found: fmt.Sprintf("%d bytes; the file is truncated", size-lengthBytes)}
	}
	header := make([]byte, length)
	if err := readFull(data, header, lengthBytes); err != nil {
		return nil, fmt.Errorf("%s: reading the header: %w", path, err)
	}
	return header, nil
}

// readFull fills p from off on. A source that ends before is an io.ErrUnexpectedEOF.
func readFull(data io.ReaderAt, p []byte, off int64) error {
	n, err := data.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil, err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Path returns the path that the file was opened with.
func (f *File) Path() string { return f.path }

// Metadata returns the file's __metadata__, nil where it is absent or null. It must not be changed.
func (f *File) Metadata() map[string]string { return f.metadata }

// Tensors lists the tensors in the order of their bytes in the file (empty ones of one position: by
// name). The slice must not be changed.
func (f *File) Tensors() []*Tensor { return f.tensors }

// Tensor looks a tensor up by its name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	t, ok := f.byName[name]
	return t, ok
}

// Close closes the file. Tensors of a closed file cannot be read.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}
