package speculate

import (
	"encoding/json"
	"io"
)

// Round is a round of drafting and verifying, as --draft-log writes it.
type Round struct {
	// At is the number of tokens known before the first draft. It includes the token that was drawn but not fed yet.
	At int `json:"at"`
	// Draft has the drafts. Accepted is the number of them that are right, counted from the first. The next round's
	// At is At + Accepted + 1.
	Draft    []int32 `json:"draft"`
	Accepted int     `json:"accepted"`
}

// Log has the rounds of a sequence.
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
