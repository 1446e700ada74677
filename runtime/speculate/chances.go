package speculate

// chances is what was learned of how often drafts of a sequence are right.
type chances struct {
	hits, trials [MostDrafts]float64 // of draft j where all before it were right; they forget
}

// chance is that of draft j to be right where all before it are; before is that of the one before it, which it is taken
// to have while nothing is known.
func (c *chances) chance(j int, before float64) float64 {
	if j >= MostDrafts {
		return 0
	}
	return (c.hits[j] + guessWeight*before) / (c.trials[j] + guessWeight)
}

// doubt makes what comes count more than what was before.
func (c *chances) doubt() {
	for j := range c.trials {
		c.hits[j], c.trials[j] = c.hits[j]/4, c.trials[j]/4
	}
}

// learn notes which drafts were right.
func (c *chances) learn(drafted, accepted int) {
	for j := range c.trials {
		c.hits[j], c.trials[j] = forget*c.hits[j], forget*c.trials[j]
	}
	for j := range min(drafted, accepted+1) {
		c.trials[j]++
		if j < accepted {
			c.hits[j]++
		}
	}
}
