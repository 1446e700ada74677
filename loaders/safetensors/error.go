package safetensors

import (
	"fmt"

	"github.com/etc-ml/etc/internal/kind"
)

// FormatError says where a file breaks the format.
type FormatError struct {
	File     string // path of the file
	Tensor   string // name of the tensor, empty where the fault is the file's
	Expected string // what the format asks for
	Found    string // what the file has
}

// Is reports whether target is what all errors about a file's content are.
func (e *FormatError) Is(target error) bool { return target == kind.ErrInvalid }

// Error gives "FILE: tensor NAME: expected …, found …".
func (e *FormatError) Error() string {
	where := e.File
	if e.Tensor != "" {
		where += fmt.Sprintf(": tensor %q", e.Tensor)
	}
	return fmt.Sprintf("%s: expected %s, found %s", where, e.Expected, e.Found)
}

// maxQuoted bounds what an error message repeats of a file's contents.
const maxQuoted = 200

// clip shortens s, which comes from a file, to what an error message can carry.
func clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return s[:maxQuoted] + "…"
}
