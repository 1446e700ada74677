package constrain

import (
	"errors"
	"fmt"
)

// Error says why a source was not taken. Where a keyword of a JSON schema is to blame, Keyword names it and Path is the
// JSON pointer of the schema that holds it; for a grammar, Path is the line and column.
type Error struct {
	Kind    Kind   // what was compiled
	Path    string // a JSON pointer ("" is the whole schema), "line 3, column 7", or "" for a regular expression
	Keyword string // of a JSON schema, or ""
	Reason  string // what was expected and found, and what to do
}

// Error gives the whole message.
func (e *Error) Error() string {
	where := ""
	switch {
	case e.Kind == JSONSchema:
		where = " at #" + e.Path
	case e.Path != "":
		where = " at " + e.Path
	}
	if e.Keyword != "" {
		where += fmt.Sprintf(": %q", e.Keyword)
	}
	return fmt.Sprintf("%s%s: %s", e.Kind, where, e.Reason)
}

// Errors of a matcher.
var (
	// ErrToken says that a token is not allowed where it was given to Accept.
	ErrToken = errors.New("the constraint does not allow this token here")
	// ErrTooComplex says that a grammar is so ambiguous that a text has too many readings at once.
	ErrTooComplex = errors.New(
		"the constraint has too many readings of this text at once; make the grammar less ambiguous")
)
