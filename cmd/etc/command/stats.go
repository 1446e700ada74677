package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/etc-ml/etc"
)

// statsLine describes the speed of an answer. The prompt counts the tokens that were fed; in a chat these are the new
// ones.
func statsLine(e etc.End, seed int64) string {
	var b strings.Builder
	fed := e.PromptTokens - e.CachedTokens
	fmt.Fprintf(&b, "prompt %d tokens, %.1f tokens/s; answer %d tokens, %.1f tokens/s", fed, perSecond(fed, e.Prefill),
		e.AnswerTokens, perSecond(e.Calls, e.Decode))
	if peak := peakMemory(); peak > 0 {
		fmt.Fprintf(&b, "; peak memory %d MiB", peak>>20)
		if own := ownMemory(); own > 0 {
			fmt.Fprintf(&b, ", %d MiB of it now and not of files", own>>20)
		}
	}
	if e.Drafted > 0 {
		right, rounds := float64(e.Accepted), float64(e.DraftRounds)
		fmt.Fprintf(&b, "; drafts %d of %d right (%.0f %%), %.2f tokens a round of %d", e.Accepted, e.Drafted,
			100*right/float64(e.Drafted), 1+right/rounds, e.DraftRounds)
	}
	fmt.Fprintf(&b, "; seed %d", seed)
	return b.String()
}

// perSecond returns a rate, 0 where nothing was done.
func perSecond(n int, d time.Duration) float64 {
	if n == 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
