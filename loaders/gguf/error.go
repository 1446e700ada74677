package gguf

import "fmt"

// FormatError says what is wrong with a file, and where.
type FormatError struct {
	File     string
	Place    string // a metadata key, a tensor or a part of the header; empty for the whole file
	Offset   int64  // of the byte, -1 where there is none
	Expected string
	Found    string
}

// Error gives "FILE: PLACE at byte N: expected …, found …".
func (e *FormatError) Error() string {
	where := e.File
	if e.Place != "" {
		where += ": " + clip(e.Place)
	}
	if e.Offset >= 0 {
		where += fmt.Sprintf(" at byte %d", e.Offset)
	}
	return fmt.Sprintf("%s: expected %s, found %s", where, e.Expected, clip(e.Found))
}

// clip shortens what comes from a file to what an error message can carry.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
