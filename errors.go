package etc

import "github.com/etc-ml/etc/internal/kind"

// Kinds of errors, for errors.Is.
var (
	// ErrUsage is an error of the caller's request: an invalid option or parameter, or one that the file does not
	// support.
	ErrUsage = kind.ErrUsage
	// ErrInvalid is an error of a file's content.
	ErrInvalid = kind.ErrInvalid
	// ErrMemory is an error of a model that does not fit in memory.
	ErrMemory = kind.ErrMemory
)
