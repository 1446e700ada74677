package speculate

// Totals are counts of a sequence, or of many.
type Totals struct {
	Rounds   int `json:"rounds"`   // with drafts
	Drafted  int `json:"drafted"`  // tokens
	Accepted int `json:"accepted"` // of those
}

// Add adds other counts.
func (t *Totals) Add(o Totals) {
	t.Rounds, t.Drafted, t.Accepted = t.Rounds+o.Rounds, t.Drafted+o.Drafted, t.Accepted+o.Accepted
}

// Acceptance is the part of the drafts that was right; 0 where there were none.
func (t Totals) Acceptance() float64 { return float64(t.Accepted) / float64(max(t.Drafted, 1)) }

// leastAcceptance is the part of the drafts below which there is something wrong with a draft, where suspectDrafts were
// verified: what a draft of the model gives is right more often in any text.
const leastAcceptance, suspectDrafts = 0.02, 60

// Suspicious reports whether so few drafts were right that the draft is likely to belong to another model. Drafts from
// the text may all be wrong.
func (t Totals) Suspicious() bool {
	return t.Drafted >= suspectDrafts && t.Acceptance() < leastAcceptance
}
