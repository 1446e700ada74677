package codegen

import (
	"context"
	"fmt"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir"
)

// File is the content of a file for [Write].
type File struct {
	// Module is a legal module; its constants have data.
	Module *ir.Module
	// Extra is named data in addition to the constants, in order: tokenizer, configuration.
	Extra []NamedBytes
	// Record is named data that contains fields whose values are known only after the sources have been read. It comes
	// last in the file.
	Record *Record
	// Jobs is the number of workers; 0 means one per CPU.
	Jobs int
	// Target says what must not be lost by writing the file, as the inputs of the same command, and who is told of a
	// file that it replaces. Nothing but a regular file is replaced, whatever it says.
	Target outfile.Options
	// Resume keeps what was written when writing is interrupted, and continues from it.
	Resume bool
	// Identity lists everything besides the module that the bytes depend on: flags, version, sources. An interrupted
	// write is not continued under another identity.
	Identity []Property
	// Inputs says where the leaves of the module's data ([ir.Leaves]) lie in files. Leaves that lie in no file are not
	// in it. It is used to tell the operating system when it may drop the cached pages of these files. Nothing is read
	// through it.
	Inputs []Input
	// Progress is called with the bytes written so far and the total, never concurrently; nil for none.
	Progress func(written, total int64)
	// Log is called with what a user should know and no error says; nil for none.
	Log func(message string)
}

// NamedBytes is a piece of named data.
type NamedBytes struct {
	Key   string
	Bytes []byte
}

// Property is a named value that the bytes of a file follow from.
type Property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Local marks what may differ on another machine that writes a part of the same file, as a path and
	// the time of a change.
	Local bool `json:"local,omitempty"`
}

// Input is a place that data is read from.
type Input struct {
	Provenance   string // of the data
	Path         string
	Offset, Size int64 // bytes
}

// Record is named data whose size and most of whose bytes are known before a weight is read.
type Record struct {
	Key string
	// Bytes is the text of the record; the fields in it may have any content.
	Bytes []byte
	// Fields are the parts of the record that have to be computed, such as the hashes of the sources. Their offsets
	// ascend, and they do not overlap. Fields that read sources stand in the order of the constants: workers compute
	// them while they write the constants nearby, so that the disk is read once for both.
	Fields []Field
}

// Field is a part of a record.
type Field struct {
	Offset, Size int
	// Work is the work of Make in bytes that it reads, to share out the time among fields.
	Work int64
	// Reads is the provenance of the data that Make reads, empty for none.
	Reads string
	Make  func(context.Context) ([]byte, error)
	// Of, where it is set, has the writer compute the field instead of Make: it is the SHA-256, in hexadecimal, of what
	// is stored in the file under this key, or of the program ([StoredProgram]).
	Of string
}

// check returns an error unless the fields lie in the record, one after the other.
func (r *Record) check() error {
	end := 0
	for i, f := range r.Fields {
		if f.Offset < end || f.Size < 0 || f.Offset > len(r.Bytes)-f.Size {
			return fmt.Errorf("%s: field %d lies at %d+%d, want it in bytes %d to %d", r.Key, i, f.Offset,
				f.Size, end, len(r.Bytes))
		}
		end = f.Offset + f.Size
	}
	return nil
}

// constantBytes returns the ranges of the record that no field covers.
func (r *Record) constantBytes() []extent {
	var out []extent
	at := 0
	for _, f := range r.Fields {
		if f.Offset > at {
			out = append(out, extent{int64(at), int64(f.Offset - at)})
		}
		at = f.Offset + f.Size
	}
	if at < len(r.Bytes) {
		out = append(out, extent{int64(at), int64(len(r.Bytes) - at)})
	}
	return out
}
