package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/session"
)

// statsLine describes the speed of an answer. The prompt counts the tokens that were fed; in a chat these are the new
// ones.
func statsLine(a session.Answer, seed int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "prompt %d tokens, %.1f tokens/s; answer %d tokens, %.1f tokens/s", a.Prompt,
		perSecond(a.Prompt, a.PrefillTime),
		len(a.Tokens), perSecond(a.Decoded, a.DecodeTime))
	if peak := peakMemory(); peak > 0 {
		fmt.Fprintf(&b, "; peak memory %d MiB", peak>>20)
		if own := ownMemory(); own > 0 {
			fmt.Fprintf(&b, ", %d MiB of it now and not of files", own>>20)
		}
	}
	if d := a.Drafts; d.Drafted > 0 {
		fmt.Fprintf(&b, "; drafts %d of %d right (%.0f %%), %.2f tokens a round of %d", d.Accepted,
			d.Drafted, 100*d.Acceptance(),
			1+float64(d.Accepted)/float64(d.Rounds), d.Rounds)
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
