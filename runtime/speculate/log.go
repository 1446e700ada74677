package speculate

import (
	"encoding/json"
	"io"
)

// Round is a round of drafting and verifying, as --draft-log writes it.
type Round struct {
	// At is the number of tokens that were known before the first draft, the one included that was drawn and not fed
	// yet.
	At int `json:"at"`
	// Draft are the drafts, and Accepted how many of them are right, from the first on. The next round's At is
	// At + Accepted + 1.
	Draft    []int32 `json:"draft"`
	Accepted int     `json:"accepted"`
}

// Log is the rounds of a sequence.
type Log []Round

// Write writes the rounds as a JSON array.
func (l Log) Write(w io.Writer) error {
	if l == nil {
		l = Log{}
	}
	for i := range l {
		if l[i].Draft == nil {
			l[i].Draft = []int32{}
		}
	}
	return json.NewEncoder(w).Encode(l)
}
