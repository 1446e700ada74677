package speculate

// chances counts how often the drafts of a sequence were right.
type chances struct {
	// hits and trials are of the j-th draft of a round, counted only where all before it were right. Old counts fade.
	hits, trials [MostDrafts]float64
}

// chance returns the estimated probability that draft j is right if all before it are. before is that of draft j-1,
// which stands for it while nothing is known of draft j.
func (c *chances) chance(j int, before float64) float64 {
	if j >= MostDrafts {
		return 0
	}
	return (c.hits[j] + guessWeight*before) / (c.trials[j] + guessWeight)
}

// doubt weakens the old counts, so that new ones weigh more.
func (c *chances) doubt() {
	for j := range c.trials {
		c.hits[j], c.trials[j] = c.hits[j]/4, c.trials[j]/4
	}
}

// learn counts a round of drafted drafts of which the first accepted ones were right.
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
