package session

import (
	"math"
	"runtime"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir/numeric"
)

// choose is the host's sampler for programs that give logits: the most likely token, or a draw from
// softmax(logits/temperature) by the Gumbel-max trick. Logits that are no numbers are never chosen.
func (s *Session) choose(logits []float32, temperature float32) int {
	if !(temperature > 0) {
		return greatest(logits)
	}
	key := s.keys.Next()
	scaled := make([]float32, len(logits))
	for i, v := range logits {
		scaled[i] = float32(v / temperature)
	}
	if best := gumbelMax(scaled, key); !best.NaN {
		return best.Index
	}
	noise := make([]float32, len(logits))
	numeric.FillGumbel(noise, key)
	for i, v := range scaled {
		noise[i] += v
	}
	return greatest(noise)
}

// gumbelMax divides the search among a few goroutines.
func gumbelMax(scaled []float32, key [2]uint32) numeric.Greatest {
	search := numeric.NewGumbelMax(scaled, key, 0)
	const least = 8 << 10 // pairs that are worth a goroutine
	parts := max(1, min(runtime.GOMAXPROCS(0), search.Pairs()/least))
	found := make([]numeric.Greatest, parts)
	var wait fault.Group
	for i := range parts {
		wait.Go(func() { found[i] = search.Find(i*search.Pairs()/parts, (i+1)*search.Pairs()/parts) })
	}
	wait.Wait()
	best := found[0]
	for _, f := range found[1:] {
		best = best.Or(f)
	}
	return best
}

// greatest returns the first index of the greatest number.
func greatest(values []float32) int {
	best, at := float32(math.Inf(-1)), 0
	for i, v := range values {
		if v > best {
			best, at = v, i
		}
	}
	return at
}
