package container

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/program"
)

// File is an open .pte file. It is immutable and safe for concurrent use until it is closed.
type File struct {
	name     string
	data     []byte
	release  func() error
	header   *schema.ExtendedHeader
	program  *program.Program
	segments []Segment
	named    []NamedData
	byKey    map[string]int // index of the segment
	methods  []*Method
}

// Segment is a run of bytes after the program.
type Segment struct {
	Offset int64 // from the start of the file
	Size   int64
}

// NamedData is a name for a segment.
type NamedData struct {
	Key     string
	Segment int
}

// minFileSize is the number of bytes that ExecuTorch reads of a file first.
const minFileSize = 64

// Open maps a .pte file and checks its program. Errors of the file's content are ErrInvalid.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory, expected a .pte file", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file, which a .pte file must be to be mapped", path)
	case info.Size() < minFileSize:
		return nil, &Error{File: path, Offset: -1, Problem: fmt.Sprintf("%d bytes, a .pte file has at least %d",
			info.Size(), minFileSize)}
	case info.Size() > math.MaxInt:
		return nil, fmt.Errorf("%s: %d bytes do not fit the address space of this program", path, info.Size())
	}
	data, release, err := mapFile(file, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := parse(path, data)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	f.release = release
	return f, nil
}

// OpenBytes is Open for the content of a file. The name is for errors. data is kept, not copied.
func OpenBytes(name string, data []byte) (*File, error) {
	return parse(name, data)
}

// Close ends the life of every view of the file.
func (f *File) Close() error {
	release := f.release
	if release == nil {
		return nil
	}
	f.release, f.data = nil, nil
	return release()
}

// Name returns the path that the file was opened with.
func (f *File) Name() string { return f.name }

// Size returns the bytes of the file.
func (f *File) Size() int64 { return int64(len(f.data)) }

// Header returns the extended header, or nil where the file has none.
func (f *File) Header() *schema.ExtendedHeader { return f.header }

// Program returns the verified program.
func (f *File) Program() *program.Program { return f.program }

// Segments returns the segments in the order of the file.
func (f *File) Segments() []Segment { return f.segments }

// SegmentBytes returns the bytes of a segment of Segments.
func (f *File) SegmentBytes(i int) []byte {
	s := f.segments[i]
	return f.data[s.Offset : s.Offset+s.Size : s.Offset+s.Size]
}

// NamedData returns the names of segments in the order of the file. Of equal keys the first counts.
func (f *File) NamedData() []NamedData { return f.named }

// Lookup returns the bytes of the segment that has a name.
func (f *File) Lookup(key string) ([]byte, bool) {
	i, ok := f.byKey[key]
	if !ok {
		return nil, false
	}
	return f.SegmentBytes(i), true
}

// Methods returns the methods in the order of the file.
func (f *File) Methods() []*Method { return f.methods }

// Method returns a method by name; of equal names the first counts.
func (f *File) Method(name string) (*Method, bool) {
	for _, m := range f.methods {
		if m.Name == name {
			return m, true
		}
	}
	return nil, false
}

// parse checks the content of a file.
func parse(name string, data []byte) (*File, error) {
	f := &File{name: name, data: data, byKey: map[string]int{}}
	if err := f.guard(f.parse); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) parse() error {
	if len(f.data) < minFileSize {
		return f.wrong(-1, "", "%d bytes, a .pte file has at least %d", len(f.data), minFileSize)
	}
	head, err := f.parseHeader()
	if err != nil {
		return err
	}
	if err := schema.Verify(schema.Program(), head, schema.Program().Identifier()); err != nil {
		return f.unverified(err, 0, "")
	}
	f.program = program.GetRootAsProgram(head, 0)
	if err := f.parseSegments(); err != nil {
		return err
	}
	if err := f.parseNamedData(); err != nil {
		return err
	}
	return f.parseMethods()
}

// parseHeader reads the extended header and returns the bytes of the program.
func (f *File) parseHeader() ([]byte, error) {
	const at = 8
	size := uint64(len(f.data))
	h, err := schema.ReadExtendedHeader(f.data)
	if err != nil {
		return nil, f.wrong(at, "extended header", "%v", err)
	}
	if h == nil {
		return f.data, nil
	}
	f.header = h
	switch {
	case h.ProgramSize > size:
		return nil, f.wrong(at, "extended header", "program of %d bytes, the file has %d: it may be truncated",
			h.ProgramSize, size)
	case h.SegmentBase != 0 && h.SegmentBase < h.ProgramSize:
		return nil, f.wrong(at, "extended header", "segments begin at %d, within the program of %d bytes",
			h.SegmentBase, h.ProgramSize)
	case h.SegmentBase > size || h.SegmentSize > size-h.SegmentBase:
		return nil, f.wrong(at, "extended header",
			"%d bytes of segments at %d, the file has %d bytes: it may be truncated",
			h.SegmentSize, h.SegmentBase, size)
	case h.SegmentBase == 0 && h.SegmentSize != 0:
		return nil, f.wrong(at, "extended header", "%d bytes of segments at offset 0", h.SegmentSize)
	}
	return f.data[:h.ProgramSize], nil
}

// parseSegments places every segment in the file.
func (f *File) parseSegments() error {
	n := f.program.SegmentsLength()
	if n == 0 {
		return nil
	}
	if f.header == nil || f.header.SegmentBase == 0 {
		return f.wrong(-1, "segments", "%d segments, but no extended header that says where they begin", n)
	}
	// Files of old exporters leave SegmentSize out.
	limit := uint64(len(f.data)) - f.header.SegmentBase
	if f.header.SegmentSize > 0 {
		limit = f.header.SegmentSize
	}
	f.segments = make([]Segment, n)
	var s program.DataSegment
	for i := range f.segments {
		f.program.Segments(&s, i)
		if s.Offset() > limit || s.Size() > limit-s.Offset() {
			return f.wrong(int64(s.Table().Pos), fmt.Sprintf("segments[%d]", i),
				"%d bytes at %d, the segments have %d bytes: the file may be truncated",
				s.Size(), s.Offset(), limit)
		}
		f.segments[i] = Segment{Offset: int64(f.header.SegmentBase + s.Offset()), Size: int64(s.Size())}
	}
	return nil
}

// parseNamedData finds the segment of every key.
func (f *File) parseNamedData() error {
	f.named = make([]NamedData, f.program.NamedDataLength())
	var d program.NamedData
	for i := range f.named {
		f.program.NamedData(&d, i)
		field := fmt.Sprintf("named_data[%d]", i)
		if len(d.Key()) == 0 {
			return f.wrong(int64(d.Table().Pos), field, "key is missing")
		}
		if int64(d.SegmentIndex()) >= int64(len(f.segments)) {
			return f.wrong(int64(d.Table().Pos), field, "key %q is segment %d, the program has %d", d.Key(),
				d.SegmentIndex(), len(f.segments))
		}
		f.named[i] = NamedData{Key: string(d.Key()), Segment: int(d.SegmentIndex())}
		if _, ok := f.byKey[f.named[i].Key]; !ok {
			f.byKey[f.named[i].Key] = f.named[i].Segment
		}
	}
	return nil
}
