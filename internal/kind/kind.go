package kind

import (
	"errors"
	"fmt"
)

// The kinds, for errors.Is.
var (
	// ErrUsage is an error of the request: an invalid option, or one that the file does not support.
	ErrUsage = errors.New("wrong usage")
	// ErrInvalid is an error of a file's content.
	ErrInvalid = errors.New("invalid file")
	// ErrMemory is an error about memory that would not be enough.
	ErrMemory = errors.New("not enough memory")
)

// marked is an error of a kind.
type marked struct{ err, kind error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.err, m.kind} }

// Of gives an error that kind, one of those of this package, is found in by errors.Is; nil for none.
func Of(kind, err error) error {
	if err == nil {
		return nil
	}
	return &marked{err, kind}
}

// Usagef is fmt.Errorf of kind ErrUsage.
func Usagef(format string, args ...any) error { return Of(ErrUsage, fmt.Errorf(format, args...)) }

// Invalidf is fmt.Errorf of kind ErrInvalid.
func Invalidf(format string, args ...any) error { return Of(ErrInvalid, fmt.Errorf(format, args...)) }
