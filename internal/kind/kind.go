package kind

import (
	"errors"
	"fmt"
)

// The kinds, for errors.Is.
var (
	// ErrUsage is an error of the request: an invalid option, or one that the file does not support.
	ErrUsage = errors.New("wrong usage")
	// ErrInvalid is an error in the content of a file.
	ErrInvalid = errors.New("invalid file")
	// ErrMemory is an error for what would not fit in memory.
	ErrMemory = errors.New("not enough memory")
)

// marked is an error with its kind.
type marked struct{ err, kind error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.err, m.kind} }

// Of wraps err so that errors.Is finds kind, one of those above. It returns nil for a nil err.
func Of(kind, err error) error {
	if err == nil {
		return nil
	}
	return &marked{err, kind}
}

// Usagef returns an error of kind ErrUsage. Its arguments are those of fmt.Errorf.
func Usagef(format string, args ...any) error { return Of(ErrUsage, fmt.Errorf(format, args...)) }

// Invalidf returns an error of kind ErrInvalid. Its arguments are those of fmt.Errorf.
func Invalidf(format string, args ...any) error { return Of(ErrInvalid, fmt.Errorf(format, args...)) }
