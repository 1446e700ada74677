package codegen

import (
	"context"
	"fmt"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir"
)

// File is what [Write] writes to a .pte file, and how: the program, what stands beside it, and the number of workers.
type File struct {
	// Module is the program, after the pass legalize. Its constants have data.
	Module *ir.Module
	// Extra is named data that the file holds beside the constants, in this order: tokenizer, configuration.
	Extra []NamedBytes
	// Record is the build record. Some of its fields, such as hashes, are known only after the checkpoint has been
	// read. It comes last in the file. nil: none.
	Record *Record
	// Jobs is the number of workers; 0 means one per CPU.
	Jobs int
	// Target lists files that must not be overwritten, as the inputs of the same command, and says who is told of a
	// file that is replaced. Only a regular file is ever replaced.
	Target outfile.Options
	// Resume keeps what was written when writing is interrupted. Where a file was kept, writing goes on from it.
	Resume bool
	// Identity lists everything besides the module that the bytes depend on: flags, version, sources. An interrupted
	// write is not continued under another identity.
	Identity []Property
	// Inputs lists the parts of the checkpoint's files that the module's data is read from: the places of its leaves
	// ([ir.Leaves]). It serves only to tell the operating system when it may drop cached pages of these files.
	Inputs []Input
	// Progress is called with the bytes written so far and the total, never concurrently; nil for none.
	Progress func(written, total int64)
	// Log is called with a message that a user should see although it is no error; nil for none.
	Log func(message string)
}

// NamedBytes is a piece of named data.
type NamedBytes struct {
	Key   string
	Bytes []byte
}

// Property is a named value that the bytes of a file depend on, such as a flag.
type Property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Local marks a value that may differ on another machine which writes a part of the same file, such as a path or
	// the time when an input was changed.
	Local bool `json:"local,omitempty"`
}

// Input is a part of an input file, from which data is read.
type Input struct {
	Provenance   string // of the data: see ir.Data
	Path         string
	Offset, Size int64 // bytes
}

// Record is the build record of a file: named data whose size and most of whose bytes are known before a weight is
// read.
type Record struct {
	Key string
	// Bytes is the text of the record; the fields in it may have any content.
	Bytes []byte
	// Fields are the parts of the record that have to be computed, such as the hashes of the sources. Their offsets
	// ascend, and they do not overlap. Fields that read sources stand in the order of the constants: workers compute
	// them while they write the constants nearby, so that the disk is read once for both.
	Fields []Field
}

// Field is a part of a record whose bytes are computed while the file is written.
type Field struct {
	Offset, Size int
	// Work is the number of bytes that Make reads, by which fields are divided among workers.
	Work int64
	// Reads is the provenance of the data that Make reads, empty for none.
	Reads string
	// Make returns the bytes of the field, Size of them.
	Make func(context.Context) ([]byte, error)
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
