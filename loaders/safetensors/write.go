package safetensors

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/etc-ml/etc/internal/outfile"
)

// Entry is a tensor to write.
type Entry struct {
	Name  string
	DType DType
	Shape []int

	// Data writes the tensor's bytes, little-endian and row-major, as many as dtype and shape make. It is
	// called once, when its place in the file has come.
	Data func(w io.Writer) error
}

// Bytes returns the Data of an entry whose bytes are at hand.
func Bytes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// From returns a function for Entry.Data that copies the entry's bytes from r, up to its end.
func From(r io.Reader) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	}
}

// Write writes a safetensors file: the entries by falling alignment of their dtypes, then by name, as the
// reference implementation orders them, so that every tensor is aligned to its element. metadata may be
// nil. The entries may come in any order. A wrong entry is refused before anything is written, except
// for the number of bytes of its data.
func Write(w io.Writer, entries []Entry, metadata map[string]string) error {
	plan, err := planFile(entries, metadata)
	if err != nil {
		return err
	}
	return plan.writeBuffered(w)
}

// WriteFile writes a safetensors file at path, with a temporary name first: path holds either all of the
// new file or what it held before. See [Write].
func WriteFile(path string, entries []Entry, metadata map[string]string) error {
	plan, err := planFile(entries, metadata)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	err = outfile.Write(path, outfile.Options{}, plan.writeBuffered)
	if system, target := (*fs.PathError)(nil), (*outfile.TargetError)(nil); err == nil || errors.As(err, &system) ||
		errors.As(err, &target) {
		return err // it names the file
	}
	return fmt.Errorf("%s: %w", path, err)
}

// filePlan is a file before its data is written.
type filePlan struct {
	header  []byte // with its length in front
	entries []Entry
	sizes   []int64
}

func planFile(entries []Entry, metadata map[string]string) (*filePlan, error) {
	plan := &filePlan{entries: slices.Clone(entries)}
	slices.SortFunc(plan.entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.DType.rank(), a.DType.rank()), cmp.Compare(a.Name, b.Name))
	})
	names := make(map[string]struct{})
	header := headerWriter{text: []byte{'{'}}
	if metadata != nil {
		header.key(metadataKey)
		header.text = append(header.text, '{')
		for _, key := range sortedKeys(metadata) {
			header.key(key)
			header.string(metadata[key])
		}
		header.text = append(header.text, '}')
	}
	var position int64
	for _, e := range plan.entries {
		size, err := entrySize(e)
		if err != nil {
			return nil, err
		}
		if _, twice := names[e.Name]; twice {
			return nil, fmt.Errorf("tensor %q: expected each name once, found it twice", e.Name)
		}
		names[e.Name] = struct{}{}
		if size > math.MaxInt64-position {
			return nil, fmt.Errorf("tensor %q: expected all data to fit in 2⁶³ bytes, found more", e.Name)
		}
		header.entry(e, position, position+size)
		position += size
		plan.sizes = append(plan.sizes, size)
	}
	header.text = append(header.text, '}')
	for len(header.text)%8 != 0 {
		header.text = append(header.text, ' ')
	}
	if header.err != nil {
		return nil, header.err
	}
	if len(header.text) > MaxHeaderBytes {
		return nil, fmt.Errorf("expected a header of at most %d bytes, found %d; write fewer tensors a file",
			MaxHeaderBytes, len(header.text))
	}
	plan.header = append(binary.LittleEndian.AppendUint64(nil, uint64(len(header.text))), header.text...)
	return plan, nil
}

// entrySize returns the number of bytes that an entry's data must have.
func entrySize(e Entry) (int64, error) {
	fault := func(expected, found string) error {
		return fmt.Errorf("tensor %q: expected %s, found %s", e.Name, expected, found)
	}
	switch {
	case e.Name == metadataKey:
		return 0, fault("a name", "the key of the metadata")
	case !e.DType.Valid():
		return 0, fault("a dtype of "+knownDTypes(), fmt.Sprintf("%q", string(e.DType)))
	case len(e.Shape) > maxRank:
		return 0, fault(fmt.Sprintf("at most %d dims", maxRank), fmt.Sprint(len(e.Shape)))
	case slices.ContainsFunc(e.Shape, func(d int) bool { return d < 0 }):
		return 0, fault("dims ≥ 0", fmt.Sprint(e.Shape))
	case e.Data == nil:
		return 0, fault("data", "none")
	}
	size, problem := byteSize(e.DType, e.Shape)
	if problem != "" {
		return 0, fault("a whole number of bytes", problem)
	}
	return size, nil
}

func (plan *filePlan) writeBuffered(w io.Writer) error {
	buffered := bufio.NewWriterSize(w, 1<<20)
	if _, err := buffered.Write(plan.header); err != nil {
		return err
	}
	for i, e := range plan.entries {
		exact := &exactWriter{w: buffered, rest: plan.sizes[i]}
		err := e.Data(exact)
		if err == nil && exact.rest != 0 {
			err = fmt.Errorf("expected %d bytes of data, found %d", plan.sizes[i], plan.sizes[i]-exact.rest)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", e.Name, err)
		}
	}
	return buffered.Flush()
}

// exactWriter passes on as many bytes as rest says, and refuses more.
type exactWriter struct {
	w    io.Writer
	rest int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > e.rest {
		return 0, fmt.Errorf("expected %d more bytes of data at most, found %d", e.rest, len(p))
	}
	n, err := e.w.Write(p)
	e.rest -= int64(n)
	return n, err
}

// headerWriter appends JSON without white space. It keeps the first error.
type headerWriter struct {
	text []byte
	err  error
}

func (h *headerWriter) key(key string) {
	if last := h.text[len(h.text)-1]; last != '{' {
		h.text = append(h.text, ',')
	}
	h.string(key)
	h.text = append(h.text, ':')
}

func (h *headerWriter) string(s string) {
	if !utf8.ValidString(s) && h.err == nil {
		h.err = fmt.Errorf("expected names and metadata in UTF-8, found %q", clip(s))
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string has no encoding error, and a Buffer no write error
	h.text = append(h.text, bytes.TrimSuffix(quoted.Bytes(), []byte{'\n'})...)
}

func (h *headerWriter) entry(e Entry, begin, end int64) {
	h.key(e.Name)
	h.text = append(h.text, `{"dtype":`...)
	h.string(string(e.DType))
	h.text = append(h.text, `,"shape":[`...)
	for i, d := range e.Shape {
		if i > 0 {
			h.text = append(h.text, ',')
		}
		h.text = fmt.Append(h.text, d)
	}
	h.text = fmt.Appendf(h.text, `],"data_offsets":[%d,%d]}`, begin, end)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
