package container

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/schema"
)

// ErrInvalid is what every error is (errors.Is) that comes from the content of a file and not from the
// system: it is not a .pte file, it is damaged, or it holds what this version does not read.
var ErrInvalid = kind.Of(kind.ErrInvalid, errors.New("invalid .pte file"))

// Error describes what is wrong with the content of a file. It is an ErrInvalid.
type Error struct {
	File    string // as it was opened
	Offset  int64  // of the offending bytes in the file, or -1 where there is no one place
	Field   string // e.g. execution_plan[0].values[3].val (Tensor.sizes); may be empty
	Problem string // what was expected and what was found
}

func (e *Error) Error() string {
	var place strings.Builder
	place.WriteString(e.File)
	if e.Offset >= 0 {
		fmt.Fprintf(&place, ": offset %d", e.Offset)
	}
	if e.Field != "" {
		place.WriteString(": " + e.Field)
	}
	return place.String() + ": " + e.Problem
}

// Is makes every Error an ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid || target == kind.ErrInvalid }

// wrong returns an Error of the file.
func (f *File) wrong(offset int64, field, format string, args ...any) error {
	return &Error{File: f.name, Offset: offset, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// unverified turns the error of a schema.Verify of the buffer at an offset of the file into an Error.
func (f *File) unverified(err error, base int64, prefix string) error {
	var e *schema.Error
	if !errors.As(err, &e) {
		return f.wrong(base, prefix, "%v", err)
	}
	field := e.Table
	if e.Field != "" {
		field += "." + e.Field
	}
	if e.Path != "" {
		field = e.Path + " (" + field + ")"
	}
	return f.wrong(base+e.Offset, prefix+field, "%s", e.Problem)
}

const panicked = "reading it panicked: "

// guard runs read and turns a panic into an error, and so a fault in the map of a file that got shorter. The
// checks leave nothing that panics on its own account; the tests hold them to it.
func (f *File) guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = f.wrong(-1, "", panicked+"%v", r)
		}
	}()
	return read()
}
