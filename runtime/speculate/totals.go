package speculate

// Totals counts the drafts of one or many sequences.
type Totals struct {
	Rounds   int `json:"rounds"`   // with drafts
	Drafted  int `json:"drafted"`  // tokens
	Accepted int `json:"accepted"` // of those
}

// Add adds other counts.
func (t *Totals) Add(o Totals) {
	t.Rounds, t.Drafted, t.Accepted = t.Rounds+o.Rounds, t.Drafted+o.Drafted, t.Accepted+o.Accepted
}

// Acceptance returns the part of the drafts that was right; 0 if there were none.
func (t Totals) Acceptance() float64 { return float64(t.Accepted) / float64(max(t.Drafted, 1)) }

// Below leastAcceptance, after at least suspectDrafts verified drafts, something is wrong with a draft model: drafts
// of the right model are accepted more often in any text.
const leastAcceptance, suspectDrafts = 0.02, 60

// Suspicious reports whether so few drafts were right that the draft is likely to belong to another model. Drafts from
// the text may all be wrong.
func (t Totals) Suspicious() bool {
	return t.Drafted >= suspectDrafts && t.Acceptance() < leastAcceptance
}
